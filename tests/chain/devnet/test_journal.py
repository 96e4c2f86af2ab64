"""The state file: torn tails, damage, locks and foreign chains."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from chain.devnet.config import DevnetConfig
from chain.devnet.genesis_document import Genesis
from chain.devnet.journal import MAGIC
from chain.devnet.startup import open_chain
from config.errors import HostError
from tests.chain.devnet.support import VALIDATOR, Driver, compose, genesis

REMARK = compose("System", "remark", remark=b"kept")


def config(path: Path, spec: Genesis | None = None, **settings: int) -> DevnetConfig:
    return DevnetConfig(state=path, genesis=spec, **settings)


def refusal(settings: DevnetConfig) -> str:
    with pytest.raises(HostError) as caught, open_chain(settings):
        pass
    return caught.value.code


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """A state file with genesis and five blocks, one with an extrinsic."""
    path = tmp_path / "deep" / "chain.state"
    with open_chain(config(path, genesis())) as chain:
        driver = Driver(chain)
        driver.blocks(2)
        driver.send(VALIDATOR, REMARK)
        driver.blocks(2)
    return path


def test_restart_continues_the_same_chain(stored: Path) -> None:
    """Hashes, storage at every block, nonces, finality and time go on after a restart."""
    with open_chain(config(stored)) as chain:
        hashes = [block.hash for block in chain.blocks]
        times = [chain.view(block).get("Timestamp", "Now") for block in chain.blocks]
        assert chain.head.number == chain.finalized.number == 5
        assert Driver(chain).nonce(VALIDATOR) == 1
        assert any(REMARK in raw for raw in chain.blocks[3].extrinsics)
        chain.build()
    with open_chain(config(stored, genesis())) as chain:
        assert [block.hash for block in chain.blocks[:6]] == hashes
        assert chain.head.number == 6
        later = [chain.view(block).get("Timestamp", "Now") for block in chain.blocks]
        assert later[:6] == times
        assert sorted(set(later)) == later
        rounds = [chain.view(block).get("Drand", "LastStoredRound") for block in chain.blocks]
        assert rounds == list(range(rounds[0], rounds[0] + 7))


def test_every_torn_tail_is_cut_off(stored: Path) -> None:
    """Whatever part of the last record is missing, the block before it is the head and the chain goes on."""
    data = stored.read_bytes()
    with open_chain(config(stored)) as chain:
        chain.build()
    whole = stored.read_bytes()
    assert whole[: len(data)] == data
    for cut in range(len(data), len(whole)):
        stored.write_bytes(whole[:cut])
        with open_chain(config(stored)) as chain:
            assert chain.head.number == 5
        assert stored.read_bytes() == data
    stored.write_bytes(data + bytes(100))
    with open_chain(config(stored)) as chain:
        assert chain.build().number == 6


def test_torn_genesis_starts_afresh(stored: Path) -> None:
    """A file that ends inside its first record was never announced and becomes a new chain."""
    data = stored.read_bytes()
    for cut in (0, 3, len(MAGIC), len(MAGIC) + 5, len(MAGIC) + 40):
        stored.write_bytes(data[:cut])
        with open_chain(config(stored, genesis())) as chain:
            assert chain.build().number == 1
        with open_chain(config(stored)) as chain:
            assert chain.head.number == 1


def test_damage_is_refused(stored: Path) -> None:
    """A flipped bit anywhere in a whole record is refused, not repaired, and the file stays as it was."""
    data = stored.read_bytes()
    for place in (0, len(MAGIC) + 1, len(MAGIC) + 5, len(MAGIC) + 30, len(data) // 2, len(data) - 3):
        damaged = bytearray(data)
        damaged[place] ^= 0x10
        stored.write_bytes(damaged)
        assert refusal(config(stored)) == "STATE_CORRUPT"
        assert stored.read_bytes() == damaged


def test_missing_record_is_refused(stored: Path) -> None:
    """A file from which a whole block was cut out does not chain."""
    data = stored.read_bytes()
    first = len(MAGIC) + 16 + int.from_bytes(data[len(MAGIC) : len(MAGIC) + 4], "little")
    second = first + 16 + int.from_bytes(data[first : first + 4], "little")
    stored.write_bytes(data[:first] + data[second:])
    assert refusal(config(stored)) == "STATE_CORRUPT"


def test_foreign_file_is_refused(tmp_path: Path) -> None:
    """A file of something else is left alone."""
    path = tmp_path / "notes.txt"
    path.write_text("shopping list")
    assert refusal(config(path)) == "STATE_CORRUPT"
    assert path.read_text() == "shopping list"


def test_foreign_genesis_is_refused(stored: Path) -> None:
    """Settings with another genesis document do not continue this chain."""
    assert refusal(config(stored, genesis(tempo=77))) == "STATE_FOREIGN_GENESIS"


def test_file_in_use_is_refused(stored: Path) -> None:
    """Two nodes cannot share a state file."""
    with open_chain(config(stored)):
        assert refusal(config(stored)) == "STATE_IN_USE"
    with open_chain(config(stored)) as chain:
        assert chain.head.number == 5


def test_unwritable_place_is_refused(tmp_path: Path) -> None:
    """A state file under something that is no folder is one clear error."""
    (tmp_path / "file").write_text("")
    assert refusal(config(tmp_path / "file" / "chain.state")) == "STATE_UNWRITABLE"


@pytest.mark.parametrize("place", ["/dev/null", "/dev/full", "pipe", "folder"])
def test_a_state_file_must_be_a_regular_file(tmp_path: Path, place: str) -> None:
    """What cannot keep a chain is refused, instead of losing it in silence."""
    if place == "pipe":
        os.mkfifo(tmp_path / place)
    if place == "folder":
        (tmp_path / place).mkdir()
    assert refusal(config(tmp_path / place)) == "STATE_UNWRITABLE"


def test_full_disk_leaves_the_chain_as_it_was(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When a block cannot be written it does not exist: no announcement, no partial record."""
    data = stored.read_bytes()
    with open_chain(config(stored)) as chain:
        real = os.pwrite

        def half(descriptor: int, piece: bytes, offset: int) -> int:
            if len(piece) < 100:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(descriptor, piece[: len(piece) // 2], offset)

        monkeypatch.setattr(os, "pwrite", half)
        with pytest.raises(HostError) as caught:
            chain.build()
        assert (caught.value.code, chain.head.number) == ("STATE_UNWRITABLE", 5)
        monkeypatch.undo()
        assert stored.read_bytes() == data
        assert chain.build().number == 6


def test_finality_never_moves_back(stored: Path) -> None:
    """A restart with a longer finality lag keeps what was final and waits."""
    with open_chain(config(stored, finality_lag=3)) as chain:
        assert chain.finalized.number == 5
        chain.build()
        assert chain.finalized.number == 5
        Driver(chain).blocks(3)
        assert (chain.head.number, chain.finalized.number) == (9, 6)


def test_pruned_node_keeps_the_head(stored: Path) -> None:
    """A node that keeps few states loads a long file and still continues it."""
    with open_chain(config(stored, keep_state=2)) as chain:
        assert Driver(chain).nonce(VALIDATOR) == 1
        assert chain.build().number == 6
