"""A crowned bundle that fails or slows down as the baseline loses its crown; nobody can make an honest one lose it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import delete

from config.errors import HostError
from node.cli.actions.node_status import _check_text
from node.jobs import JobState
from node.services import qualification
from node.services.attempt_process import Evidence
from node.services.crown_checks import SECOND_LOOK_MS, choose_next
from node.services.ledger import read_ledger_document
from node.services.restoring import _checked_targets
from node.services.settlement import prepare
from node.status import read_status
from node.store.check_rows import CheckRow, checks, open_check, update_check
from node.store.crown_rows import all_crowns, all_settlement_events, crown_state
from node.store.events import now_ms, verify_chain
from node.store.evidence_rows import load_attempt, lose_running_attempts
from node.store.job_rows import recover_all
from node.store.schema import bundles
from qualify.request import AttemptRequest
from scoring.attempt import Attempt, Incident
from scoring.dsse import verify
from scoring.ledger import check_ledger
from scoring.revocation import read_revocation
from scoring.settle import live_claims, replay
from tests.node.judging import FAST, World
from tests.node.support import HOTKEY_A, HOTKEY_B, submission
from tests.scoring.support import TARGET, FakeReferee

KING = submission(1)
LESS = FAST / 2  # a gain that gives no reason to check the crown that it takes


@pytest.fixture
async def king(judging: World) -> World:
    """A world in which submission 1 is crowned."""
    await judging.queue(KING)
    await judging.work()
    assert await judging.states() == ["settled"]
    return judging


async def found(world: World) -> list[tuple[str, str]]:
    """Return state and occasion of all checks."""
    return [(check.state, check.occasion) for check in await world.store.read(checks)]


@pytest.mark.parametrize("kind", ["raised", "crashed", "protocol", "wrong_output"])
async def test_a_crown_that_fails_as_the_baseline_is_revoked(king: World, kind: str) -> None:
    """Its challenger waits, the crown is checked twice without him, ends with its claim, and he is measured again."""
    king.broken[KING.content_hash] = kind
    challenger = submission(2, hotkey=HOTKEY_B)
    await king.queue(challenger)
    assert await king.measure()
    job = await king.job(challenger)
    assert (job.state, job.code, job.faults) == (JobState.PARKED, "CROWN_IN_CHECK", 0)
    await king.work()
    assert await king.states() == ["settled:CROWN_REVOKED", "settled"]
    assert await found(king) == [("revoked", "failed_as_baseline")]
    by_role = [(request.role, request.candidate.content_hash, len(request.stack)) for request in king.requests[2:]]
    assert by_role == [
        ("primary", challenger.content_hash, 1),
        ("primary", KING.content_hash, 0), ("reproduction", KING.content_hash, 0),
        ("primary", challenger.content_hash, 0), ("reproduction", challenger.content_hash, 0),
    ]
    events = await king.store.read(all_settlement_events)
    assert [(event.type, event.submission_id) for event in events] == [
        ("CROWN", KING.submission_id), ("REVOKE", KING.submission_id), ("CROWN", challenger.submission_id),
    ]
    state = await king.store.read(crown_state)
    assert [claim.hotkey for claim in live_claims(state)] == [HOTKEY_B]
    assert replay(events) == state
    assert [crown.ended_by for crown in await king.store.read(all_crowns)] == [KING.submission_id, ""]
    check_ledger(await king.store.read(read_ledger_document, HOTKEY_A))
    await king.store.read(verify_chain)


async def test_the_revocation_can_be_followed_from_its_receipt(king: World) -> None:
    """A signed statement names the event and two verdicts, both of attempts of the crowned bundle alone."""
    king.broken[KING.content_hash] = "raised"
    await king.queue(submission(2))
    await king.work()
    (revoked,) = [event for event in await king.store.read(all_settlement_events) if event.type == "REVOKE"]
    receipts = [
        verify(path.read_bytes(), [king.receipts.public_key])
        for path in king.context.layout.receipts.iterdir()
    ]
    (predicate,) = [read_revocation(one) for one in receipts if one.predicate_type.endswith("revocation.v1")]
    assert predicate.event == revoked
    assert revoked.reason == "ARM_RAISED"
    for digest, evidence in zip(predicate.verdict_receipts, revoked.evidence, strict=True):
        told = verify(king.receipts.path(digest).read_bytes(), [king.receipts.public_key])
        assert told.predicate["attempt_digest"] == evidence
        assert told.subject[0].digest == {"sha256": KING.content_hash}


async def test_revoked_bytes_are_not_crowned_again(king: World) -> None:
    """The same hotkey's same bytes fail without being run, although they may work today."""
    king.broken[KING.content_hash] = "raised"
    await king.queue(submission(2, hotkey=HOTKEY_B))
    await king.work()
    king.broken.clear()
    before = len(king.requests)
    again = submission(3, content="1")
    await king.queue(again)
    await king.work()
    assert (await king.job(again)).code == "ARM_RAISED"
    assert len(king.requests) == before


