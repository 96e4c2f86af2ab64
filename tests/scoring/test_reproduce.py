"""A reproduction asks the same question again, independently."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from config.errors import GradeError
from scoring.attempt import SCHEMAS, Attempt, attempt_digest, encode_attempt, read_attempt
from scoring.grade import grade
from scoring.reproduce import check_pair, credited_speedup_ppm
from tests.scoring.support import FakeReferee, change, digest, make_arena

ARENA = make_arena()
PRIMARY = FakeReferee(ARENA, number=1).measure()


def reproduce(**changes: Any) -> Attempt:
    """Return a faithful reproduction of PRIMARY with exchanged cores."""
    named = attempt_digest(encode_attempt(PRIMARY))
    attempt = FakeReferee(ARENA, number=2).measure(role="reproduction", previous_attempt=named)
    swapped = change(attempt, "environment.cores", (1, 0))
    return msgspec.structs.replace(swapped, **changes)


SECOND = reproduce()


def test_a_faithful_reproduction_is_accepted() -> None:
    """New seed, new processes, exchanged cores, later: a pair."""
    assert check_pair(PRIMARY, SECOND) == ""


@pytest.mark.parametrize(
    ("primary", "second", "code"),
    [
        (SECOND, PRIMARY, "PAIR_ROLES"),
        (PRIMARY, PRIMARY, "PAIR_ROLES"),
        (PRIMARY, reproduce(previous_attempt=digest("other")), "PAIR_NOT_LINKED"),
        (PRIMARY, change(SECOND, "identity.content_hash", digest("b")), "PAIR_IDENTITY"),
        (PRIMARY, change(SECOND, "identity.incumbent_digest", digest("b")), "PAIR_IDENTITY"),
        (PRIMARY, change(SECOND, "identity.reservation.hotkey", "5Other"), "PAIR_IDENTITY"),
        (PRIMARY, change(SECOND, "environment.timing_method", "inner"), "PAIR_TIMING_METHOD"),
        (PRIMARY, reproduce(attempt_id=PRIMARY.attempt_id), "PAIR_SAME_ATTEMPT"),
        (PRIMARY, reproduce(seed=PRIMARY.seed), "PAIR_SAME_SEED"),
        (PRIMARY, reproduce(launches=PRIMARY.launches), "PAIR_SAME_PROCESS"),
        (PRIMARY, change(SECOND, "environment.cores", (0, 1)), "PAIR_SAME_CORES"),
        (PRIMARY, change(SECOND, "speed_policy", "cacheon.speed.v2"), "PAIR_POLICY"),
        (PRIMARY, change(SECOND, "stages.0.checks.0", PRIMARY.stages[0].checks[0]), "PAIR_SAME_INPUTS"),
        (PRIMARY, change(SECOND, "launches.9.end_ns", 3 * 10**9), "PAIR_CLOCK_SET_BACK"),
        (PRIMARY, reproduce(started_unix_ns=PRIMARY.started_unix_ns), "PAIR_NOT_LATER"),
    ],
)
def test_a_pair_that_is_not_independent_has_a_code(primary: Attempt, second: Attempt, code: str) -> None:
    """Each thing that must be equal or different is checked from the files."""
    assert check_pair(primary, second) == code


def ranks(attempt: Attempt, number: int, *ids: str) -> Attempt:
    """Return `attempt` with a candidate of several processes in one launch."""
    return change(attempt, f"launches.{number}.candidate.arms.0.processes", ids)


def linked(primary: Attempt, second: Attempt) -> Attempt:
    """Return `second` as a reproduction of `primary`."""
    return msgspec.structs.replace(second, previous_attempt=attempt_digest(encode_attempt(primary)))


def test_processes_of_groups_are_compared_one_by_one() -> None:
    """One rank that served in both attempts is enough, whatever its place among the others."""
    primary = ranks(PRIMARY, 2, "9:1", "9:2", "9:3")
    assert check_pair(primary, linked(primary, ranks(SECOND, 5, "8:1", "8:2"))) == ""
    assert check_pair(primary, linked(primary, ranks(SECOND, 5, "8:1", "9:3"))) == "PAIR_SAME_PROCESS"
    with pytest.raises(GradeError, match="PROCESS_REUSED"):
        grade(ranks(ranks(PRIMARY, 2, "9:1", "9:2"), 3, "9:2"), ARENA)
    with pytest.raises(GradeError, match="PROCESS_REUSED"):
        grade(ranks(PRIMARY, 2, "9:1", "9:1"), ARENA)


def test_on_another_machine_process_ids_and_cores_prove_nothing() -> None:
    """Ids are unique on one machine only, and another machine's cores are other cores."""
    elsewhere = change(change(SECOND, "environment.machine", "other"), "environment.cores", (0, 1))
    same_ids = change(
        elsewhere, "launches.0.candidate.arms.0.processes", PRIMARY.launches[0].candidate.arms[0].processes
    )
    assert check_pair(PRIMARY, same_ids) == ""


def first_schema(attempt: Attempt) -> Attempt:
    """Return `attempt` as a referee of the first schema would have written it."""
    return read_attempt(encode_attempt(msgspec.structs.replace(attempt, schema=SCHEMAS[0])))


def test_a_pair_may_be_of_two_schemas() -> None:
    """A primary from before an upgrade is reproduced after it; ids of ranks that stood joined are told apart."""
    primary = first_schema(ranks(PRIMARY, 2, "9:1", "9:2"))
    assert primary.schema == SCHEMAS[0]
    assert check_pair(primary, linked(primary, SECOND)) == ""
    assert check_pair(primary, linked(primary, ranks(SECOND, 4, "9:2"))) == "PAIR_SAME_PROCESS"
    older_second = first_schema(SECOND)
    assert check_pair(PRIMARY, older_second) == ""
    verdicts = [grade(one, ARENA) for one in (PRIMARY, first_schema(FakeReferee(ARENA, number=2).measure()))]
    assert credited_speedup_ppm(*verdicts) == min(one.lower_ppm for one in verdicts) > 1_050_000


def test_the_digest_of_the_file_counts_when_it_is_known() -> None:
    """A primary that would be written otherwise today is still the file that was reproduced."""
    assert check_pair(PRIMARY, reproduce(previous_attempt=digest("file")), primary_digest=digest("file")) == ""
    assert check_pair(PRIMARY, SECOND, primary_digest=digest("file")) == "PAIR_NOT_LINKED"


def test_a_machine_that_lends_one_core_has_nothing_to_exchange() -> None:
    """Both arms may share one core in both attempts."""
    primary = change(PRIMARY, "environment.cores", (1, 1))
    named = attempt_digest(encode_attempt(primary))
    second = msgspec.structs.replace(change(SECOND, "environment.cores", (1, 1)), previous_attempt=named)
    assert check_pair(primary, second) == ""


def test_the_credit_is_the_smaller_lower_bound_of_two_passes() -> None:
    """A pair earns what both attempts prove, and nothing unless both pass."""
    one, two = grade(PRIMARY, ARENA), grade(FakeReferee(ARENA, number=2, gain=0.2).measure(), ARENA)
    assert credited_speedup_ppm(one, two) == credited_speedup_ppm(two, one) == two.lower_ppm < one.lower_ppm
    failed = grade(FakeReferee(ARENA, number=2, gain=0.0).measure(), ARENA)
    assert credited_speedup_ppm(one, failed) == credited_speedup_ppm(failed, one) == 0
