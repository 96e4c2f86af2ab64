"""`cacheon regrade`: the verdict of an attempt file, worked out again from nothing but the file and its arena."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from config.arena import load_arena
from config.canonical import is_digest
from config.errors import ConfigurationError, ExitCode, GradeError, NotFoundError
from config.limits import EVIDENCE
from node.cli.output import Output, facts
from node.cli.resolve import resolve_state
from scoring.attempt import Attempt, attempt_digest, read_attempt
from scoring.grade import grade

if TYPE_CHECKING:
    from rich.console import Console

EXIT = {"PASS": ExitCode.OK, "FAIL": ExitCode.REJECTED, "RETRY": ExitCode.NOT_FOUND}
_GZIP_WINDOW = 31  # zlib's word for "expect a gzip header"


class Regraded(msgspec.Struct, frozen=True):
    """The result as `--json` shows it. Bounds are ppm; 1_000_000 means equal speed."""

    path: str
    digest: str
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


def run(name: str, arena_name: str | None, *, config: str | None, state: str | None, as_json: bool) -> int:
    """Grade again. Raises `GradeError` for a file that is no evidence, `NotFoundError` (ATTEMPT_NOT_FOUND)."""
    path, expected = _locate(name, config, state)
    data = _read(path)
    attempt = read_attempt(data, expected_digest=expected)
    verdict = grade(attempt, load_arena(arena_name or _arena_of(attempt, path)))
    result = Regraded(
        path=str(path),
        digest=attempt_digest(data),
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
    Output("regrade", as_json=as_json).result(result, lambda console: _show(console, result))
    return int(EXIT[result.outcome])


def _locate(name: str, config: str | None, state: str | None) -> tuple[Path, str]:
    """Return the file and, when it was named by digest, the digest that its bytes must have."""
    if not is_digest(name):
        return Path(name), ""
    from node.store.layout import StateLayout

    folder = StateLayout.at(resolve_state(config, state).state_dir).attempts
    found = sorted(folder.glob(f"*/{name}.json.gz"))
    if not found:
        raise NotFoundError(
            "ATTEMPT_NOT_FOUND", f"{folder} holds no attempt {name}", hint="`cacheon node status --json` lists attempts"
        )
    return found[0], name


def _arena_of(attempt: Attempt, path: Path) -> str:
    """Return the arena copy that a node keeps beside its attempts, else the id of the built-in one.

    The grader compares digests, so a wrong document is refused and never used.
    """
    kept = path.absolute().parent.parent.parent / "arenas" / f"{attempt.identity.arena_digest}.toml"
    if is_digest(attempt.identity.arena_digest) and kept.is_file():
        return str(kept)
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
    ]
    facts(console, rows)


def bound_text(lower_ppm: int, upper_ppm: int) -> str:
    """Return a bound for a person: `at least 1.31x`, or `at most 1.02x` when only the upper side is informative."""
    if lower_ppm > 1_000_000:
        return f"at least {lower_ppm / 1e6:.2f}x"
    if 0 < upper_ppm < 1_000_000_000:
        return f"at most {upper_ppm / 1e6:.2f}x"
    return "-"