def in_three_launches(ours_ns: int, theirs_ns: tuple[int, int, int]) -> Callable[[FakeReferee], Attempt]:
    """Return how a bundle fares whose arms start in `ours_ns`, beside others that start in `theirs_ns`."""

    def measure(referee: FakeReferee) -> Attempt:
        launches = []
        for index, theirs in enumerate(theirs_ns):
            referee.start_ns = {"candidate": ours_ns, "baseline": theirs}
            launches.append(referee.launch(index))
        return msgspec.structs.replace(referee.document(tuple(launches)), ending="time")

    return measure


SECOND = 1_000_000_000


async def asked_about(king: World, reply: Callable[[FakeReferee], Attempt]) -> CheckRow:
    """Have the crown checked, with that reply, each time without waiting; return the check that came of it."""
    (crown,) = (await king.store.read(crown_state)).crowns
    king.measures[KING.content_hash] = reply
    await king.store.write(
        open_check, crown=crown.event_digest, submission_id=KING.submission_id, target_id=TARGET,
        occasion="failed_as_baseline", cause="somebody", cause_attempt="of his",
    )
    while (check := (await king.store.read(checks))[0]).state == "open":
        await king.store.write(update_check, check, not_before_ms=0)
        await king.work()
    return check


async def test_a_crown_that_lost_its_time_to_a_machine_is_measured_again(king: World) -> None:
    """Two checks without a verdict on the bytes revoke it; the same bytes, revealed again, earn by two new attempts."""
    check = await asked_about(king, in_three_launches(25 * SECOND, (1000, 1000, 1000)))
    assert (check.state, check.code) == ("revoked", "CROWN_SLOW")
    attempts = [await king.store.read(load_attempt, name) for name in (check.first_attempt, check.second_attempt)]
    assert [(one.outcome, one.code) for one in attempts] == [("RETRY", "TIME_BUDGET_SHORT")] * 2
    assert live_claims(await king.store.read(crown_state)) == ()
    king.measures.clear()
    before = len(king.requests)
    again = submission(3, content="1")
    await king.queue(again)
    await king.work()
    assert await king.states() == ["settled:CROWN_REVOKED", "settled"]
    assert [request.role for request in king.requests[before:]] == ["primary", "reproduction"]
    (claim,) = live_claims(await king.store.read(crown_state))
    assert (claim.hotkey, claim.crowned_block) == (HOTKEY_A, again.block)  # from his new reveal on
    await king.queue(submission(4, content="1"))  # and once more, beside the crown that it has
    king.gains[KING.content_hash] = 0.0
    await king.work()
    assert (await king.job(submission(4))).code == "NOT_FASTER"
    assert live_claims(await king.store.read(crown_state)) == (claim,)
    check_ledger(await king.store.read(read_ledger_document, HOTKEY_A))


