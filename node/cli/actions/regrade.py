"""`cacheon regrade`: the verdict of an attempt file, worked out again from nothing but the file and its arena.

With two files: both verdicts, whether the second independently reproduces the first, and what the pair earns.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from config.arena import known_arenas, load_arena
from config.canonical import is_digest
from config.codes import load_codes
from config.errors import ConfigurationError, ExitCode, GradeError, NotFoundError
from config.limits import EVIDENCE
from node.cli.output import Output, facts
from node.cli.resolve import resolve_state
from scoring.attempt import Attempt, attempt_digest, read_attempt
from scoring.grade import grade
from scoring.reproduce import check_pair, credited_speedup_ppm

if TYPE_CHECKING:
    from rich.console import Console

EXIT = {"PASS": ExitCode.OK, "FAIL": ExitCode.REJECTED, "RETRY": ExitCode.NOT_FOUND}
_GZIP_WINDOW = 31  # zlib's word for "expect a gzip header"


class Regraded(msgspec.Struct, frozen=True):
    """The result as `--json` shows it. Bounds are ppm; 1_000_000 means equal speed."""

    path: str
    digest: str
    schema: str  # of the file
    policy: str
    reviewed: bool  # graded as after a person's review, because --reviewed was given
    attempt_id: str
    role: str
    content_hash: str
    target_id: str
    arena_id: str
    outcome: str
    code: str
    blame: str
    lower_ppm: int
    upper_ppm: int
    launches_used: int
    reason: str


class RegradedPair(msgspec.Struct, frozen=True):
    """Two attempts as `--json` shows them. `credited_ppm` is 0 and `broken_rule` a code unless they are a pair."""

    first: Regraded
    second: Regraded
    broken_rule: str
    credited_ppm: int


@dataclass(frozen=True)
class Source:
    """Where attempts, their arena and a node's state are, as the command line says; None means: the default."""

    arena: str | None
    config: str | None
    state: str | None
    reviewed: bool = False


def run(name: str, second: str | None, source: Source, *, as_json: bool) -> int:
    """Grade one attempt again, or a pair. Raises `GradeError` for a file that is no evidence or no pair, and
    `NotFoundError` (ATTEMPT_NOT_FOUND)."""
    output = Output("regrade", as_json=as_json)
    attempt, result = _regrade(name, source)
    if second is None:
        output.result(result, lambda console: _show(console, result))
        return int(EXIT[result.outcome])
    other, other_result = _regrade(second, source)
    broken = check_pair(attempt, other, primary_digest=result.digest)
    credited = 0 if broken else credited_speedup_ppm(result, other_result)
    pair = RegradedPair(result, other_result, broken, credited)
    output.result(pair, lambda console: _show_pair(console, pair))
    if broken:
        return int(ExitCode.REJECTED)
    return max(int(EXIT[one.outcome]) for one in (result, other_result))


def _regrade(name: str, source: Source) -> tuple[Attempt, Regraded]:
    path, expected = _locate(name, source.config, source.state)
    data = _read(path)
    attempt = read_attempt(data, expected_digest=expected)
    arena = load_arena(source.arena or _arena_of(attempt, path))
    verdict = grade(attempt, arena, reviewed=source.reviewed)
    return attempt, Regraded(
        path=str(path),
        digest=attempt_digest(data),
        schema=attempt.schema,
        policy=verdict.policy,
        reviewed=source.reviewed,
        attempt_id=attempt.attempt_id,
        role=attempt.role,
        content_hash=attempt.identity.content_hash,
        target_id=attempt.identity.target_id,
        arena_id=attempt.identity.arena_id,
        outcome=str(verdict.outcome),
        code=verdict.code,
        blame=str(verdict.blame),
        lower_ppm=verdict.lower_ppm,
        upper_ppm=verdict.upper_ppm,
        launches_used=verdict.launches_used,
        reason=verdict.reason,
    )


