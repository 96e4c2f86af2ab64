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


def test_the_kept_pair_earns_what_it_earned() -> None:
    """The reproduction still reproduces its primary, and both earn the smaller bound."""
    one, two = (read_attempt(gzip.decompress((GOLDEN / "v1" / f"{name}.json.gz").read_bytes()))
                for name in ("pass", "pass_again"))  # fmt: skip
    arena = load_arena(str(GOLDEN / "v1" / "cpu-small.toml"))
    assert check_pair(one, two) == ""
    assert credited_speedup_ppm(grade(one, arena), grade(two, arena)) == 1_242_501