@pytest.mark.parametrize(("kinds", "measured"), [
    (("call_deadline", "call_deadline"), True), (("raised", "call_deadline"), False),
    (("call_deadline", "raised"), False),
])
async def test_what_was_proved_of_the_bytes_stays(king: World, kinds: tuple[str, str], measured: bool) -> None:
    """A deadline missed twice ends a crown and says nothing for ever; an exception in either check does."""
    left = list(kinds)

    def fails(referee: FakeReferee) -> Attempt:
        incident = Incident("block", 0, "candidate", left.pop(0), "made up")
        return msgspec.structs.replace(referee.document(()), incidents=(incident,), ending="incident")

    assert (await asked_about(king, fails)).state == "revoked"
    king.measures.clear()
    before = len(king.requests)
    again = submission(3, content="1")
    await king.queue(again)
    await king.work()
    assert (len(king.requests) > before) == measured
    assert (await king.job(again)).state is (JobState.SETTLED if measured else JobState.FAILED)


async def test_slowness_without_another_arm_needs_many_looks(king: World) -> None:
    """Before there was a launch nothing says whose the slowness is: four looks, hours apart, show it; two do not."""
    king.broken[KING.content_hash] = "dawdled"
    (crown,) = (await king.store.read(crown_state)).crowns
    await king.store.write(
        open_check, crown=crown.event_digest, submission_id=KING.submission_id, target_id=TARGET,
        occasion="failed_as_baseline", cause="somebody", cause_attempt="of his",
    )
    waits = []
    for look in range(1, 4):
        await king.work()
        (check,) = await king.store.read(checks)
        assert (check.state, check.code, check.uncompared) == ("open", "CANDIDATE_TOO_SLOW", look)
        (told,) = read_status(king.store.layout.root).checks
        assert f"{look} of 4 attempts show a fault" in _check_text(told)
        waits.append(round((check.not_before_ms - now_ms()) / SECOND_LOOK_MS))
        await king.store.write(update_check, check, not_before_ms=0)
    assert waits == [1, 2, 4]
    assert len((await king.store.read(crown_state)).crowns) == 1
    await king.work()
    assert await king.states() == ["settled:CROWN_REVOKED"]
    assert [request.role for request in king.requests[2:]] == ["primary", "reproduction"] * 2


@pytest.mark.parametrize("shown", ["CUCU", "UCUC", "UCCU", "CUUC", "UUUC"])
async def test_showing_faults_by_turns_keeps_no_crown(king: World, shown: str) -> None:
    """A bundle that fails beside another arm (C) and takes all the time before there is one (U), in whatever order,
    loses its crown at the fourth look in a row: were only the U counted, a check of C, U, C, U... would never end."""
    left = list(shown)

    def by_turns(referee: FakeReferee) -> Attempt:
        compared = left.pop(0) == "C"
        stage, index, kind = ("block", 0, "raised") if compared else ("correctness", -1, "dawdled")
        incident = Incident(stage, index, "candidate", kind, "made up")  # type: ignore[arg-type]
        return msgspec.structs.replace(referee.document(()), incidents=(incident,), ending="incident")

    check = await asked_about(king, by_turns)
    assert (check.state, check.tries, left) == ("revoked", len(shown), [])
    assert live_claims(await king.store.read(crown_state)) == ()
    check_ledger(await king.store.read(read_ledger_document, HOTKEY_A))


@pytest.mark.parametrize("well", range(4))
async def test_one_look_at_a_bundle_that_is_well_clears_it(king: World, well: int) -> None:
    """A machine in trouble for three of four looks takes no crown, whichever of them found the bundle well."""
    looks = 0

    def measure(referee: FakeReferee) -> Attempt:
        nonlocal looks
        looks += 1
        if looks == well + 1:
            return referee.measure()
        incident = Incident("correctness", -1, "candidate", "dawdled", "made up")
        return msgspec.structs.replace(referee.document(()), incidents=(incident,), ending="incident")

    assert (await asked_about(king, measure)).state == "cleared"
    assert looks == well + 1
    assert len((await king.store.read(crown_state)).crowns) == 1


