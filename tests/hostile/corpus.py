"""The hostile corpus: one folder per cheat, put through the real intake and then the real referee.

Each folder holds a `bundle/` and an `expected.toml` (`Expected`). Two things are shown of every bundle
1. what static intake says of it, through the path of the node: archive, sandboxed child, report;
2. what the referee makes of it with static intake switched off, also when intake refuses it. The switch is
   `tests.qualify.support.describe_bundle`, which writes the accepting report that only intake writes in production.
The baseline of every measured row is `control_correct`, the honest code that the cheats are built on: whoever is
faster than that has cheated.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec
import tomli

from config.arena import load_arena
from config.errors import IntakeError
from intake.content_hash import hash_files
from intake.package import package_bytes
from intake.report import IntakeReport
from intake.scan import screen_directory
from qualify.intake_runner import IntakeRunner, ScreeningRefused
from qualify.referee import run_attempt
from qualify.sandbox.client import Zygote
from scoring.attempt import Attempt
from scoring.grade import Verdict, grade
from tests.qualify.support import describe_bundle, make_request

CORPUS = Path(__file__).resolve().parent
NAMES = sorted(path.parent.name for path in CORPUS.glob("*/expected.toml"))
CONTROL = "control"
OWN = "own"
CORRECT = "control_correct"

DETECTED, TOO_SLOW, SUCCEEDED, INCOMPLETE, AS_EXPECTED = (
    "detected",
    "too slow",
    "cheat succeeded",
    "incomplete",
    "as expected",
)
_TRIES = 3  # a busy machine may keep a row from being measured; the referee says so itself, and then it is repeated
_GAIN = ("PASS", "IMPLAUSIBLE_SPEEDUP")
NOTHING_GAINED = "NOT_FASTER"
_UNDECIDED = ("MACHINE_UNFIT", "TIME_BUDGET_SHORT")
_BY_CLOCK = (*_GAIN, NOTHING_GAINED, "CALL_DEADLINE", "SLOW_START", "SLOW_FIRST_CALL")


class Inflate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file too large to keep: `path` gets `head`, `count` times `unit`, `tail`."""

    path: str
    head: str
    unit: str
    count: int
    tail: str


class Expected(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a folder is about, and the endings that are right."""

    rows: tuple[str, ...]  # of catalogue.toml; "own" and "control" for what is in no catalogue
    mechanism: str
    intake: tuple[str, ...]  # codes of the findings of static intake, sorted; none = it passes
    codes: tuple[str, ...] = ()  # verdicts any of which is right; NOT_FASTER = all checks held, nothing was gained
    defence: str = ""  # of an own row; the catalogue has those of the others
    target: str = "activation.silu_and_mul"
    arena: str = "arena.toml"
    incumbent: str = CORRECT  # folder of the baseline's bundle; empty = the stock implementation
    role: Literal["candidate", "baseline"] = "candidate"
    challenger: str = CORRECT  # folder of the candidate that it meets as baseline
    copies: str = ""  # folder of the bundle it is a copy of: both must have one fingerprint
    committed: str = ""  # folder of the bundle whose hash was committed instead of its own
    inflate: Inflate | None = None


@dataclass(frozen=True)
class Result:
    """How one folder came out."""

    name: str
    expected: Expected
    status: str
    intake: tuple[str, ...]
    code: str
    detail: str

    @property
    def ok(self) -> bool:
        """Say whether the row, or the control, came out as it has to."""
        return self.status in (DETECTED, TOO_SLOW, AS_EXPECTED)


@dataclass(frozen=True)
class Stand:
    """What a run of the corpus needs: the two fork servers and a folder for reports."""

    scratch: Path
    intake: IntakeRunner
    fork_server: Zygote


def expected_of(name: str) -> Expected:
    """Read the expectation of one folder, strictly."""
    return msgspec.convert(tomli.loads((CORPUS / name / "expected.toml").read_text()), Expected)


def by_clock(name: str) -> bool:
    """Say whether a clock decides how a folder comes out, so that its run needs a machine to itself."""
    return not set(_BY_CLOCK).isdisjoint(expected_of(name).codes)


def files_of(name: str) -> dict[str, bytes]:
    """Return the file table of one folder's bundle."""
    tree = CORPUS / name / "bundle"
    files = {
        path.relative_to(tree).as_posix(): path.read_bytes()
        for path in tree.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    if one := expected_of(name).inflate:
        files[one.path] = (one.head + one.unit * one.count + one.tail).encode()
    return files


def run_row(name: str, stand: Stand) -> Result:
    """Run one folder of the corpus."""
    expected = expected_of(name)
    codes, report = _screen(name, expected, stand)
    if codes != expected.intake:
        said = " ".join(codes) or "nothing"
        return Result(name, expected, INCOMPLETE, codes, "", f"static intake says {said}")
    if expected.copies:
        original = screen_directory(CORPUS / expected.copies / "bundle").report.fingerprint
        caught = report is not None and report.fingerprint == original
        code = "COPY_OF_EARLIER" if caught else ""
        return Result(name, expected, DETECTED if caught else SUCCEEDED, codes, code, f"fingerprint {original[:16]}")
    if not expected.codes:
        return Result(name, expected, DETECTED if codes else SUCCEEDED, codes, codes[0] if codes else "", "")
    verdict, attempt = _judge(name, expected, stand)
    detail = attempt.incidents[0].detail if attempt.incidents else verdict.reason
    return Result(name, expected, _status(verdict, attempt, expected), codes, verdict.code, detail)


def _screen(name: str, expected: Expected, stand: Stand) -> tuple[tuple[str, ...], IntakeReport | None]:
    files = files_of(name)
    committed = hash_files(files_of(expected.committed) if expected.committed else files)
    try:
        return (), stand.intake.run(package_bytes(files), committed).report
    except ScreeningRefused as refusal:
        return tuple(sorted({finding.code for finding in refusal.report.findings})), None
    except IntakeError as error:
        return (error.code,), None


def _judge(name: str, expected: Expected, stand: Stand) -> tuple[Verdict, Attempt]:
    arena_path = str(CORPUS / expected.arena)
    roles = (name, expected.incumbent) if expected.role == "candidate" else (expected.challenger, name)
    candidate, *incumbent = (
        describe_bundle(CORPUS / folder / "bundle", stand.scratch / f"{folder}.json") for folder in roles if folder
    )
    request = make_request(
        candidate, arena_path, target_id=expected.target, incumbent=incumbent[0] if incumbent else None
    )
    for _ in range(_TRIES):
        attempt = run_attempt(request, lambda event: None, stand.fork_server)
        verdict = grade(attempt, load_arena(arena_path))
        if verdict.code in (*expected.codes, *_GAIN):
            break
        if verdict.outcome == "FAIL" and "PASS" not in expected.codes:
            break
        if not attempt.incidents and NOTHING_GAINED in expected.codes:
            break  # measured to the end with all checks held; that the machine was busy gives nobody a crown
    return verdict, attempt


def _status(verdict: Verdict, attempt: Attempt, expected: Expected) -> str:
    right = verdict.code in expected.codes
    all_held = not attempt.incidents and verdict.code in (NOTHING_GAINED, *_UNDECIDED)
    if CONTROL in expected.rows:
        return AS_EXPECTED if right or (all_held and NOTHING_GAINED in expected.codes) else INCOMPLETE
    if verdict.code in _GAIN:
        return SUCCEEDED
    if all_held:
        return TOO_SLOW if NOTHING_GAINED in expected.codes else SUCCEEDED  # it had to be caught
    return DETECTED if right else INCOMPLETE
