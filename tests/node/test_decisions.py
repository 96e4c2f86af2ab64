"""What a person may decide, and nothing else: reviews of implausible speed-ups, and failures opened again."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from config.canonical import canonical_json
from config.errors import CacheonError
from node import decisions
from node.jobs import JobState, StaleTokenError
from node.services.attempt_process import read_compressed
from node.store.crown_rows import all_crowns
from node.store.decision_rows import all_decisions
from node.store.events import verify_chain
from node.store.queries import attempts_by_submission, latest_event
from node.store.receipt_outbox import SealedReceipt
from scoring.attempt import read_attempt
from scoring.decision import read_decision
from scoring.dsse import verify
from scoring.grade import grade
from scoring.receipts import VerdictPredicate, read_predicate, verdict_statement
from tests.node.judging import ARENA, FAST, SLOW, World
from tests.node.support import HOTKEY_B, submission

ONE = submission(1)
TOO_FAST = 4.0  # log-ratio


def decide(world: World, kind: str, prefix: str = ONE.submission_id, reason: str = "seen") -> decisions.Decided:
    """Decide as the command does, beside the open store."""
    return decisions.decide(world.context.layout.root, kind, prefix, reason)  # type: ignore[arg-type]


@pytest.fixture
async def held(judging: World) -> World:
    """A world in which submission 1 waits for a person."""
    judging.gains[ONE.content_hash] = TOO_FAST
    await judging.queue(ONE)
    await judging.work()
    assert await judging.states() == ["parked:IMPLAUSIBLE_SPEEDUP"]
    return judging


async def test_an_accepted_speed_is_measured_again_and_crowned(held: World) -> None:
    """Once a person has looked, both attempts are made anew and the guard stops neither."""
    (waiting,) = decisions.pending(held.context.layout.root)
    assert (waiting.submission_id, waiting.code) == (ONE.submission_id, "IMPLAUSIBLE_SPEEDUP")
    before = len(held.requests)
    decided = decide(held, "accept", ONE.submission_id[:12], "one pass  instead\nof two")
    assert (decided.state, decided.code, decided.reason) == ("queued", "", "one pass instead of two")
    await held.work()
    assert await held.states() == ["settled"]
    assert len(held.requests) == before + 2
    assert decisions.pending(held.context.layout.root) == []
    await held.store.read(verify_chain)


async def test_an_observer_sees_the_decision_and_can_grade_by_it(held: World) -> None:
    """The receipt names the attempt that was decided on; with what it says, every file grades to its verdict."""
    receipt = decide(held, "accept").receipt
    await held.work()
    told = read_decision(verify(held.receipts.path(receipt).read_bytes(), [held.receipts.public_key]))
    assert (told.kind, told.code, told.content_hash) == ("accept", "IMPLAUSIBLE_SPEEDUP", ONE.content_hash)
    rows = (await held.store.read(attempts_by_submission))[ONE.submission_id]
    assert told.attempt_digest == rows[0].digest
    assert [row.outcome for row in rows] == ["RETRY", "PASS", "PASS"]
    for row in rows[1:]:
        attempt = read_attempt(read_compressed(held.context.layout.root / row.path))
        assert grade(attempt, ARENA).code == "IMPLAUSIBLE_SPEEDUP"
        assert grade(attempt, ARENA, reviewed=True).outcome == row.outcome
    assert receipt in await held.store.read(latest_event, "decision.accept")


async def test_the_receipts_of_a_reviewed_crown_say_so(held: World) -> None:
    """Both verdicts are signed as what they are: an observer grades the files with the same guard lifted."""
    decide(held, "accept")
    await held.work()
    rows = (await held.store.read(attempts_by_submission))[ONE.submission_id]
    for row in rows[1:]:
        said = verify(held.receipts.path(row.receipt_digest).read_bytes(), [held.receipts.public_key])
        predicate = read_predicate(said, VerdictPredicate)
        assert (predicate.verdict.outcome, predicate.reviewed) == ("PASS", True)
        attempt = read_attempt(read_compressed(held.context.layout.root / row.path))
        verdict = grade(attempt, ARENA, reviewed=predicate.reviewed)
        again = verdict_statement(attempt, row.digest, verdict, reviewed=predicate.reviewed)
        assert canonical_json(msgspec.to_builtins(again)) == canonical_json(msgspec.to_builtins(said))


async def test_verdicts_that_nobody_looked_at_say_so(judging: World) -> None:
    """The field is for what a person lifted, and for nothing else."""
    await judging.queue(ONE)
    await judging.work()
    rows = (await judging.store.read(attempts_by_submission))[ONE.submission_id]
    for row in rows:
        said = verify(judging.receipts.path(row.receipt_digest).read_bytes(), [judging.receipts.public_key])
        assert not read_predicate(said, VerdictPredicate).reviewed


async def test_accepting_one_accepts_no_other(held: World) -> None:
    """The guard is lifted for the submission that a person looked at."""
    decide(held, "accept")
    await held.work()
    other = submission(2, hotkey=HOTKEY_B)
    held.gains[other.content_hash] = TOO_FAST
    await held.queue(other)
    await held.work()
    assert (await held.job(other)).code == "IMPLAUSIBLE_SPEEDUP"


async def test_a_refused_speed_fails_with_its_bytes(held: World) -> None:
    """The submission fails with the reason, and so do the same bytes of the same hotkey, without being run."""
    decided = decide(held, "refuse", reason="reads ahead")
    assert (decided.state, decided.code) == ("failed", "REVIEW_REFUSED")
    before = len(held.requests)
    again = submission(2, content="1")
    await held.queue(again)
    await held.work()
    job = await held.job(again)
    assert (job.state, job.code, job.blame) == (JobState.FAILED, "REVIEW_REFUSED", "miner")
    assert "reads ahead" in job.detail
    assert len(held.requests) == before
    decide(held, "reopen", reason="the reader was wrong")
    await held.work()
    assert (await held.job(ONE)).code == "IMPLAUSIBLE_SPEEDUP"


async def test_a_failure_of_ours_is_opened_again(judging: World) -> None:
    """A FAIL holds for the same bytes until a person says that it was our fault; then they are judged anew."""
    judging.gains[ONE.content_hash] = SLOW
    await judging.queue(ONE)
    await judging.work()
    assert await judging.states() == ["failed:NOT_FASTER"]
    (failed,) = (await judging.store.read(attempts_by_submission))[ONE.submission_id]
    judging.gains[ONE.content_hash] = FAST
    decided = decide(judging, "reopen", reason="the clock was wrong")
    assert decided.state == "queued"
    await judging.work()
    assert await judging.states() == ["settled"]
    (row,) = await judging.store.read(all_decisions)
    assert (row.kind, row.code, row.attempt_id, row.receipt_digest) == (
        "reopen", "NOT_FASTER", failed.attempt_id, decided.receipt
    )


async def test_a_replayed_failure_opens_what_it_repeats(judging: World) -> None:
    """A submission that failed by an earlier one's attempt is measured once that is set aside."""
    judging.gains[ONE.content_hash] = SLOW
    again = submission(2, content="1")
    await judging.queue(ONE, again)
    await judging.work()
    assert len(judging.requests) == 1
    judging.gains[ONE.content_hash] = FAST
    decide(judging, "reopen", again.submission_id)
    await judging.work()
    assert await judging.states() == ["failed:NOT_FASTER", "settled"]


