"""Whatever is done to an attempt file, grading it ends with a `GradeError` or with a verdict on whole evidence."""

from __future__ import annotations

import copy
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.canonical import CanonicalJsonError, canonical_json
from config.errors import GradeError
from scoring.attempt import SCHEMAS, Attempt, attempt_digest, encode_attempt, read_attempt
from scoring.grade import Verdict, grade
from scoring.reproduce import check_pair
from tests.scoring.support import FakeReferee, change, make_arena

ARENA = make_arena(launches_min=4, launches_max=4, blocks_per_launch=2, calls_per_block=1)
V2 = FakeReferee(ARENA).measure()
V1 = read_attempt(encode_attempt(msgspec.structs.replace(V2, schema=SCHEMAS[0])))
DATA = {"v1": encode_attempt(V1), "v2": encode_attempt(V2)}
VERDICTS = {name: grade(data, ARENA) for name, data in DATA.items()}
SCHEMA_NAMES = sorted(DATA)
INTEGERS = st.sampled_from([0, 1, -1, 2, 7, 10**6, 2**31 - 1, 2**31, 2**62, 2**63, 10**30, -(2**63)])
SCALARS = st.one_of(
    INTEGERS, st.none(), st.booleans(), st.text(max_size=4), st.just("f" * 64), st.just([]), st.just({}),
    st.just("incident"), st.just("time"), st.just("candidate"), st.just("baseline"), st.just("\ud800"),
)  # fmt: skip


