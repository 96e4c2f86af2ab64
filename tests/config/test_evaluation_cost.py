"""`config/evaluation_cost.py`: prices by block."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.errors import ConfigurationError
from config.evaluation_cost import EvaluationCostSettings
from config.settings import load_settings

TAO = 1_000_000_000
RISING = EvaluationCostSettings(amount_rao=0, changes=((1000, TAO), (5000, 2 * TAO), (9000, 0)))


def test_off_by_default() -> None:
    """Nothing is due at any block unless somebody says so, in every built-in profile."""
    for profile in ("devnet", "test", "finney"):
        settings = load_settings(None, overrides={"profile": profile}).settings.evaluation_cost
        assert settings.is_off
        assert not any(settings.is_due(block) for block in (0, 1, 10**9))


@pytest.mark.parametrize(
    ("block", "price", "change"),
    [(0, 0, 1000), (999, 0, 1000), (1000, TAO, 5000), (4999, TAO, 5000), (5000, 2 * TAO, 9000), (9000, 0, None)],
)
def test_a_price_holds_from_its_block_on(block: int, price: int, change: int | None) -> None:
    """The block of a change is the first that has the new price."""
    assert RISING.price_at(block) == price
    assert RISING.next_change(block) == change


@pytest.mark.parametrize(
    ("block", "until"), [(1000, 1300), (4699, 4999), (4700, 4999), (4999, 4999), (5000, 5300), (20_000, 20_300)]
)
def test_a_quote_ends_before_the_price_changes(block: int, until: int) -> None:
    """What is paid within a quote is always paid at the quoted price."""
    assert RISING.quoted_until(block) == until
    assert RISING.price_at(until) == RISING.price_at(block)


@pytest.mark.parametrize(
    ("reveal", "due"), [(999, False), (1000, False), (1299, False), (1300, True), (5000, True), (8999, True),
                        (9000, False), (9500, False)]
)
def test_the_quote_of_nothing_holds_as_long_as_any(reveal: int, due: bool) -> None:
    """Whoever committed just before a price came into force owes nothing; a price that ended is not asked for."""
    assert RISING.is_due(reveal) is due


def test_paid_while_nothing_was_due() -> None:
    """Paying nothing in a free block does not pay for a later submission."""
    assert RISING.required_for(900, 1400) == TAO
    assert RISING.required_for(4990, 5100) == TAO
    assert RISING.required_for(5000, 5100) == 2 * TAO


@given(
    st.integers(0, 3),
    st.lists(st.tuples(st.integers(1, 60), st.integers(0, 3)), unique_by=lambda change: change[0]).map(sorted),
    st.integers(0, 80),
)
def test_due_means_due_at_every_block_of_the_quote(
    amount: int, changes: list[tuple[int, int]], reveal: int
) -> None:
    """The short cut over changes agrees with looking at every block."""
    settings = EvaluationCostSettings(amount_rao=amount, changes=tuple(changes), quote_blocks=8)
    blocks = range(max(reveal - 8, 0), reveal + 1)
    assert settings.is_due(reveal) == all(settings.price_at(block) > 0 for block in blocks)


def test_from_file_and_environment(tmp_path: Path) -> None:
    """Changes are pairs in a file and `block:amount` in the environment."""
    path = tmp_path / "node.toml"
    path.write_text("[evaluation_cost]\namount_rao = 5\nchanges = [[1000, 7], [2000, 0]]\n")
    assert load_settings(path).settings.evaluation_cost.changes == ((1000, 7), (2000, 0))
    environ = {"CACHEON_EVALUATION_COST__CHANGES": "3000:9, 4000:11"}
    assert load_settings(path, environ=environ).settings.evaluation_cost.changes == ((3000, 9), (4000, 11))


@pytest.mark.parametrize(
    "text",
    [
        "amount_rao = -1", "amount_rao = 1.5", "amount_rao = true", "amount_rao = 9223372036854775808",
        "changes = [[5, 1], [5, 2]]", "changes = [[9, 1], [5, 2]]", "changes = [[0, 1]]", "changes = [[1]]",
        "changes = [[1, -2]]", "changes = [[1, 2, 3]]", "changes = [1, 2]", "quote_blocks = 7", "window_blocks = 299",
    ],
)
def test_impossible_prices_are_refused(tmp_path: Path, text: str) -> None:
    """A price list that could be read in two ways is one configuration error."""
    path = tmp_path / "node.toml"
    path.write_text(f"[evaluation_cost]\n{text}\n")
    with pytest.raises(ConfigurationError) as caught:
        load_settings(path)
    assert caught.value.code == "SETTINGS_INVALID"


@pytest.mark.parametrize("text", ["5", "5:x", ":", "5:6:7"])
def test_impossible_environment(text: str) -> None:
    """A misspelt variable is one configuration error."""
    with pytest.raises(ConfigurationError) as caught:
        load_settings(None, environ={"CACHEON_EVALUATION_COST__CHANGES": text})
    assert caught.value.code == "SETTINGS_INVALID"
