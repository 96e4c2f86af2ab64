"""The status view: readable while the node runs and when it does not, and never a change."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from config.canonical import canonical_json
from config.errors import HostError, NotFoundError
from node.status import all_final, read_status, weights_confirmed
from node.store.engine import Store
from node.store.events import append_event
from tests.node.judging import SLOW, World
from tests.node.support import HOTKEY_B, submission


async def test_status_tells_the_whole_story(judging: World) -> None:
    """States, codes, blame, bounds, evidence paths and crowns are there, in chain order, for people and machines."""
    good, slow = submission(1), submission(2)
    copy = submission(3, content="1", hotkey=HOTKEY_B)
    judging.gains[slow.content_hash] = SLOW
    await judging.queue(good, slow, copy)
    await judging.work()
    status = read_status(judging.store.layout.root)
    assert [(one.state, one.code, one.blame) for one in status.submissions] == [
        ("settled", "", ""), ("failed", "NOT_FASTER", "miner"), ("failed", "COPY_OF_EARLIER", "miner"),
    ]
    assert status.counts == {"settled": 1, "failed": 2}
    first = status.submissions[0]
    assert [attempt.role for attempt in first.attempts] == ["primary", "reproduction"]
    assert first.speedup_ppm == min(attempt.lower_ppm for attempt in first.attempts)
    assert all(Path(attempt.path).is_file() for attempt in first.attempts)
    assert status.submissions[2].earlier_id == first.id
    (crown,) = status.crowns
    assert crown.live
    assert Path(crown.receipt).is_file()
    assert status.running_pid
    assert (status.ready, status.reasons) == (True, ())
    assert all_final(status, 3)
    assert not all_final(status, 4)
    assert not weights_confirmed(status)
    canonical_json(msgspec.to_builtins(status))


async def test_reading_changes_nothing(judging: World) -> None:
    """Reading the status leaves the ledger as it is and needs no lock."""
    await judging.queue(submission(1))
    before = read_status(judging.store.layout.root)
    assert read_status(judging.store.layout.root) == before


def test_no_state_yet(tmp_path: Path) -> None:
    """A folder without a database is pending, not broken."""
    with pytest.raises(NotFoundError) as caught:
        read_status(tmp_path)
    assert caught.value.code == "STATE_NOT_FOUND"


@pytest.mark.parametrize("content", [b"", b"no database " * 100])
def test_unreadable_state_is_one_error(tmp_path: Path, content: bytes) -> None:
    """A database that cannot be read, or has no tables yet, is reported with what to do."""
    (tmp_path / "node.db").write_bytes(content)
    with pytest.raises(HostError) as caught:
        read_status(tmp_path)
    assert caught.value.code == "STORE_UNUSABLE"


async def test_a_node_that_is_not_wholly_ready(store: Store) -> None:
    """What was given up and a missing permit are told while the node runs, and afterwards that it does not."""
    await store.write(append_event, "node.started", "", {"waived": ["seccomp"]})
    await store.write(append_event, "chain.ready", "", {"validator_permit": False})
    running = read_status(store.layout.root)
    assert running.ready
    assert [reason.name for reason in running.reasons] == ["no_permit", "layers_waived"]
    await store.close()
    stopped = read_status(store.layout.root)
    assert not stopped.ready
    assert stopped.reasons[0].name == "stopped"