def graded(data: bytes) -> Verdict | None:
    """Return the verdict, or None for a refusal; any other exception is a fault of the grader's."""
    try:
        return grade(data, ARENA)
    except GradeError as error:
        assert error.code.isupper()  # noqa: PT017 - refusing is right as well
        return None


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all values inside a document."""
    found = [path] if path else []
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        found += places(item, (*path, key))
    return found


DOCUMENTS = {name: json.loads(data) for name, data in DATA.items()}
PLACES = {name: places(document) for name, document in DOCUMENTS.items()}


def mutated(name: str, path: tuple[Any, ...], how: str, new: Any) -> Any:
    """Return the document with what stands at `path` replaced, deleted, doubled, or exchanged with its neighbour."""
    document = copy.deepcopy(DOCUMENTS[name])
    holder = document
    for key in path[:-1]:
        holder = holder[key]
    key = path[-1]
    if how == "delete":
        del holder[key]
    elif how == "double" and isinstance(holder, list):
        holder.insert(key, copy.deepcopy(holder[key]))
    elif how == "exchange" and isinstance(holder, list) and key:
        holder[key - 1], holder[key] = holder[key], holder[key - 1]
    elif how == "add" and isinstance(holder, dict):
        holder["more"] = new
    else:
        holder[key] = new
    return document


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(SCHEMA_NAMES), st.data())
def test_no_change_of_structure_escapes_the_error_family(name: str, data: st.DataObject) -> None:
    """A value changed, deleted, doubled, moved or added anywhere: a refusal, or a verdict under another digest."""
    path = data.draw(st.sampled_from(PLACES[name]))
    how = data.draw(st.sampled_from(["replace", "delete", "double", "exchange", "add"]))
    document = mutated(name, path, how, data.draw(SCALARS))
    try:
        encoded = canonical_json(document)
    except CanonicalJsonError:
        return  # half a surrogate pair has no bytes at all
    verdict = graded(encoded)
    if verdict is not None:
        assert grade(read_attempt(encoded), ARENA) == verdict
        if encoded != DATA[name]:
            with pytest.raises(GradeError) as refused:
                read_attempt(encoded, expected_digest=attempt_digest(DATA[name]))
            assert refused.value.code == "ATTEMPT_DIGEST_MISMATCH"


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(SCHEMA_NAMES), st.integers(0, 10**6), st.binary(max_size=3), st.integers(0, 3))
def test_no_change_of_bytes_goes_unnoticed(name: str, at: int, new: bytes, cut: int) -> None:
    """Bytes replaced, inserted or cut: never another exception, and never under the digest of the whole file."""
    data = DATA[name]
    at %= len(data)
    changed = data[:at] + new + data[at + cut :]
    graded(changed)
    if changed != data:
        with pytest.raises(GradeError) as refused:
            read_attempt(changed, expected_digest=attempt_digest(data))
        assert refused.value.code == "ATTEMPT_DIGEST_MISMATCH"
    else:
        assert grade(changed, ARENA) == VERDICTS[name]


NOT_NUMBERS = {"NaN": float("nan"), "infinity": float("inf"), "minus infinity": float("-inf"), "a fraction": 0.5}


@pytest.mark.parametrize("name", sorted(NOT_NUMBERS))
@pytest.mark.parametrize(
    "path", ["launches.0.blocks.0.candidate.call_ns.0", "launches.1.end_ns", "ended_unix_ns", "work.0.least_bytes"]
)
def test_what_is_no_whole_number_has_one_code(path: str, name: str) -> None:
    """In memory or in bytes, NaN, infinities and fractions never reach the arithmetic."""
    with pytest.raises(GradeError) as refused:
        grade(change(V2, path, NOT_NUMBERS[name]), ARENA)
    assert refused.value.code == "ATTEMPT_NOT_CANONICAL"


@pytest.mark.parametrize(
    ("path", "value", "code"),
    [
        ("launches.0.blocks.0.candidate.call_ns.0", 0, "TIMING_NOT_POSITIVE"),
        ("launches.0.blocks.0.candidate.call_ns.0", -5, "ATTEMPT_MALFORMED"),
        ("launches.0.blocks.0.candidate.call_ns", (), "LAUNCH_INCOMPLETE"),
        ("launches.0.blocks", V2.launches[0].blocks[:1], "LAUNCH_INCOMPLETE"),
        ("launches.0.blocks.0.candidate.checks", (), "LAUNCH_INCOMPLETE"),
        ("launches.0.candidate.warmup_ns", (1,), "LAUNCH_INCOMPLETE"),
        ("launches.0.candidate.arms", (), "ATTEMPT_MALFORMED"),
        ("launches.0.candidate.arms.0.processes", (), "ATTEMPT_MALFORMED"),
        ("launches.0.end_ns", 0, "CLOCK_BACKWARDS"),
        ("launches", V2.launches[:1], "ENDING_INCONSISTENT"),
        ("launches", (V2.launches[0], *V2.launches[:3]), "LAUNCH_MISSING"),
        ("stages", (), "CHECKS_MISSING"),
        ("stages.0.call_ns", (), "CHECKS_MISSING"),
        ("work", (), "WORK_INCONSISTENT"),
        ("work", V2.work[::-1], "WORK_INCONSISTENT"),
        ("speed_policy", "cacheon.speed.v9", "SPEED_POLICY_MISMATCH"),
        ("schema", "cacheon.attempt.v9", "ATTEMPT_SCHEMA_UNKNOWN"),
        ("identity.target_id", "no.such.target", "TARGET_NOT_IN_ARENA"),
        ("ended_unix_ns", 1, "TIMES_REVERSED"),
    ],
)
def test_every_kind_of_bad_input_has_its_code(path: str, value: object, code: str) -> None:
    """One code each, and never a number."""
    with pytest.raises(GradeError) as refused:
        grade(change(V2, path, value), ARENA)
    assert refused.value.code == code


def test_an_unknown_policy_has_a_code_even_where_the_arena_shares_it() -> None:
    """An arena that was built around the check of its own names is refused by the grader."""
    arena = msgspec.structs.replace(ARENA, speed_policy="cacheon.speed.v9")
    attempt = change(change(V2, "speed_policy", "cacheon.speed.v9"), "identity.arena_digest", arena.digest)
    with pytest.raises(GradeError) as refused:
        grade(attempt, arena)
    assert refused.value.code == "SPEED_POLICY_UNKNOWN"


@pytest.mark.parametrize("attempt", [V1, V2], ids=SCHEMA_NAMES)
def test_an_attempt_is_written_as_it_was_read(attempt: Attempt) -> None:
    """Both schemas survive reading and writing bit for bit, and get one verdict."""
    data = encode_attempt(attempt)
    assert encode_attempt(read_attempt(data)) == data
    assert grade(data, ARENA) == VERDICTS["v1"] == VERDICTS["v2"]


def test_one_attempt_twice_is_no_pair() -> None:
    """Neither the same file twice, nor a copy of it under the other role."""
    assert check_pair(V2, V2) == "PAIR_ROLES"
    named = attempt_digest(encode_attempt(V2))
    copied = msgspec.structs.replace(V2, role="reproduction", previous_attempt=named)
    assert check_pair(V2, copied) == "PAIR_SAME_ATTEMPT"