def _locate(name: str, config: str | None, state: str | None) -> tuple[Path, str]:
    """Return the file and, when it was named by digest, the digest that its bytes must have."""
    if not is_digest(name):
        return Path(name), ""
    from node.store.layout import StateLayout

    folder = StateLayout.at(resolve_state(config, state).state_dir).attempts
    found = sorted([*folder.glob(f"*/{name}.json.gz"), *folder.glob(f"{name}.json.gz")])
    if not found:
        raise NotFoundError(
            "ATTEMPT_NOT_FOUND", f"{folder} holds no attempt {name}", hint="`cacheon node status --json` lists attempts"
        )
    return found[0], name


def _arena_of(attempt: Attempt, path: Path) -> str:
    """Return the arena copy beside the attempts of a node or of a published folder, else the id of the built-in one.

    The grader compares digests, so a wrong document is refused and never used.
    """
    name = f"{attempt.identity.arena_digest}.toml"
    for folder in path.absolute().parents[1:3]:  # attempts/FILE as published, attempts/ID/FILE in a node's state
        if is_digest(attempt.identity.arena_digest) and (folder / "arenas" / name).is_file():
            return str(folder / "arenas" / name)
    if attempt.identity.arena_id not in known_arenas():
        raise ConfigurationError(
            "ARENA_NOT_FOUND", f"the arena {attempt.identity.arena_id!r} of this attempt is not built in",
            hint=f"give its document with --arena FILE; a node keeps it as arenas/{name}",
        )
    return attempt.identity.arena_id


def _read(path: Path) -> bytes:
    """Return the canonical bytes of an attempt file, plain or gzipped, never more than the limit allows."""
    try:
        with path.open("rb") as file:
            data = file.read(EVIDENCE.attempt_bytes + 1)
    except FileNotFoundError as error:
        raise NotFoundError(
            "ATTEMPT_NOT_FOUND", f"there is no file {path}", hint="give a path, or a digest with --state DIR"
        ) from error
    except OSError as error:
        raise ConfigurationError("ATTEMPT_UNREADABLE", f"{path} cannot be read: {error.strerror or error}") from error
    if not data.startswith(b"\x1f\x8b"):
        return data
    inflate = zlib.decompressobj(_GZIP_WINDOW)
    try:
        plain = inflate.decompress(data, EVIDENCE.attempt_bytes + 1)
    except zlib.error as error:
        raise GradeError("ATTEMPT_MALFORMED", f"{path} is not a readable gzip file: {error}") from error
    if len(plain) <= EVIDENCE.attempt_bytes and (not inflate.eof or inflate.unused_data):
        raise GradeError("ATTEMPT_MALFORMED", f"{path} is a truncated gzip file, or has bytes after its end")
    return plain


def _show(console: Console, result: Regraded) -> None:
    rows = [
        ("verdict", result.outcome + ("" if result.code == result.outcome else f" {result.code}")),
        ("reason", result.reason),
        ("blame", result.blame or "-"),
        ("speed bound", bound_text(result.lower_ppm, result.upper_ppm)),
        ("launches", str(result.launches_used)),
        ("target", result.target_id),
        ("content hash", result.content_hash),
        ("attempt", f"{result.attempt_id} ({result.role})"),
        ("digest", result.digest),
        ("read as", f"{result.schema}, graded under {result.policy}" + ", as reviewed by a person" * result.reviewed),
    ]
    facts(console, rows)


def _show_pair(console: Console, pair: RegradedPair) -> None:
    for number, one in enumerate((pair.first, pair.second), start=1):
        console.print(f"attempt {number}", markup=False)
        _show(console, one)
    if pair.broken_rule:
        text = f"no: {load_codes()[pair.broken_rule].summary} [{pair.broken_rule}]"
    else:
        text = "yes, the second reproduces the first"
    earned = f"{pair.credited_ppm / 1e6:.6f}x" if pair.credited_ppm else "nothing"
    facts(console, [("a pair", text), ("credited", earned)])


def bound_text(lower_ppm: int, upper_ppm: int) -> str:
    """Return a bound for a person: `at least 1.31x`, or `at most 1.02x` when only the upper side is informative."""
    if lower_ppm > 1_000_000:
        return f"at least {lower_ppm / 1e6:.2f}x"
    if 0 < upper_ppm < 1_000_000_000:
        return f"at most {upper_ppm / 1e6:.2f}x"
    return "-"
