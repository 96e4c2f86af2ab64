"""What a check shows against a crowned bundle, and what it does not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from config.arena import Arena
from scoring.attempt import Attempt, Incident
from scoring.crown_check import CROWN_SLOW, CROWN_UNSTEADY, OWN_FAULTS, fault_of_crown, is_uncompared
from scoring.grade import grade
from scoring.incidents import INCIDENT_KINDS, consequence
from tests.scoring.support import FakeReferee, make_arena

ARENA = make_arena()
INDEPENDENT = {"NEVER_ROUTED", "OVERRIDE_BASE_ABSENT"}  # FAILs that rules about routing bring about


def fault(attempt: Attempt, arena: Arena = ARENA) -> str:
    """Return what an attempt of a crown shows."""
    return fault_of_crown(attempt, grade(attempt, arena), arena)


def with_incident(role: str, kind: str) -> Attempt:
    """Return an attempt that ended by an incident before its first launch."""
    incident = Incident("start", 0, role, kind, "")  # type: ignore[arg-type]
    return msgspec.structs.replace(FakeReferee(ARENA).document(()), incidents=(incident,), ending="incident")


@pytest.mark.parametrize("kind", sorted(INCIDENT_KINDS))
def test_only_what_the_bundle_did_counts(kind: str) -> None:
    """Every failure of the candidate's own is a fault of the crown; of the baseline, the machine or us, none is."""
    code = consequence(Incident("start", 0, "candidate", kind, "")).code
    own = consequence(Incident("start", 0, "candidate", kind, "")).outcome == "FAIL" and code not in INDEPENDENT
    assert (fault(with_incident("candidate", kind)) != "") == own
    assert (code in OWN_FAULTS) == own
    assert fault(with_incident("baseline", kind)) == ""


def attempt_with(gain: float, **changes: Any) -> Attempt:
    """Return an attempt of a candidate with that gain (log-ratio); `changes` are those of the referee."""
    referee = FakeReferee(ARENA, gain=gain)
    for name, value in changes.items():
        setattr(referee, name, value)
    return referee.measure()


def test_a_crown_that_is_as_fast_as_ever_is_cleared() -> None:
    """A pass shows nothing against it."""
    assert fault(attempt_with(0.4)) == ""


def test_no_faster_than_what_stands_beneath_it() -> None:
    """The upper bound below the margin is a fault; a gain that only could not be proved again is none."""
    assert fault(attempt_with(-0.4)) == "NOT_FASTER"
    undecided = attempt_with(0.045, noise=0.2)
    assert grade(undecided, ARENA).code == "NOT_FASTER"
    assert undecided.ending == "launches"
    assert fault(undecided) == ""


def slowed(attempt: Attempt, factors: list[float], role: str = "candidate") -> Attempt:
    """Return `attempt` with the times of one role multiplied, launch by launch."""
    launches = []
    for launch, factor in zip(attempt.launches, factors, strict=False):
        blocks = []
        for block in launch.blocks:
            one = getattr(block, role)
            times = tuple(round(ns * factor) for ns in one.call_ns)
            blocks.append(msgspec.structs.replace(block, **{role: msgspec.structs.replace(one, call_ns=times)}))
        launches.append(msgspec.structs.replace(launch, blocks=tuple(blocks)))
    return msgspec.structs.replace(attempt, launches=tuple(launches))


def verdict_of(code: str) -> Any:
    """Return a verdict with that code and no bounds that decide anything."""
    outcome = "FAIL" if code == "NOT_FASTER" else "RETRY"
    return msgspec.structs.replace(grade(attempt_with(0.4), ARENA), outcome=outcome, code=code, upper_ppm=9_000_000)


@pytest.mark.parametrize(
    ("factors", "code", "may_be"),
    [
        ([3.5] * 9, CROWN_SLOW, False), ([3.5] * 8, "", True), ([3.5] * 8 + [1.0], "", False), ([1.0] * 9, "", False),
        ([3.5] * 7 + [1.0], "", False), ([3.5] * 2, "", True), ([1.9] * 8, "", False), ([16.0] * 2, CROWN_SLOW, False),
        ([16.0], "", True), ([16.0, 1.0], "", False), ([], "", True),
    ],
)
@pytest.mark.parametrize("verdict", ["TIME_BUDGET_SHORT", "CANDIDATE_TOO_SLOW"])
def test_so_slow_that_no_time_is_left(factors: list[float], code: str, may_be: bool, verdict: str) -> None:
    """Twice the other's time in every one of many launches, or far more in every one of several, is the crown's fault;
    a median that a busy machine may have made is not. Twice the time in each of a few launches, and what took all the
    time before two launches, has to be seen more often."""
    attempt = slowed(attempt_with(0.4), factors)
    attempt = msgspec.structs.replace(attempt, launches=attempt.launches[: len(factors)], ending="time")
    uncompared = verdict == "CANDIDATE_TOO_SLOW" and may_be
    expected = code if verdict == "TIME_BUDGET_SHORT" else (verdict if code or uncompared else "")
    judged = msgspec.structs.replace(
        verdict_of(verdict), outcome="RETRY" if verdict == "TIME_BUDGET_SHORT" else "FAIL"
    )
    assert fault_of_crown(attempt, judged, ARENA) == expected
    assert is_uncompared(attempt, expected) == uncompared


