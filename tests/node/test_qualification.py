"""From the queue to a verdict: which attempt is next, what its verdict does, and what our own faults cost."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from sqlalchemy import delete

from config.arena import Workload
from config.canonical import sha256_hex
from config.errors import HostError, NotFoundError
from config.settings import QualifySettings
from intake.public_code import public_code
from node.jobs import JobState
from node.services import qualification
from node.services.attempt_choice import choose
from node.services.attempt_process import AttemptFaultError, Evidence
from node.store.crown_rows import all_crowns, crown_state, record_settlement
from node.store.events import verify_chain
from node.store.evidence_rows import BundleRow, record_bundle
from node.store.job_rows import recover_all, unpark_all
from node.store.queries import attempts_by_submission
from node.store.schema import bundles
from scoring.attempt import Incident
from scoring.dsse import verify
from scoring.receipts import CrownPredicate, VerdictPredicate, read_predicate
from scoring.settle import Candidate, FinalizedOrder, incumbents, plan
from tests.node.judging import FAST, SLOW, World
from tests.node.support import HOTKEY_B, submission
from tests.scoring.support import TARGET, make_arena


async def test_a_fast_candidate_is_crowned_after_two_attempts(judging: World) -> None:
    """Two passes, the second a reproduction that names the first, make a crown with the smaller lower bound."""
    one = submission(1)
    await judging.queue(one)
    await judging.work()
    assert await judging.states() == ["settled"]
    first, second = judging.requests
    attempts = (await judging.store.read(attempts_by_submission))[one.submission_id]
    assert [attempt.role for attempt in attempts] == ["primary", "reproduction"]
    assert (first.previous_attempt, second.previous_attempt) == ("", attempts[0].digest)
    assert first.attempt_id != second.attempt_id
    await judging.store.read(verify_chain)


async def test_receipts_form_a_chain(judging: World) -> None:
    """The crown's receipt names the two verdict receipts, and each of those its attempt file; all verify."""
    await judging.queue(submission(1))
    await judging.work()
    attempts = (await judging.store.read(attempts_by_submission))[submission(1).submission_id]

    def read(digest: str, kind: Any) -> Any:
        envelope = judging.receipts.path(digest).read_bytes()
        assert sha256_hex(envelope) == digest
        return read_predicate(verify(envelope, [judging.receipts.public_key]), kind)

    (crown,) = await judging.store.read(all_crowns)
    predicate = read(crown.receipt_digest, CrownPredicate)
    assert predicate.verdict_receipts == tuple(attempt.receipt_digest for attempt in attempts)
    assert [read(digest, VerdictPredicate).attempt_digest for digest in predicate.verdict_receipts] == [
        attempt.digest for attempt in attempts
    ]
    assert crown.speedup_ppm == min(attempt.lower_ppm for attempt in attempts)


async def test_a_slow_candidate_fails_for_good(judging: World) -> None:
    """A candidate that is not faster fails after one attempt, by the miner's doing."""
    one = submission(1)
    judging.gains[one.content_hash] = SLOW
    await judging.queue(one)
    await judging.work()
    job = await judging.job(one)
    assert (job.state, job.code, job.blame, len(judging.requests)) == (JobState.FAILED, "NOT_FASTER", "miner", 1)


async def test_reproductions_come_first_then_chain_order(judging: World) -> None:
    """A waiting reproduction goes before every primary, and primaries go in finalized order."""
    ones = [submission(number) for number in (1, 2, 3)]
    for one in ones[1:]:
        judging.gains[one.content_hash] = SLOW
    await judging.queue(*reversed(ones))
    for _ in range(4):
        await judging.measure()
    assert [(r.reservation.block, r.role) for r in judging.requests] == [
        (11, "primary"),
        (11, "reproduction"),
        (12, "primary"),
        (13, "primary"),
    ]


async def test_our_faults_are_retried_then_parked(judging: World) -> None:
    """Faults of ours repeat the attempt within the budget; then the job is parked and comes back with a new build."""
    one = submission(1)
    await judging.queue(one)
    judging.faults = [AttemptFaultError("ATTEMPT_PROCESS_FAILED", "boom") for _ in range(4)]
    for _ in range(4):
        assert await judging.measure()
    job = await judging.job(one)
    assert (job.state, job.code, job.blame) == (JobState.PARKED, "ATTEMPT_PROCESS_FAILED", "internal")
    assert not await judging.measure()
    assert await judging.store.write(unpark_all, "worker") == []
    await judging.store.write(unpark_all, "another build")
    await judging.work()
    assert await judging.states() == ["settled"]


