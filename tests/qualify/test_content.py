"""Content: repeatable from the seed, fresh per call, and unpredictable without it."""

from __future__ import annotations

import pytest
import torch

from qualify.content import ALL_STYLES, HEAVY, NORMAL, ROWS, SHIFTED, Content, Style


def source(seed: int = 0, attempt: str = "attempt") -> Content:
    """Return a content source."""
    return Content(bytes([seed]) * 32, attempt, dtype="float32", elements=1 << 16, words=1 << 12)


def drawn(content: Content, style: Style, *indices: int) -> torch.Tensor:
    """Return one tensor of `style`."""
    target = torch.empty(64, 256)
    content.fill(target, style, content.generator("inputs", *indices))
    return target


@pytest.mark.parametrize("style", ALL_STYLES, ids=lambda style: style.name)
def test_the_same_seed_gives_the_same_inputs(style: Style) -> None:
    """Anyone who holds the revealed seed repeats every input."""
    assert torch.equal(drawn(source(), style, 1, 2), drawn(source(), style, 1, 2))


@pytest.mark.parametrize("style", ALL_STYLES, ids=lambda style: style.name)
def test_other_calls_seeds_and_attempts_give_other_inputs(style: Style) -> None:
    """No two calls see the same values."""
    one = drawn(source(), style, 1, 2)
    others = (
        drawn(source(), style, 1, 3),
        drawn(source(1), style, 1, 2),
        drawn(source(attempt="other"), style, 1, 2),
    )
    assert not any(torch.equal(one, other) for other in others)


def test_styles_differ_as_they_say() -> None:
    """Shifted inputs have a mean, heavy ones have tails, rows have scales of their own."""
    content = source()
    assert max(abs(float(drawn(content, SHIFTED, i).mean())) for i in range(8)) > 1
    normal, heavy = drawn(content, NORMAL, 1), drawn(content, HEAVY, 1)
    assert heavy.abs().max() / heavy.std() > 1.5 * normal.abs().max() / normal.std()
    scales = drawn(content, ROWS, 1).std(-1)
    assert scales.max() / scales.min() > 10


def test_a_perturbation_changes_some_inputs_and_not_others() -> None:
    """Private perturbations are partial, so that outputs have to follow them element by element."""
    content = source()
    before = drawn(content, NORMAL, 1)
    after = before.clone()
    content.perturb(after, content.generator("perturbation"))
    changed = float((before != after).float().mean())
    assert 0.01 < changed < 0.2


def test_filler_looks_like_data() -> None:
    """Filler is finite, varied and different each time."""
    content = source()
    words = torch.zeros(1 << 12, dtype=torch.int64)
    content.fill_words(words, content.generator("filler", 1))
    values = words.view(torch.float32)
    assert torch.isfinite(values).all()
    assert values.unique().numel() > 4000
    assert content.holds_fill(words, content.generator("filler", 1))
    assert not content.holds_fill(words, content.generator("filler", 2))


def test_fingerprints_see_every_word_and_depend_on_the_key() -> None:
    """One changed bit anywhere changes the fingerprint; another seed gives another one."""
    content = source()
    words = torch.arange(1 << 12, dtype=torch.int64)
    mark = content.fingerprint(words)
    assert mark != source(1).fingerprint(words)
    for place in (0, 17, (1 << 12) - 1):
        for bit in (0, 31, 63):
            changed = words.clone()
            changed[place] ^= 1 << bit if bit < 63 else -(1 << 63)
            assert content.fingerprint(changed) != mark


def test_input_fingerprints_cover_tails_that_fill_no_word() -> None:
    """The last bytes of an input of odd length count too."""
    content = source()
    x = torch.zeros(13, dtype=torch.uint8)
    mark = content.fingerprint_inputs({"x": x})
    x[12] = 1
    assert content.fingerprint_inputs({"x": x}) != mark
    assert content.fingerprint_inputs({"x": x, "y": x}) != content.fingerprint_inputs({"x": x})