@pytest.mark.parametrize(("theirs", "fault"), [([1.0, 1.0, 1.9], True), ([1.0, 1.0, 9.0], False), ([4.0] * 3, True)])
@pytest.mark.parametrize("verdict", ["TIME_BUDGET_SHORT", "CANDIDATE_TOO_SLOW"])
def test_few_slow_launches_count_beside_another_arm_at_its_usual_speed(
    theirs: list[float], fault: bool, verdict: str
) -> None:
    """Where the other arm stalls as well, in one of three launches, the machine was in trouble: nothing is shown."""
    referee = FakeReferee(ARENA, gain=0.4)
    referee.start_ns = {"baseline": 0, "candidate": 0}
    ours = [one * 20 for one in theirs]
    attempt = slowed(slowed(referee.measure(), ours), theirs, role="baseline")
    attempt = msgspec.structs.replace(attempt, launches=attempt.launches[:3], ending="time")
    judged = msgspec.structs.replace(
        verdict_of(verdict), outcome="RETRY" if verdict == "TIME_BUDGET_SHORT" else "FAIL"
    )
    assert (fault_of_crown(attempt, judged, ARENA) != "") == fault


def test_a_slow_start_is_part_of_the_time() -> None:
    """A bundle that dawdles before its first call takes the budget as well as one that dawdles in it."""
    referee = FakeReferee(ARENA)
    referee.start_ns["candidate"] = 10_000_000
    launches = tuple(referee.launch(index) for index in range(3))
    attempt = msgspec.structs.replace(referee.document(launches), ending="time")
    assert fault_of_crown(attempt, verdict_of("TIME_BUDGET_SHORT"), ARENA) == CROWN_SLOW


def alternating(attempt: Attempt, *, also_theirs: tuple[int, ...] = ()) -> Attempt:
    """Return `attempt` with every other launch of the candidate slow, and those launches of the baseline as well."""
    wild = slowed(attempt, [1.0 if index % 2 else 1.7 for index in range(len(attempt.launches))])
    factors = [1.7 if index in also_theirs else 1.0 for index in range(len(attempt.launches))]
    return slowed(wild, factors, role="baseline")


def test_unsteady_on_a_steady_machine() -> None:
    """Only scatter that the other arm of the same launches does not show is the crown's."""
    plain = msgspec.structs.replace(attempt_with(0.0488, noise=0.0), ending="launches")
    assert len(plain.launches) == ARENA.launches_max
    wild = alternating(plain)
    assert fault_of_crown(wild, verdict_of("NOT_FASTER"), ARENA) == CROWN_UNSTEADY
    assert fault_of_crown(plain, verdict_of("NOT_FASTER"), ARENA) == ""
    both = alternating(plain, also_theirs=tuple(range(0, len(plain.launches), 2)))
    assert fault_of_crown(both, verdict_of("NOT_FASTER"), ARENA) == ""
    assert fault_of_crown(wild, verdict_of("MACHINE_UNFIT"), ARENA) == ""


def test_unsteady_beyond_what_coins_can_do() -> None:
    """Of 24 launches 20 have to show it: fair coins make that many in 0.08 % of all checks, and 19 in 0.33 %."""
    plain = msgspec.structs.replace(attempt_with(0.0488, noise=0.0), ending="launches")
    assert len(plain.launches) == 24
    clear, chance = (2, 7, 12, 20), (2, 7, 12, 17, 20)
    assert fault_of_crown(alternating(plain, also_theirs=clear), verdict_of("NOT_FASTER"), ARENA) == CROWN_UNSTEADY
    assert fault_of_crown(alternating(plain, also_theirs=chance), verdict_of("NOT_FASTER"), ARENA) == ""


def test_few_launches_show_nothing_unsteady() -> None:
    """Thirds and quartiles of a handful of launches are noise."""
    plain = msgspec.structs.replace(attempt_with(0.0488, noise=0.0), ending="time")
    for count, code in ((15, ""), (16, CROWN_UNSTEADY)):
        few = msgspec.structs.replace(plain, launches=plain.launches[:count])
        assert fault_of_crown(alternating(few), verdict_of("TIME_BUDGET_SHORT"), ARENA) == code