async def test_a_fault_costs_no_other_job_its_turn(judging: World) -> None:
    """A job that keeps failing through our fault waits while the next one is measured."""
    settings = msgspec.structs.replace(judging.context.settings, qualify=QualifySettings(retry_base_seconds=60.0))
    object.__setattr__(judging.context, "settings", settings)
    await judging.queue(submission(1), submission(2))
    judging.faults = [RuntimeError("unforeseen")]
    await judging.work()
    assert await judging.states() == ["queued:UNEXPECTED", "passed_twice"]


async def test_a_retry_verdict_is_no_verdict_on_the_bundle(judging: World) -> None:
    """An attempt graded RETRY spends the fault budget and leaves the job where it was."""
    one = submission(1)
    await judging.queue(one)
    judging.changes = {
        "incidents": (Incident("start", -1, "referee", "machine", "too busy"),),
        "ending": "incident",
        "launches": (),
    }
    await judging.measure()
    job = await judging.job(one)
    assert (job.state, job.faults, job.code) == (JobState.QUEUED, 1, "MACHINE_UNFIT")
    judging.changes = {}
    await judging.work()
    assert await judging.states() == ["settled"]


async def test_a_fault_in_the_reproduction_keeps_the_first_pass(judging: World) -> None:
    """A reproduction lost to our fault is repeated as a reproduction; the primary is not."""
    await judging.queue(submission(1))
    await judging.measure()
    judging.faults = [HostError("SANDBOX_LAYER_MISSING", "no layer")]
    await judging.measure()
    assert (await judging.job(submission(1))).state is JobState.PASSED_ONCE
    await judging.work()
    assert [request.role for request in judging.requests] == ["primary", "reproduction", "reproduction"]
    assert await judging.states() == ["settled"]


async def test_identical_bytes_that_failed_are_not_measured_again(judging: World) -> None:
    """The same bytes of the same hotkey get the same FAIL without a run; the verdict says so."""
    first, again = submission(1, content="x"), submission(2, content="x")
    judging.gains[first.content_hash] = SLOW
    await judging.queue(first, again)
    await judging.work()
    assert await judging.states() == ["failed:NOT_FASTER", "failed:NOT_FASTER"]
    assert len(judging.requests) == 1
    job = await judging.job(again)
    assert first.submission_id in job.detail
    attempts = (await judging.store.read(attempts_by_submission))[again.submission_id]
    assert [attempt.replay_of for attempt in attempts] == [judging.requests[0].attempt_id]


async def test_implausible_speedup_is_reviewed_not_repeated(judging: World) -> None:
    """A gain that the arena does not believe parks the job after one attempt; only another arena or build frees it."""
    one = submission(1)
    judging.gains[one.content_hash] = 5.0
    await judging.queue(one)
    await judging.work()
    job = await judging.job(one)
    assert (job.state, job.code, job.blame, job.faults) == (JobState.PARKED, "IMPLAUSIBLE_SPEEDUP", "operator", 0)
    assert len(judging.requests) == 1
    assert not await judging.store.read(all_crowns)
    assert await judging.store.write(unpark_all, "worker") == []
    (back,) = await judging.store.write(unpark_all, "another build")
    assert back.state is JobState.QUEUED


