"""Killed before or after any transaction, the node ends where an undisturbed one does."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import Connection, select

from node.store.check_rows import checks
from node.store.crown_rows import all_crowns, all_settlement_events
from node.store.engine import Store
from node.store.events import verify_chain
from node.store.evidence_rows import lose_running_attempts
from node.store.job_rows import entries, recover_all
from node.store.layout import StateLayout
from node.store.receipt_rows import receipt_digests
from node.store.schema import receipts
from node.store.visit import look
from qualify.request import AttemptRequest, BundleRef
from scoring.attempt import Reservation
from tests.node.judging import FAST, SLOW, World
from tests.node.mortal_store import Killed, MortalStore
from tests.node.support import GENESIS, HOTKEY_B, submission

pytestmark = pytest.mark.crash

ONES = [submission(1), submission(2), submission(3, content="1", hotkey=HOTKEY_B), submission(4)]


NOBODY = BundleRef("", "", "")
LOSER, BETTER = submission(11), submission(12, hotkey=HOTKEY_B)


async def live(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, dies_at: int, after_commit: bool, broken: str = ""
) -> int:
    """Start on `folder`, work until done or killed; return how many transactions were made.

    `broken` is how the crowned bundle of `LOSER` fails from the day on which it is crowned.
    """
    store = await MortalStore.open(StateLayout.at(folder))
    try:
        await store.bind(GENESIS, 2)
        world = World(store)
        world.gains = {ONES[1].content_hash: FAST / 2, ONES[3].content_hash: SLOW}
        world.install(monkeypatch)
        if await store.read(entries):  # a later life: what the made-up referee numbers by goes on, as clocks do
            world.requests = [AttemptRequest("", "primary", "", "", NOBODY, Reservation(0, 0, ""))] * 100
        if broken:
            await _meet_a_broken_crown(world, broken)
        elif not await store.read(entries):
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


async def _meet_a_broken_crown(world: World, broken: str) -> None:
    """Have one crowned, if nobody is yet, and a challenger queued."""
    if not await world.store.read(entries):
        await world.queue(LOSER)
        await world.work()
        await world.queue(BETTER)
    world.gains = {BETTER.content_hash: FAST * 2}
    if broken == "slow":  # the challenger outpaces it, which is what has it checked
        world.gains[LOSER.content_hash] = SLOW
    else:
        world.broken = {LOSER.content_hash: broken}


def receipts_of(connection: Connection, kind: str) -> list[str]:
    """Return what the receipts of a kind are about, in the order in which they were signed."""
    found = select(receipts.c.subject).where(receipts.c.kind == kind).order_by(receipts.c.signed_ms)
    return list(connection.execute(found).scalars())


def strays_and_missing(folder: Path) -> tuple[set[str], set[str]]:
    """Return the receipts whose files have no row, and those whose rows have no file."""
    files = {path.stem for path in StateLayout.at(folder).receipts.iterdir()}
    rows = look(folder, lambda connection, _: receipt_digests(connection))
    return files - rows, set(rows - files)


async def outcome(folder: Path) -> tuple[object, ...]:
    """Return what must not depend on interruptions."""
    store = await Store.open(StateLayout.at(folder))
    await store.read(verify_chain)
    jobs = [(entry.job.state, entry.job.code, entry.job.faults) for entry in await store.read(entries)]
    crowns = [(crown.submission_id, crown.ended_by) for crown in await store.read(all_crowns)]
    events = [(event.type, event.submission_id) for event in await store.read(all_settlement_events)]
    asked = [(check.state, check.occasion, check.code) for check in await store.read(checks)]
    signed = [await store.read(receipts_of, kind) for kind in ("crown.v1", "revocation.v1")]
    await store.close()
    return jobs, crowns, events, asked, signed


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
        assert strays_and_missing(folder)[0] == set(), f"killed at transaction {point}"
        await live(folder, monkeypatch, dies_at=-1, after_commit=False)
        assert await outcome(folder) == expected, f"killed at transaction {point}"
        assert strays_and_missing(folder) == (set(), set()), f"killed at transaction {point}"


@pytest.mark.parametrize("broken", ["raised", "slow"])
@pytest.mark.parametrize("after_commit", [False, True], ids=["before", "after"])
async def test_killed_while_a_crown_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after_commit: bool, broken: str
) -> None:
    """A crown is revoked once, by two checks that count, and its challenger crowned, wherever it was interrupted."""
    total = await live(tmp_path / "undisturbed", monkeypatch, dies_at=-1, after_commit=False, broken=broken)
    expected = await outcome(tmp_path / "undisturbed")
    assert [event for event in expected[2] if event[0] != "STALE_INCUMBENT"] == [  # type: ignore[attr-defined]
        ("CROWN", LOSER.submission_id), ("REVOKE", LOSER.submission_id), ("CROWN", BETTER.submission_id)
    ]
    assert total > 20
    for point in range(1 + after_commit, total, 7):
        folder = tmp_path / f"{point}"
        await live(folder, monkeypatch, dies_at=point, after_commit=after_commit, broken=broken)
        assert strays_and_missing(folder)[0] == set(), f"killed at transaction {point}"
        await live(folder, monkeypatch, dies_at=-1, after_commit=False, broken=broken)
        assert await outcome(folder) == expected, f"killed at transaction {point}"
        assert strays_and_missing(folder) == (set(), set()), f"killed at transaction {point}"