async def test_a_revoked_crown_can_be_earned_again(judging: World) -> None:
    """What was revoked by our fault begins anew, keeps its place, and needs two passes like everybody."""
    await judging.queue(ONE)
    await judging.work()
    judging.broken[ONE.content_hash] = "raised"
    judging.gains[submission(2).content_hash] = SLOW
    await judging.queue(submission(2, hotkey=HOTKEY_B))
    await judging.work()
    assert await judging.states() == ["settled:CROWN_REVOKED", "failed:NOT_FASTER"]
    judging.broken.clear()
    decide(judging, "reopen", reason="the sandbox refused what it must not")
    await judging.work()
    assert (await judging.states())[0] == "settled"
    assert [(crown.submission_id, crown.ended_by) for crown in await judging.store.read(all_crowns)] == [
        (ONE.submission_id, "")
    ]


REFUSED: list[tuple[str, Callable[[], str], str, str]] = [
    ("accept", lambda: ONE.submission_id, "seen", "REVIEW_NOT_PENDING"),
    ("refuse", lambda: ONE.submission_id, "seen", "REVIEW_NOT_PENDING"),
    ("reopen", lambda: ONE.submission_id, "seen", "REOPEN_NOT_FAILED"),
    ("reopen", lambda: "", "seen", "SUBMISSION_NOT_FOUND"),
    ("reopen", lambda: "%", "seen", "SUBMISSION_NOT_FOUND"),
    ("reopen", lambda: "nothing", "seen", "SUBMISSION_NOT_FOUND"),
    ("reopen", lambda: ONE.submission_id, " \n ", "DECISION_REASON_MISSING"),
    ("reopen", lambda: ONE.submission_id, "x" * 501, "DECISION_REASON_MISSING"),
]


@pytest.mark.parametrize(("kind", "prefix", "reason", "code"), REFUSED)
async def test_nothing_else_can_be_decided(
    judging: World, kind: str, prefix: Callable[[], str], reason: str, code: str
) -> None:
    """A crown that stands is neither taken nor given by hand; what is refused leaves nothing behind."""
    await judging.queue(ONE)
    await judging.work()
    with pytest.raises(CacheonError) as refused:
        decide(judging, kind, prefix(), reason)
    assert refused.value.code == code
    assert await judging.states() == ["settled"]
    assert await judging.store.read(all_decisions) == []


async def test_a_decision_about_what_moved_on_is_not_written(held: World) -> None:
    """If the node takes the submission up while a person decides, the decision is dropped as a whole."""
    draft = await held.store.read(decisions.prepare, "refuse", ONE.submission_id, "seen")
    decide(held, "accept")
    with pytest.raises(StaleTokenError):
        await held.store.write(decisions.commit, draft, SealedReceipt("decision.v1", b"{}"))
    assert [row.kind for row in await held.store.read(all_decisions)] == ["accept"]
