"""Attempt files that real referees wrote, kept for ever: each is read, and graded, as on the day it was made.

Every folder of `tests/golden/attempts` belongs to one schema. A file was measured by real sandboxed arms, and is
gzipped; beside it stand the arena that it names and the verdict it got. They are never made anew: a change that cannot
regrade them is wrong.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from config.arena import Arena, load_arena
from scoring.attempt import read_attempt
from scoring.grade import grade
from scoring.reproduce import check_pair, credited_speedup_ppm

GOLDEN = Path(__file__).parent.parent / "golden" / "attempts"
FILES = sorted(GOLDEN.glob("*/*.json.gz"), key=str)
V1_KINDS = {
    "PASS", "NOT_FASTER", "WRONG_OUTPUT", "LATE_WRITE", "ARM_RAISED", "SLOW_START", "BASELINE_FAILED", "MACHINE_UNFIT",
    "TIME_BUDGET_SHORT", "IMPLAUSIBLE_SPEEDUP",
}  # fmt: skip
V2_KINDS = {"PASS", "NOT_FASTER", "SLOW_FIRST_CALL", "CANDIDATE_TOO_SLOW"}  # what the first schema did not record


def expected_of(file: Path) -> dict[str, Any]:
    """Return the digest, the arena and the verdict that stand beside `file`."""
    found: dict[str, Any] = json.loads(file.with_name(file.name.replace(".json.gz", ".verdict.json")).read_text())
    return found


def arena_of(file: Path) -> Arena:
    """Return the arena document that `file` was measured under."""
    return load_arena(str(file.with_name(expected_of(file)["arena"])))


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.name.partition('.')[0]}")
def test_a_kept_attempt_gets_the_verdict_it_got(file: Path) -> None:
    """Digest, arena and every field of the verdict are what they were, whatever has become of the grader."""
    data, expected = gzip.decompress(file.read_bytes()), expected_of(file)
    attempt = read_attempt(data, expected_digest=expected["digest"])
    for subject in (data, attempt):
        assert msgspec.to_builtins(grade(subject, arena_of(file))) == expected["verdict"]


def test_the_kept_files_cover_the_kinds_of_endings() -> None:
    """There is a file for each way in which an attempt of the first schema ended, small enough to keep."""
    first = [file for file in FILES if file.parent.name == "v1"]
    assert {expected_of(file)["verdict"]["code"] for file in first} == V1_KINDS
    documents = [read_attempt(gzip.decompress(file.read_bytes())) for file in first]
    assert any(one.identity.gaps for one in documents)
    assert any(one.identity.slots for one in documents)
    assert any("+" in launch.candidate.process for one in documents for launch in one.launches)
    assert sum(file.stat().st_size for file in FILES) < 256 * 1024


def test_the_kept_files_of_the_second_schema_hold_what_it_added() -> None:
    """Durations of all checked calls, work, arms with what they used, software, and the policy are there."""
    second = [file for file in FILES if file.parent.name == "v2"]
    assert {expected_of(file)["verdict"]["code"] for file in second} == V2_KINDS
    for one in (read_attempt(gzip.decompress(file.read_bytes())) for file in second):
        assert one.speed_policy == "cacheon.speed.v2"
        assert [work.least_bytes for work in one.work] == [512 * 4096 * 3 * 2]  # two halves read, one written
        assert one.environment.packages
        for role in (role for launch in one.launches for role in (launch.baseline, launch.candidate)):
            assert len(role.warmup_ns) == len(role.warmup)
            assert all(arm.outcome.cpu_ns and arm.outcome.peak_rss_bytes for arm in role.arms)


@pytest.mark.parametrize(
    ("schema", "arena", "earned"),
    [("v1", "cpu-small.toml", 1_242_501), ("v2", "kept-v2-plain.toml", 1_080_948)],
)
def test_the_kept_pair_earns_what_it_earned(schema: str, arena: str, earned: int) -> None:
    """The reproduction still reproduces its primary, and both earn the smaller bound."""
    one, two = (read_attempt(gzip.decompress((GOLDEN / schema / f"{name}.json.gz").read_bytes()))
                for name in ("pass", "pass_again"))  # fmt: skip
    document = load_arena(str(GOLDEN / schema / arena))
    assert check_pair(one, two) == ""
    assert credited_speedup_ppm(grade(one, document), grade(two, document)) == earned