async def test_lost_bundle_is_fetched_again(judging: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A candidate whose published files vanished goes back to be fetched, within the budget for faults of ours."""

    def lost(*_: Any) -> None:
        raise NotFoundError("BUNDLE_NOT_PUBLISHED", "gone")

    await judging.queue(submission(1))
    await judging.measure()
    monkeypatch.setattr(qualification, "open_published", lost)
    await judging.measure()
    job = await judging.job(submission(1))
    assert (job.state, job.code, job.faults, job.primary_attempt) == (JobState.RESERVED, "BUNDLE_NOT_PUBLISHED", 1, "")


async def test_lost_first_attempt_is_measured_again(judging: World) -> None:
    """Without its first attempt's file a reproduction proves nothing: the candidate is measured anew, twice."""
    await judging.queue(submission(1))
    await judging.measure()
    (first,) = (await judging.store.read(attempts_by_submission))[submission(1).submission_id]
    (judging.context.layout.root / first.path).unlink()
    await judging.measure()
    job = await judging.job(submission(1))
    assert (job.state, job.code, job.faults, job.primary_attempt) == (JobState.QUEUED, "ATTEMPT_UNREADABLE", 1, "")
    await judging.work()
    assert await judging.states() == ["settled"]
    assert [request.role for request in judging.requests] == ["primary", "primary", "reproduction"]


async def test_unknown_incumbent_is_never_taken_for_stock(judging: World) -> None:
    """A crown whose bundle the store does not know parks its challengers instead of letting them beat stock again."""
    await judging.queue(submission(1))
    await judging.work()
    await judging.store.write(lambda connection: connection.execute(delete(bundles)))
    await judging.queue(submission(2))
    assert not await judging.measure()
    assert await judging.states() == ["settled", "parked:INCUMBENT_BUNDLE_LOST"]


async def test_added_variants_do_not_hide_a_copy(judging: World) -> None:
    """A later bundle with every implementation of a crowned one is its copy; with those of an uncrowned one it is not.
    """
    weak, crowned, padded, related = submission(1), submission(2), submission(3), submission(4)
    ones = [msgspec.structs.replace(one, hotkey=f"5{name}") for one, name in zip(
        (weak, crowned, padded, related), "wcpr", strict=True
    )]
    judging.gains = {weak.content_hash: SLOW, padded.content_hash: 2 * FAST, related.content_hash: 2 * FAST}
    await judging.queue(*ones)
    held = ("fallback", "fallback kernel", "extra fallback kernel", "extra fallback")
    for one, pieces in zip(ones, held, strict=True):
        await judging.store.write(record_bundle, BundleRow(one.content_hash, "b", TARGET, "", pieces))
    await judging.work()
    assert await judging.states() == ["failed:NOT_FASTER", "settled", "failed:COPY_OF_EARLIER", "settled"]
    job = await judging.job(padded)
    assert job.earlier_id == crowned.submission_id
    assert "every implementation" in job.detail


async def test_less_than_a_crowned_bundle_is_a_copy_too(judging: World) -> None:
    """A bundle with nothing but implementations of an earlier crowned one is its copy; public ones make none, and
    fingerprints of another version say nothing."""
    names = ("crowned", "less", "public", "older")
    ones = [msgspec.structs.replace(submission(n + 1), hotkey=f"5{name}") for n, name in enumerate(names)]
    public = min(public_code().pieces)
    judging.gains = {one.content_hash: 2 * FAST for one in ones[1:]}
    await judging.queue(*ones)
    held = (f"a b {public}", "a", public, "a")
    for one, pieces, version in zip(ones, held, (2, 2, 2, 1), strict=True):
        await judging.store.write(record_bundle, BundleRow(one.content_hash, "b", TARGET, "", pieces, version))
    await judging.work()
    assert await judging.states() == ["settled", "failed:COPY_OF_EARLIER", "settled", "settled"]
    assert "no implementation that is not in" in (await judging.job(ones[1])).detail


async def test_crowned_work_put_together_is_a_copy(judging: World) -> None:
    """A bundle for another target that holds nothing but other people's crowned work is a copy; public pieces beside it
    hide nothing, and one piece of one's own makes it a work."""
    ones = [
        msgspec.structs.replace(submission(n + 1), hotkey=f"5{name}") for n, name in enumerate(("a", "b", "c", "d"))
    ]
    public = min(public_code().pieces)
    judging.gains = {one.content_hash: (2 + n) * FAST for n, one in enumerate(ones)}
    await judging.queue(*ones)
    targets = ("norm.other", TARGET, TARGET, TARGET)
    for one, pieces, target in zip(ones, ("a x", "b y", f"a b {public}", "a b own"), targets, strict=True):
        await judging.store.write(record_bundle, BundleRow(one.content_hash, "b", target, "", pieces))
    await judging.work()
    assert await judging.states() == ["settled", "settled", "failed:COPY_OF_EARLIER", "settled"]
    job = await judging.job(ones[2])
    assert job.earlier_id == ones[0].submission_id
    assert "crowned bundles of others" in job.detail


async def test_copies_are_never_measured(judging: World) -> None:
    """A queued copy of another hotkey's earlier submission fails, naming it, without a run."""
    early, late = submission(1, content="x"), submission(2, hotkey=HOTKEY_B, content="x")
    await judging.queue(early, late)
    await judging.work()
    assert await judging.states() == ["settled", "failed:COPY_OF_EARLIER"]
    job = await judging.job(late)
    assert job.earlier_id == early.submission_id
    assert early.submission_id in job.detail
    assert len(judging.requests) == 2


async def test_a_target_outside_the_arena_parks(judging: World) -> None:
    """A target without a workload is no fault of the miner: its job is parked."""
    await judging.queue(submission(1), target="activation.silu_and_mul")
    assert not await judging.measure()
    assert await judging.states() == ["parked:TARGET_NOT_SERVED"]


async def test_the_second_of_two_candidates_is_measured_against_the_first(judging: World) -> None:
    """When a crown is awarded, a candidate measured against the former incumbent is measured again, for free."""
    first, second = submission(1), submission(2)
    await judging.queue(first, second)
    judging.gains[second.content_hash] = FAST / 2
    await judging.work()
    assert await judging.states() == ["settled", "settled"]
    assert [r.incumbent and r.incumbent.content_hash for r in judging.requests] == [
        None,
        None,
        first.content_hash,
        first.content_hash,
    ]


async def test_a_pass_against_a_former_incumbent_goes_back_to_the_queue(judging: World) -> None:
    """A first pass does not survive a change of the incumbent: both attempts are made against the new one."""
    first, second = submission(1), submission(2)
    await judging.queue(first, second)
    judging.gains[second.content_hash] = FAST / 2
    await judging.measure()
    await judging.measure()
    chosen = await judging.store.write(choose, judging.context.terms)
    assert chosen is not None
    await judging.qualification.measure(chosen)  # the second passes once, still against stock
    await judging.settlement.settle_once()
    job = await judging.job(second)
    assert job.state is JobState.PASSED_ONCE
    await judging.work()
    assert await judging.states() == ["settled", "settled"]
    assert [r.role for r in judging.requests] == [
        "primary",
        "reproduction",
        "primary",
        "primary",
        "reproduction",
    ]
    assert (await judging.job(second)).faults == 0


async def _crown(world: World, number: int, target: str, members: tuple[str, ...]) -> str:
    """Crown the `number`-th submission for a target of which nothing is measured here; return its content hash."""
    one = submission(number)
    await world.queue(one, target=target)
    await world.move(await world.job(one), JobState.PARKED)
    state = await world.store.read(crown_state)
    order = FinalizedOrder(*one.order)
    winner = Candidate(one.submission_id, order, target, members, "", 1_100_000, incumbents(state, members))
    await world.store.write(record_settlement, plan(state, [winner]).events, {one.submission_id: "00" * 32})
    return one.content_hash


async def test_attempts_get_the_crowned_bundles_of_their_own_scope(judging: World) -> None:
    """The stack of a request names the holder of its target, and none of targets that it has nothing to do with."""
    await _crown(judging, 7, "activation.silu_and_mul", ("activation.silu_and_mul",))
    await _crown(judging, 9, "no.longer.registered", ("no.longer.registered",))
    await judging.queue(submission(1))
    await judging.measure()
    mine = await _crown(judging, 8, TARGET, (TARGET,))
    await judging.queue(submission(2))
    await judging.measure()
    first, second = judging.requests
    assert (first.stack, first.incumbent) == ((), None)
    assert [(one.target_id, one.bundle.content_hash) for one in second.stack] == [(TARGET, mine)]


async def test_a_crown_that_would_take_an_unmeasured_slot_waits(judging: World) -> None:
    """Who would displace an atomic crown is measured on both slots, or waits for an arena that can."""
    atomic = judging.context.catalog.targets["collective.moe_epilogue.v1"]
    first, second = atomic.members
    await _crown(judging, 7, atomic.id, atomic.members)
    await judging.queue(submission(1), target=first)
    loads = tuple(Workload(slot, "float32", ({"num_tokens": 4},), world_size=2) for slot in (first, second))
    object.__setattr__(judging.context, "arena", make_arena(workloads=loads[:1]))
    assert await judging.store.write(choose, judging.context.terms) is None
    job = await judging.job(submission(1))
    assert (job.state, job.code) == (JobState.PARKED, "TARGET_NOT_SERVED")
    assert second in job.detail
    object.__setattr__(judging.context, "arena", make_arena(workloads=loads))
    await judging.store.write(unpark_all, "another build")
    chosen = await judging.store.write(choose, judging.context.terms)
    assert chosen is not None
    assert [target_id for target_id, _ in chosen.stack] == [atomic.id]


async def test_a_crown_of_another_target_disturbs_nobody(judging: World) -> None:
    """A first pass stands while crowns come and go that its target has nothing to do with."""
    await judging.queue(submission(1))
    await judging.measure()
    await _crown(judging, 7, "activation.silu_and_mul", ("activation.silu_and_mul",))
    await judging.work()
    assert [(len(request.stack), request.role) for request in judging.requests] == [(0, "primary"), (0, "reproduction")]
    assert (await judging.job(submission(1))).state is JobState.SETTLED


async def test_a_stop_in_the_middle_costs_nothing(judging: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """An attempt cut off by a stop is repeated after the restart without spending the budget."""
    started = asyncio.Event()

    async def forever(*_: Any, **__: Any) -> Evidence:
        started.set()
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(qualification, "run_attempt", forever)
    await judging.queue(submission(1))
    task = asyncio.create_task(judging.qualification.run())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await judging.job(submission(1))).state is JobState.MEASURING
    await judging.store.write(recover_all)
    job = await judging.job(submission(1))
    assert (job.state, job.faults) == (JobState.QUEUED, 0)
