"""A reproduction asks the same question again, independently."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scoring.attempt import Attempt, attempt_digest, encode_attempt
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
        (PRIMARY, reproduce(started_unix_ns=PRIMARY.started_unix_ns), "PAIR_NOT_LATER"),
    ],
)
def test_a_pair_that_is_not_independent_has_a_code(primary: Attempt, second: Attempt, code: str) -> None:
    """Each thing that must be equal or different is checked from the files."""
    assert check_pair(primary, second) == code


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
