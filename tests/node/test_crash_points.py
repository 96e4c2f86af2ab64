"""Killed before or after any transaction, the node ends where an undisturbed one does."""

from __future__ import annotations

from pathlib import Path

import pytest

from node.store.crown_rows import all_crowns
from node.store.engine import Store
from node.store.events import verify_chain
from node.store.evidence_rows import lose_running_attempts
from node.store.job_rows import entries, recover_all
from node.store.layout import StateLayout
from tests.node.judging import FAST, SLOW, World
from tests.node.mortal_store import Killed, MortalStore
from tests.node.support import GENESIS, HOTKEY_B, submission

pytestmark = pytest.mark.crash

ONES = [submission(1), submission(2), submission(3, content="1", hotkey=HOTKEY_B), submission(4)]


async def live(folder: Path, monkeypatch: pytest.MonkeyPatch, *, dies_at: int, after_commit: bool) -> int:
    """Start on `folder`, work until done or killed; return how many transactions were made."""
    store = await MortalStore.open(StateLayout.at(folder))
    try:
        await store.bind(GENESIS, 2)
        world = World(store)
        world.gains = {ONES[1].content_hash: FAST / 2, ONES[3].content_hash: SLOW}
        world.install(monkeypatch)
        if not await store.read(entries):
            await world.queue(*ONES)
        store.count, store.dies_at, store.after_commit = 0, dies_at, after_commit
        await store.write(lose_running_attempts)
        await store.write(recover_all)
        await world.work()
    except Killed:
        pass
    finally:
        await store.close()
    return store.count


async def outcome(folder: Path) -> tuple[object, ...]:
    """Return what must not depend on interruptions."""
    store = await Store.open(StateLayout.at(folder))
    await store.read(verify_chain)
    jobs = [(entry.job.state, entry.job.code, entry.job.faults) for entry in await store.read(entries)]
    crowns = [(crown.submission_id, crown.ended_by) for crown in await store.read(all_crowns)]
    await store.close()
    return jobs, crowns


@pytest.mark.parametrize("after_commit", [False, True], ids=["before", "after"])
async def test_killed_at_any_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after_commit: bool
) -> None:
    """The end is the same, nothing is crowned twice, and an interruption costs no job part of its budget."""
    total = await live(tmp_path / "undisturbed", monkeypatch, dies_at=-1, after_commit=False)
    expected = await outcome(tmp_path / "undisturbed")
    assert total > 20
    for point in range(1 + after_commit, total, 3):
        folder = tmp_path / f"{point}"
        await live(folder, monkeypatch, dies_at=point, after_commit=after_commit)
        await live(folder, monkeypatch, dies_at=-1, after_commit=False)
        assert await outcome(folder) == expected, f"killed at transaction {point}"