async def test_two_bad_moments_of_a_machine_revoke_nothing(king: World) -> None:
    """When the time was gone twice, and the third look finds the bundle as fast as ever, the crown is cleared."""
    looks = 0

    def by_turns(referee: FakeReferee) -> Attempt:
        nonlocal looks
        looks += 1
        if looks > 2:
            return referee.measure()
        incident = Incident("correctness", -1, "candidate", "dawdled", "made up")
        return msgspec.structs.replace(referee.document(()), incidents=(incident,), ending="incident")

    check = await asked_about(king, by_turns)
    assert (check.state, looks) == ("cleared", 3)
    assert len((await king.store.read(crown_state)).crowns) == 1


async def test_slow_launches_count_only_beside_a_machine_that_is_well(king: World) -> None:
    """Where the other arm stalls in one of three launches too, it is looked at again within the budget of faults."""
    check = await asked_about(king, in_three_launches(25 * SECOND, (1000, SECOND, 1000)))
    assert (check.state, check.code) == ("undecided", "TIME_BUDGET_SHORT")
    assert len((await king.store.read(crown_state)).crowns) == 1


def fails_as(world: World, monkeypatch: pytest.MonkeyPatch, role: Callable[[AttemptRequest], bool]) -> None:
    """Let submission 1's bundle fail in those attempts only for which `role` says so."""
    measure = world.run_attempt

    async def run(request: AttemptRequest, folder: Path, **keywords: Any) -> Evidence:
        world.broken = {KING.content_hash: "crashed"} if role(request) else {}
        return await measure(request, folder, **keywords)

    monkeypatch.setattr(qualification, "run_attempt", run)


