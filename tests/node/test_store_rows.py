"""Submissions, jobs, evidence and crowns in the store."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from sqlalchemy import Connection, select

from config.errors import HostError, InternalError
from node.jobs import JobState, RetryBudget, StaleTokenError, park, transition
from node.store.crown_rows import all_crowns, crown_state, record_settlement
from node.store.engine import Store
from node.store.events import now_ms, verify_chain
from node.store.evidence_rows import (
    AttemptRow,
    failed_before,
    finish_attempt,
    lose_running_attempts,
    seal_attempt,
    start_attempt,
)
from node.store.job_rows import claim, due, entries, load_job, recover_all, save, unpark_all
from node.store.schema import events
from node.store.submission_rows import earlier_twin, read_cursor, record_scan
from scoring.settle import Candidate, CrownState, FinalizedOrder, plan
from tests.node.support import HOTKEY_A, HOTKEY_B, cursor, record, submission

BUDGET = RetryBudget(3, 1000, 60_000)


async def test_scan_is_one_transaction(store: Store) -> None:
    """Cursor, submissions, jobs and events of a scan appear together, in chain order whatever order they came in."""
    await store.write(record_scan, None, cursor(9), [submission(2), submission(1), submission(3, reason="PAYLOAD_X")])
    assert await store.read(read_cursor) == cursor(9)
    found = await store.read(entries)
    assert [(entry.submission.block, entry.job.state.value, entry.job.code) for entry in found] == [
        (11, "reserved", ""),
        (12, "reserved", ""),
        (13, "failed", "PAYLOAD_X"),
    ]
    assert found[2].job.blame == "miner"
    await store.read(verify_chain)


@pytest.mark.parametrize(
    "changes",
    [{"payment_block": 2**63}, {"url": "\ud800"}, {"registered_block": 2**70, "content_hash": "\udc00"},
     {"hotkey": "\ud800", "payload_hex": "\ud800"}],
    ids=["number", "surrogate", "both", "hotkey"],
)
async def test_no_reveal_holds_the_cursor(store: Store, changes: dict[str, object]) -> None:
    """A reveal that cannot be stored becomes a failed one with a code; its neighbours and the cursor do not care."""
    odd = msgspec.structs.replace(submission(2), **changes)
    await store.write(record_scan, None, cursor(9), [submission(1), odd, submission(3)])
    assert await store.read(read_cursor) == cursor(9)
    jobs = [entry.job for entry in await store.read(entries)]
    assert [(job.submission_id, job.state.value, job.code, job.blame) for job in jobs] == [
        (submission(1).submission_id, "reserved", "", ""),
        (odd.submission_id, "failed", "REVEAL_UNSTORABLE", "miner"),
        (submission(3).submission_id, "reserved", "", ""),
    ]
    await store.read(verify_chain)


@pytest.mark.parametrize("change", ["state = 'bogus'", "faults = 'many'"])
async def test_rows_that_no_release_wrote_are_the_disks_fault(store: Store, change: str) -> None:
    """A damaged or altered row is one error that names its submission."""
    await record(store, submission(1))
    await store.write(lambda connection: connection.exec_driver_sql(f"UPDATE jobs SET {change}"))
    with pytest.raises(HostError) as caught:
        await store.read(entries)
    assert caught.value.code == "STORE_UNUSABLE"
    assert submission(1).submission_id in caught.value.message


async def test_repeated_scan_changes_nothing(store: Store) -> None:
    """Seeing a reveal again neither doubles it nor resets its job."""
    await store.write(record_scan, None, cursor(1), [submission(1)])
    await store.write(claim, JobState.RESERVED, JobState.FETCHING, BUDGET, 1)
    assert await store.write(record_scan, cursor(1), cursor(2), [submission(1)]) == []
    assert [entry.job.state for entry in await store.read(entries)] == [JobState.FETCHING]


@pytest.mark.parametrize("before", [None, cursor(4), cursor(7)])
async def test_cursor_cannot_go_back(store: Store, before: object) -> None:
    """A scan that began anywhere but at the stored cursor is refused, and so is a step back."""
    await store.write(record_scan, None, cursor(5), [])
    with pytest.raises(InternalError) as caught:
        await store.write(record_scan, before, cursor(6), [submission(1)])
    assert caught.value.code == "CURSOR_REGRESSION"
    with pytest.raises(InternalError):
        await store.write(record_scan, cursor(5), cursor(3), [])
    with pytest.raises(InternalError):
        await store.write(record_scan, cursor(5), msgspec.structs.replace(cursor(5), block_hash="0x" + "ee" * 32), [])
    assert await store.write(record_scan, cursor(5), cursor(5), []) == []
    assert await store.read(read_cursor) == cursor(5)
    assert await store.read(entries) == []


async def test_an_unusable_reveal_is_blamed_on_whom_its_code_names(store: Store) -> None:
    """A payload that breaks a rule is the miner's fault; a reveal that the chain lost is the chain's."""
    rows = [submission(1, reason="PAYLOAD_VERSION"), submission(2, reason="REVEAL_NOT_STORED")]
    await store.write(record_scan, None, cursor(9), rows)
    assert [entry.job.blame for entry in await store.read(entries)] == ["miner", "chain"]


async def test_save_refuses_a_stale_job(store: Store) -> None:
    """Of two steps that read the same job, the second to write is refused and leaves no event."""
    await record(store, submission(1))
    job = await store.read(load_job, submission(1).submission_id)
    await store.write(save, job, transition(job, JobState.FETCHING, job.token))
    before = await store.read(_count)
    with pytest.raises(StaleTokenError):
        await store.write(save, job, transition(job, JobState.EXPIRED, job.token))
    assert await store.read(_count) == before


async def test_claims_are_in_chain_order_and_bounded(store: Store) -> None:
    """Claiming takes the earliest due jobs first, never more than asked, and skips those that must wait."""
    await record(store, *(submission(number) for number in (4, 2, 3, 1)))
    job = await store.read(load_job, submission(1).submission_id)
    fetching = await store.write(save, job, transition(job, JobState.FETCHING, job.token))
    await store.write(
        save, fetching, transition(fetching, JobState.RESERVED, fetching.token, not_before_ms=await _in_a_moment(store))
    )
    taken = await store.write(claim, JobState.RESERVED, JobState.FETCHING, BUDGET, 2)
    assert [entry.submission.block for entry in taken] == [12, 13]
    assert all(entry.job.token == 1 for entry in taken)


@pytest.mark.parametrize(("delay_ms", "ready"), [(-1000, True), (30_000, False), (6_000_000, True)])
async def test_delay_is_bounded_by_the_clock(store: Store, delay_ms: int, ready: bool) -> None:
    """A job waits for its delay, but never because the clock jumped back."""
    await record(store, submission(1))
    job = await store.read(load_job, submission(1).submission_id)
    fetching = await store.write(save, job, transition(job, JobState.FETCHING, job.token))
    late = transition(fetching, JobState.RESERVED, fetching.token, not_before_ms=now_ms() + delay_ms)
    await store.write(save, fetching, late)
    assert len(await store.read(due, JobState.RESERVED, BUDGET, 9)) == int(ready)


async def test_restart_recovers_and_unparks(store: Store) -> None:
    """After a restart interrupted jobs wait again and parked ones return when the worker build changed."""
    await record(store, submission(1), submission(2))
    first, second = await store.write(claim, JobState.RESERVED, JobState.FETCHING, BUDGET, 2)
    await store.write(
        save,
        second.job,
        park(second.job, second.job.token, worker="old", now_ms=now_ms(), code="X", detail=""),
    )
    assert [job.state for job in await store.write(recover_all)] == [JobState.RESERVED]
    assert await store.write(unpark_all, "old") == []
    assert [job.state for job in await store.write(unpark_all, "new")] == [JobState.RESERVED]
    with pytest.raises(StaleTokenError):
        await store.write(save, first.job, transition(first.job, JobState.READY, first.job.token))


async def test_earlier_twin_follows_chain_order(store: Store) -> None:
    """Only an earlier, screened reveal of another hotkey with the same content is a twin; the earliest one is named."""
    ones = [
        submission(1, content="x"),
        submission(2, hotkey=HOTKEY_B, content="x"),
        submission(3, hotkey=HOTKEY_B, content="x"),
        submission(4, content="x"),
        submission(5, content="y"),
    ]
    await record(store, *ones)
    assert [await store.read(earlier_twin, one, "") for one in ones] == [None] * 5  # no bytes, no claim
    for one in ones:
        job = await store.read(load_job, one.submission_id)
        mark = "f" * 64 if one.block < 15 else "e" * 64
        await store.write(save, job, transition(job, JobState.FETCHING, job.token, fingerprint=mark))
    twins = [await store.read(earlier_twin, one, "") for one in ones]
    assert [twin and twin.block for twin in twins] == [None, 11, 11, 12, None]


async def test_earlier_twin_by_fingerprint(store: Store) -> None:
    """The same fingerprint counts like the same bytes, once both are known."""
    early, late = submission(1), submission(2, hotkey=HOTKEY_B)
    await record(store, early, late)
    assert await store.read(earlier_twin, late, "f" * 64) is None
    job = await store.read(load_job, early.submission_id)
    await store.write(save, job, transition(job, JobState.FETCHING, job.token, fingerprint="f" * 64))
    assert await store.read(earlier_twin, late, "f" * 64) == early
    assert await store.read(earlier_twin, late, "e" * 64) is None


def attempt(number: int, **fields: object) -> AttemptRow:
    """Return a running attempt of submission `number`."""
    one = submission(number)
    return AttemptRow(
        **{
            "attempt_id": f"a{number}",
            "submission_id": one.submission_id,
            "role": "primary",
            "state": "running",
            "content_hash": one.content_hash,
            "target_id": "t",
            "arena_digest": "arena",
            "incumbent": "",
            **fields,
        }
    )  # type: ignore[arg-type]


async def test_attempts_are_sealed_and_graded_once(store: Store) -> None:
    """An attempt takes one commitment and one verdict; restarts turn running ones into lost ones."""
    await record(store, submission(1), submission(2))
    await store.write(start_attempt, attempt(1))
    await store.write(seal_attempt, "a1", "c" * 64)
    with pytest.raises(InternalError):
        await store.write(seal_attempt, "a1", "d" * 64)
    await store.write(finish_attempt, msgspec.structs.replace(attempt(1), state="graded", outcome="PASS"))
    with pytest.raises(InternalError):
        await store.write(finish_attempt, msgspec.structs.replace(attempt(1), state="graded", outcome="FAIL"))
    await store.write(start_attempt, attempt(2))
    assert await store.write(lose_running_attempts) == 1
    assert await store.write(lose_running_attempts) == 0


@pytest.mark.parametrize(
    ("outcome", "changes", "found"),
    [
        ("FAIL", {}, True),
        ("PASS", {}, False),
        ("RETRY", {}, False),
        ("FAIL", {"hotkey": HOTKEY_B}, False),
        ("FAIL", {"arena_digest": "other"}, False),
        ("FAIL", {"incumbent": "x"}, True),
        ("FAIL", {"incumbent": "x", "relative": ("WRONG_OUTPUT",)}, False),
        ("FAIL", {"relative": ("WRONG_OUTPUT",)}, True),
        ("FAIL", {"content_hash": "x"}, False),
    ],
)
async def test_only_the_same_fail_is_replayed(store: Store, outcome: str, changes: dict[str, str], found: bool) -> None:
    """A FAIL is found again only for the same hotkey, bytes and arena, one by comparison for the same incumbent too; a
    PASS never."""
    one = submission(1)
    await record(store, one)
    await store.write(start_attempt, attempt(1))
    graded = msgspec.structs.replace(attempt(1), state="graded", outcome=outcome, code="WRONG_OUTPUT")
    await store.write(finish_attempt, graded)
    asked: dict[str, Any] = {
        "hotkey": HOTKEY_A, "content_hash": one.content_hash, "arena_digest": "arena", "incumbent": "", "relative": (),
        "timed": (),
    }
    asked |= changes
    assert (await store.read(failed_before, **asked) is not None) == found


def candidate(number: int, against: tuple[str, ...] = ()) -> Candidate:
    """Return a finished candidate for the target "t"."""
    one = submission(number)
    return Candidate(
        submission_id=one.submission_id,
        order=FinalizedOrder(*one.order),
        target_id="t",
        members=("t",),
        tree_digest="tree",
        speedup_ppm=1_100_000,
        measured_against=against,
    )


async def test_new_crown_supersedes(store: Store) -> None:
    """A crown ends the one before it, and replaying the stored events gives the same state."""
    await record(store, submission(1), submission(2))
    first = plan(CrownState(), [candidate(1)])
    await store.write(record_settlement, first.events, {submission(1).submission_id: "r1"})
    second = plan(first.state, [candidate(2, (submission(1).submission_id,))])
    assert await store.write(record_settlement, second.events, {}) == second.state
    assert await store.read(crown_state) == second.state
    crowns = await store.read(all_crowns)
    assert [(crown.receipt_digest, crown.ended_by) for crown in crowns] == [
        ("r1", submission(2).submission_id),
        ("", ""),
    ]


async def test_settlement_is_not_repeated(store: Store) -> None:
    """Writing the same settlement a second time is refused and changes nothing."""
    await record(store, submission(1))
    first = plan(CrownState(), [candidate(1)])
    await store.write(record_settlement, first.events, {})
    with pytest.raises(InternalError) as caught:
        await store.write(record_settlement, first.events, {})
    assert caught.value.code == "EVENT_CHAIN_BROKEN"
    assert len(await store.read(all_crowns)) == 1


def _count(connection: Connection) -> int:
    return len(connection.execute(select(events.c.sequence)).all())


async def _in_a_moment(store: Store) -> int:
    return now_ms() + 30_000
