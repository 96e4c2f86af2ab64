"""What a check shows against a crowned bundle, and what it does not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from config.arena import Arena
from scoring.attempt import Attempt, Incident
from scoring.crown_check import CROWN_SLOW, CROWN_UNSTEADY, OWN_FAULTS, fault_of_crown
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
    ("factors", "launches", "code"),
    [([3.5] * 4, 4, CROWN_SLOW), ([3.5] * 4, 1, ""), ([3.5, 1.0, 3.5, 3.5], 4, ""), ([1.0] * 4, 4, "")],
)
def test_so_slow_that_no_time_is_left(factors: list[float], launches: int, code: str) -> None:
    """Twice the other's time in every one of several launches is a fault of the crown; a short budget alone is ours."""
    attempt = slowed(attempt_with(0.4), factors)
    attempt = msgspec.structs.replace(attempt, launches=attempt.launches[:launches], ending="time")
    assert fault_of_crown(attempt, verdict_of("TIME_BUDGET_SHORT"), ARENA) == code


def test_unsteady_on_a_steady_machine() -> None:
    """Only scatter that the other arm of the same launches does not show is the crown's."""
    plain = msgspec.structs.replace(attempt_with(0.045, noise=0.2), ending="launches")
    wild = slowed(plain, [1.0 if index % 2 else 1.7 for index in range(len(plain.launches))])
    assert fault_of_crown(wild, verdict_of("NOT_FASTER"), ARENA) == CROWN_UNSTEADY
    both = slowed(wild, [1.0 if index % 2 else 1.7 for index in range(len(plain.launches))], role="baseline")
    assert fault_of_crown(both, verdict_of("NOT_FASTER"), ARENA) == ""
    assert fault_of_crown(wild, verdict_of("MACHINE_UNFIT"), ARENA) == ""