async def test_a_challenger_cannot_make_an_honest_crown_fail(king: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever happens beside a challenger, the check is without him: the crown stays, and is asked about once only."""
    challenger = submission(2, hotkey=HOTKEY_B)
    await king.queue(challenger)
    fails_as(king, monkeypatch, lambda request: request.candidate.content_hash == challenger.content_hash)
    await king.work()
    assert await found(king) == [("cleared", "failed_as_baseline")]
    job = await king.job(challenger)
    assert (job.state, job.code) == (JobState.PARKED, "BASELINE_FAILED")  # within his own budget, like any fault
    assert [crown.submission_id for crown in (await king.store.read(crown_state)).crowns] == [KING.submission_id]


async def test_the_status_tells_of_checks(king: World) -> None:
    """Operators see that a crown is checked, why, how far that is, and how it ended."""
    king.broken[KING.content_hash] = "call_deadline"
    challenger = submission(2, hotkey=HOTKEY_B)
    await king.queue(challenger)
    await king.work()
    (check,) = read_status(king.store.layout.root).checks
    assert (check.submission_id, check.cause) == (KING.submission_id, challenger.submission_id)
    assert (check.state, check.occasion, check.shown, check.code, check.closed_ms) == (
        "open", "failed_as_baseline", 1, "CALL_DEADLINE", 0
    )
    said = _check_text(check)
    assert f"crown of submission {KING.submission_id[:12]}, which failed beside" in said
    assert "1 of 2 attempts show a fault [CALL_DEADLINE]; goes on in " in said
    (row,) = await king.store.read(checks)
    await king.store.write(update_check, row, not_before_ms=0)
    await king.work()
    (check,) = read_status(king.store.layout.root).checks
    assert (check.state, check.shown, check.closed_ms > 0) == ("revoked", 2, True)
    assert _check_text(check).endswith(": revoked [CALL_DEADLINE]")


async def test_one_failed_check_revokes_nothing(king: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A check counts only when it can be repeated."""
    await king.queue(submission(2, hotkey=HOTKEY_B))
    fails_as(king, monkeypatch, lambda request: len(king.requests) <= 3)
    await king.work()
    assert (await found(king))[0] == ("cleared", "failed_as_baseline")
    assert not any(event.type == "REVOKE" for event in await king.store.read(all_settlement_events))


async def test_every_challenger_can_ask_once(king: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crown that fails only now and then is checked again for another challenger, and not for the same one."""
    one, other = submission(2, hotkey=HOTKEY_B), submission(3, hotkey=HOTKEY_B)
    await king.queue(one, other)
    fails_as(king, monkeypatch, lambda request: request.candidate.content_hash != KING.content_hash)
    await king.work()
    asked = [check.cause for check in await king.store.read(checks)]
    assert sorted(asked) == sorted([one.submission_id, other.submission_id])


async def test_faults_of_ours_never_count_against_a_crown(king: World) -> None:
    """A check that cannot be made is given up within the budget; its challenger returns, and spends his own."""
    king.broken[KING.content_hash] = "raised"
    await king.queue(submission(2, hotkey=HOTKEY_B))
    await king.measure()
    king.faults = [HostError("SANDBOX_FAILED", "made up")] * 100
    await king.work()
    assert (await found(king))[0] == ("undecided", "failed_as_baseline")
    assert len((await king.store.read(crown_state)).crowns) == 1
    assert (await king.job(submission(2))).state is JobState.PARKED


async def test_what_a_stalling_machine_shows_too_is_looked_at_later(king: World) -> None:
    """A deadline missed twice within minutes may be one spell of the machine: the second look waits, others do not."""
    king.broken[KING.content_hash] = "call_deadline"
    await king.queue(submission(2, hotkey=HOTKEY_B))
    await king.work()
    (check,) = await king.store.read(checks)
    assert (check.state, check.code, check.first_attempt != "") == ("open", "CALL_DEADLINE", True)
    assert check.not_before_ms - now_ms() > SECOND_LOOK_MS / 2
    await king.store.write(update_check, check, not_before_ms=now_ms())
    await king.work()
    assert await king.states() == ["settled:CROWN_REVOKED", "settled"]


async def test_nobody_waits_for_ever_for_a_check_that_cannot_be_made(king: World) -> None:
    """Faults of ours hold a winner back for some rests; then the crown is his, and nothing goes round in circles."""
    better = submission(2, hotkey=HOTKEY_B)
    king.gains[better.content_hash] = FAST * 2
    await king.queue(better)
    await king.measure()
    await king.measure()
    assert await king.settlement.settle_once()
    king.faults = [HostError("SANDBOX_FAILED", "made up")] * 1000
    rests = 0
    while (check := (await king.store.read(checks))[0]).state == "open":
        await king.work()
        assert rests < 10
        rests += 1
        await king.store.write(update_check, (await king.store.read(checks))[0], not_before_ms=0)
    assert (check.state, check.occasion, rests > 1) == ("undecided", "outpaced", True)
    await king.work()
    assert await king.states() == ["settled", "settled"]
    assert not await king.settlement.settle_once()
    assert len(await king.store.read(checks)) == 1


async def test_a_crown_is_checked_before_it_is_outpaced(king: World) -> None:
    """Nobody earns more than the crown he takes unless that still does what it was crowned for."""
    (crown,) = (await king.store.read(crown_state)).crowns
    better = submission(2, hotkey=HOTKEY_B)
    king.gains[better.content_hash] = FAST * 2
    await king.queue(better)
    await king.measure()
    await king.measure()
    assert await king.settlement.settle_once()
    assert await king.states() == ["settled", "passed_twice"]  # not yet
    assert await found(king) == [("open", "outpaced")]
    assert not await king.settlement.settle_once()
    await king.work()
    assert await found(king) == [("cleared", "outpaced")]
    assert await king.states() == ["settled", "settled"]
    (now,) = (await king.store.read(crown_state)).crowns
    assert (now.submission_id, crown.submission_id) == (better.submission_id, KING.submission_id)


async def test_less_than_the_crown_needs_no_check(king: World) -> None:
    """A successor that earns less cannot have been helped by a slow incumbent to more than that had."""
    one = submission(2, hotkey=HOTKEY_B)
    king.gains[one.content_hash] = LESS
    await king.queue(one)
    await king.work()
    assert await found(king) == []
    assert await king.states() == ["settled", "settled"]


async def test_a_crown_that_slowed_down_is_no_yardstick(king: World) -> None:
    """It is revoked, and who outpaced it is measured against what stands beneath it."""
    better = submission(2, hotkey=HOTKEY_B)
    king.gains |= {better.content_hash: FAST * 2, KING.content_hash: -0.2}
    await king.queue(better)
    await king.work()
    assert await found(king) == [("revoked", "outpaced")]
    assert king.requests[-1].stack == ()
    assert await king.states() == ["settled:CROWN_REVOKED", "settled"]
    (event,) = [event for event in await king.store.read(all_settlement_events) if event.type == "REVOKE"]
    assert event.reason == "NOT_FASTER"


async def test_who_is_aside_waits_for_no_check(king: World) -> None:
    """The check of a crown holds back those that concern its slots, and nobody else."""
    better = submission(2, hotkey=HOTKEY_B)
    king.gains[better.content_hash] = FAST * 2
    await king.queue(better)
    await king.measure()
    await king.measure()
    settled = await king.store.read(prepare, king.context.catalog)
    assert settled is not None
    assert (settled.plan.events, [one.winner for one in settled.questions]) == ((), [better.submission_id])


async def test_a_check_goes_on_after_a_restart(king: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill in the middle of a check costs one attempt and nothing else."""
    king.broken[KING.content_hash] = "raised"
    await king.queue(submission(2, hotkey=HOTKEY_B))
    await king.measure()
    chosen = await king.store.write(choose_next, king.context.terms)
    assert chosen is not None
    assert chosen.check
    assert await king.store.write(lose_running_attempts) == 1
    await king.store.write(recover_all)
    await king.work()
    assert await king.states() == ["settled:CROWN_REVOKED", "settled"]


async def test_a_crown_that_ends_meanwhile_ends_its_check(king: World) -> None:
    """Nobody is left waiting for a check that lost its point."""
    king.broken[KING.content_hash] = "raised"
    await king.queue(submission(2, hotkey=HOTKEY_B))
    await king.measure()
    (check,) = await king.store.read(checks)
    await king.store.write(update_check, check, crown="another")
    king.broken.clear()
    await king.work()
    assert (await king.store.read(checks))[0].state == "void"
    assert (await king.job(submission(2))).state is JobState.SETTLED


async def test_a_lost_bundle_keeps_a_check_waiting(king: World) -> None:
    """The crowned bundle is brought back like any other, and then checked."""
    king.broken[KING.content_hash] = "raised"
    await king.queue(submission(2, hotkey=HOTKEY_B))
    await king.measure()
    await king.store.write(lambda connection: connection.execute(delete(bundles)))
    assert not await king.measure()
    assert [check.code for check in await king.store.read(checks, "open")] == ["INCUMBENT_BUNDLE_LOST"]
    assert await king.store.read(_checked_targets) == {TARGET}


async def test_an_earlier_challenger_that_waits_is_not_passed_by(king: World) -> None:
    """Waiting for a check costs no place in chain order: whoever comes later and overlaps waits as well."""
    late, early = submission(3, hotkey=HOTKEY_B), submission(2, hotkey=HOTKEY_B)
    king.gains[late.content_hash] = LESS
    await king.queue(late)
    await king.measure()
    await king.measure()
    king.broken[KING.content_hash] = "raised"
    await king.queue(early)
    await king.measure()
    assert (await king.job(early)).code == "CROWN_IN_CHECK"
    assert not await king.settlement.settle_once()
    assert (await king.job(late)).state is JobState.PASSED_TWICE
    await king.work()
    assert (await king.job(early)).state is JobState.SETTLED
