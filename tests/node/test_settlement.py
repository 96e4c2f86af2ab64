"""Settlement: who holds whom back, who is crowned, and what is written together."""

from __future__ import annotations

import dataclasses

import pytest

from node.jobs import JobState, release, transition
from node.services.qualification import QualificationService
from node.services.settlement import SettlementService, commit, prepare
from node.store.crown_rows import all_crowns
from node.store.events import append_event, verify_chain
from node.store.job_rows import load_job, save
from node.store.queries import attempts_by_submission
from tests.node.judging import FAST, SLOW, World
from tests.node.support import HOTKEY_B, record, submission


async def passed_twice(world: World, number: int, **changes: str) -> None:
    """Bring the `number`-th submission to two passes."""
    await world.queue(submission(number, **changes))
    await world.measure()
    await world.measure()


async def test_earlier_unknown_target_holds_back(judging: World) -> None:
    """A later candidate waits while an earlier submission may still turn out to overlap, and no longer."""
    early = submission(1)
    await record(judging.store, early)
    await passed_twice(judging, 2)
    assert not await judging.settlement.settle_once()
    assert await judging.states() == ["reserved", "passed_twice"]
    job = await judging.job(early)
    await judging.move(job, JobState.FAILED, code="BUNDLE_UNAVAILABLE")
    assert await judging.settlement.settle_once()
    assert await judging.states() == ["failed:BUNDLE_UNAVAILABLE", "settled"]


async def test_later_submissions_hold_back_nobody(judging: World) -> None:
    """What was revealed after a candidate does not delay its crown."""
    await passed_twice(judging, 1)
    await record(judging.store, submission(2))
    await judging.settlement.settle_once()
    assert await judging.states() == ["settled", "reserved"]


@pytest.mark.parametrize(
    ("state", "target", "held"),
    [
        (JobState.QUEUED, "norm.rmsnorm", True),
        (JobState.QUEUED, "activation.silu_and_mul", False),
        (JobState.PARKED, "norm.rmsnorm", False),
    ],
)
async def test_only_overlap_on_its_way_holds_back(judging: World, state: JobState, target: str, held: bool) -> None:
    """An earlier submission of the same target holds back; of another target, or parked, it does not."""
    await passed_twice(judging, 2)
    early = submission(1)
    await judging.queue(early, target=target)
    if state is JobState.PARKED:
        await judging.move(await judging.job(early), JobState.PARKED)
    await judging.settlement.settle_once()
    assert ("settled" in await judging.states()) != held


async def test_copy_found_late_is_not_crowned(judging: World) -> None:
    """An earlier twin that was fetched after the candidate had passed still takes the content."""
    late = submission(2, hotkey=HOTKEY_B)
    await judging.queue(late)
    await judging.measure()
    await judging.measure()
    early = submission(1)
    await record(judging.store, early)
    job = await judging.job(early)
    copied = (await judging.job(late)).fingerprint
    await judging.move(job, JobState.FETCHING, fingerprint=copied)
    await judging.settlement.settle_once()
    assert (await judging.states())[1] == "failed:COPY_OF_EARLIER"
    assert (await judging.job(late)).earlier_id == early.submission_id
    assert await judging.store.read(all_crowns) == []


async def test_fastest_of_the_ready_wins(judging: World) -> None:
    """Of two finished candidates the faster is crowned; the other is measured against it."""
    slow, fast = submission(1), submission(2)
    judging.gains[slow.content_hash] = FAST / 2
    await judging.queue(slow, fast)
    for _ in range(4):
        await judging.measure()
    assert await judging.states() == ["passed_twice", "passed_twice"]
    await judging.settlement.settle_once()
    assert await judging.states() == ["queued", "settled"]
    crowns = await judging.store.read(all_crowns)
    assert [crown.submission_id for crown in crowns] == [fast.submission_id]


async def test_plan_that_aged_is_not_written(judging: World) -> None:
    """If the store moved on between planning and writing, nothing of the old plan is written."""
    await passed_twice(judging, 1)
    settling = await judging.store.read(prepare, judging.context.catalog)
    assert settling is not None
    await judging.queue(submission(0))  # an earlier reveal of the same target appears
    receipts = {submission(1).submission_id: "00" * 32}
    assert not await judging.store.write(commit, judging.context.catalog, settling, receipts)
    assert await judging.store.read(all_crowns) == []


async def test_crash_before_the_commit_changes_nothing(judging: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events, crown, receipt row and job move appear together or not at all, and the next pass finishes."""
    await passed_twice(judging, 1)

    def die(*_: object) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr("node.services.settlement.append_event", die)
        with pytest.raises(RuntimeError):
            await judging.settlement.settle_once()
    assert await judging.states() == ["passed_twice"]
    assert await judging.store.read(all_crowns) == []
    again = SettlementService(judging.context, judging.receipts)
    assert await again.settle_once()
    assert await judging.states() == ["settled"]
    await judging.store.read(verify_chain)


async def test_unregistered_target_blocks_nobody(judging: World) -> None:
    """A finished candidate whose target left the catalog is parked, and the others are settled."""
    await passed_twice(judging, 1)
    await passed_twice(judging, 2)
    job = await judging.store.read(load_job, submission(1).submission_id)
    moved = transition(job, JobState.QUEUED, job.token, target_id="gone")
    job = await judging.store.write(save, job, moved)
    for state in (JobState.MEASURING, JobState.PASSED_TWICE):
        job = await judging.move(job, state)
    await judging.store.write(append_event, "test", "")
    await judging.settlement.settle_once()
    assert await judging.states() == ["parked:TARGET_NOT_SERVED", "settled"]


async def test_a_submission_that_rested_holds_back_nobody_again(judging: World) -> None:
    """Earlier submissions that rest and return by turns cannot keep one always in front of a candidate."""
    await passed_twice(judging, 2)
    early = submission(1)
    await judging.queue(early)
    assert not await judging.settlement.settle_once()
    parked = await judging.move(await judging.job(early), JobState.PARKED, rests=1, parked_from="queued")
    await judging.store.write(save, parked, release(parked))
    assert await judging.settlement.settle_once()
    assert await judging.states() == ["queued", "settled"]


async def test_both_passes_are_by_one_build(judging: World) -> None:
    """A first pass that another build made is made anew, for free."""
    one, slow = submission(1), submission(2, hotkey=HOTKEY_B)
    judging.gains[slow.content_hash] = SLOW
    await judging.queue(one, slow)
    await judging.measure()
    newer = dataclasses.replace(judging.context, worker="newer build")
    judging.context = newer
    judging.qualification = QualificationService(newer, judging.receipts)
    judging.settlement = SettlementService(newer, judging.receipts)
    await judging.work()
    assert await judging.states() == ["settled", "failed:NOT_FASTER"]
    roles = [(row.role, row.worker) for row in (await judging.store.read(attempts_by_submission))[one.submission_id]]
    assert roles == [("primary", "worker"), ("primary", "newer build"), ("reproduction", "newer build")]
