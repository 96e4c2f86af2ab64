"""The files in which this machine remembers its payments."""

from __future__ import annotations

import os
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chain.blocks import BlockRef
from chain.paying import SignedPayment
from chain.payment import Quote
from config.errors import ConfigurationError, HostError
from config.evaluation_cost import EvaluationCostSettings
from config.settings import Settings
from node.cli.paying import SLACK_BLOCKS, is_due
from node.cli.payment_file import PaymentFile, payments_of
from node.cli.resolve import miner_state

PAYMENT = SignedPayment(
    quote=Quote(5, "ab" * 32, "5Owner", 307, "5Hotkey", 7, 2), payer="5Payer", extrinsic="00ff", hash="0x11", nonce=3,
    signed_at=7, era_end_block=71,
)
GENESIS = "0x" + "11" * 32


async def test_a_price_that_ends_right_after_the_reveal_is_due() -> None:
    """A commitment may be opened on time or late; what is due at either is said, whichever way the price moves."""
    class Head:
        async def finalized_head(self) -> BlockRef:
            return BlockRef(1000, "0x00")

    def due(*changes: tuple[int, int], reveal_in: int = 10) -> Coroutine[Any, Any, bool]:
        cost = EvaluationCostSettings(amount_rao=5, changes=changes, quote_blocks=8)
        return is_due(Head(), Settings(evaluation_cost=cost), reveal_in)  # type: ignore[arg-type]

    assert await due()
    assert await due((1011, 0))  # revealed in 1010 it has to be paid for
    assert not await due((1010, 0))
    assert not await due((1, 0))
    assert await due((1, 0), (1010 + SLACK_BLOCKS - 8, 7))  # revealed as late as it may be it has to be paid for
    assert not await due((1, 0), (1010 + SLACK_BLOCKS - 7, 7))


def test_a_payment_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Every field survives, in the file of its own submission and no other, closed to others."""
    with payments_of(tmp_path, GENESIS, 2, "5Hotkey", "ab" * 32) as record:
        assert record.read() is None
        record.write(PAYMENT)
        assert record.read() == PAYMENT
        final = msgspec.structs.replace(PAYMENT, block=9, index=1)
        record.write(final)
        assert record.read() == final
        assert record.path.stat().st_mode & 0o077 == 0
    for other in ((GENESIS, 3, "5Hotkey", "ab" * 32), ("0x" + "22" * 32, 2, "5Hotkey", "ab" * 32),
                  (GENESIS, 2, "5Other", "ab" * 32), (GENESIS, 2, "5Hotkey", "cd" * 32)):
        with payments_of(tmp_path, *other) as elsewhere:
            assert elsewhere.read() is None
    with payments_of(tmp_path, GENESIS, 2, "5Hotkey", "ab" * 32) as again:
        assert again.read() == final
        again.discard()
        again.discard()
        assert again.read() is None


@pytest.mark.parametrize("data", [b"", b"{", b"{}", b"\xff", b'{"quote":null}'])
def test_a_damaged_record_stops_everything(tmp_path: Path, data: bytes) -> None:
    """Whether money moved is not guessed."""
    path = tmp_path / "payment.json"
    path.write_bytes(data)
    with pytest.raises(HostError) as caught:
        PaymentFile(path).read()
    assert caught.value.code == "PAYMENT_RECORD_UNREADABLE"


def test_one_process_pays_at_a_time(tmp_path: Path) -> None:
    """A second one is refused at once, and may go on when the first is done."""
    names = (GENESIS, 2, "5Hotkey", "ab" * 32)
    with payments_of(tmp_path, *names), pytest.raises(HostError) as caught, payments_of(tmp_path, *names):
        pytest.fail("two at a time")
    assert caught.value.code == "PAYMENT_RUNNING"
    with payments_of(tmp_path, *names):
        pass


def test_a_payment_that_cannot_be_written_down_is_not_made(tmp_path: Path) -> None:
    """A file in the place of the folder, or a folder that went away: an error before anything is sent."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(HostError) as caught, payments_of(tmp_path / "file", GENESIS, 2, "5Hotkey", "ab" * 32):
        pytest.fail("no folder")
    assert caught.value.code == "PAYMENT_RECORD_UNWRITABLE"
    with pytest.raises(HostError) as gone:
        PaymentFile(tmp_path / "none" / "payment.json").write(PAYMENT)
    assert gone.value.code == "PAYMENT_RECORD_UNWRITABLE"


def test_where_payments_are_remembered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A flag first, then the user's state folder as the XDG rules say, then its usual place."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/ann")
    monkeypatch.setenv("XDG_STATE_HOME", "/var/ann")
    assert miner_state("here") == tmp_path / "here"
    assert miner_state(None) == Path("/var/ann/cacheon")
    for unset in ("", "not/absolute"):
        monkeypatch.setenv("XDG_STATE_HOME", unset)
        assert miner_state(None) == Path("/home/ann/.local/state/cacheon")


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nowhere to remember is an error that names the flag."""

    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", nowhere)
    with pytest.raises(ConfigurationError) as caught:
        miner_state(None)
    assert caught.value.code == "STATE_NOT_GIVEN"
    assert "--state" in caught.value.hint
    assert os.environ.get("XDG_STATE_HOME") is None
