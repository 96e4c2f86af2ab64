"""Runs one attempt in its own trusted process and brings back its evidence file.

Invariants
1. The process gets an environment of four variables, no standard input, and dies with the node (parent-death signal).
2. Its output is a stream of small JSON lines; anything else, a missing file, a wrong digest or a late end is a fault of
   ours (`AttemptFaultError`), never of the candidate.
3. The evidence is accepted only when it tells of exactly the attempt that was asked for and opens the commitment that
   was announced before its first launch.
4. Leaving this function, also by cancellation, leaves no process behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gzip
import os
import signal
import sys
import zlib
from collections.abc import Awaitable, Callable
from importlib import resources
from pathlib import Path

import msgspec
import structlog

from config.errors import ErrorDocument, GradeError, InternalError
from config.limits import EVIDENCE
from qualify.request import AttemptRequest, encode_request
from scoring.attempt import Attempt, read_attempt

_PROGRAM = ("-m", "qualify.attempt_main")
_LINE_BYTES = 64 * 1024
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class AttemptFaultError(InternalError):
    """The attempt came to nothing through no fault of the candidate."""


class Evidence(msgspec.Struct, frozen=True):
    """A checked attempt file: its path, its digest and what it says."""

    path: str
    digest: str
    attempt: Attempt


class _Event(msgspec.Struct):
    event: str = ""
    commitment: str = ""
    path: str = ""
    digest: str = ""
    screen: str = ""
    outcome: str = ""
    code: str = ""
    index: int = -1
    lower_ppm: int | None = None
    upper_ppm: int | None = None
    error: ErrorDocument | None = None


async def run_attempt(
    request: AttemptRequest, folder: Path, *, on_sealed: Callable[[str], Awaitable[None]], deadline_seconds: float
) -> Evidence:
    """Run `request` with `folder` (created) for its files. `on_sealed` gets the commitment before any launch.

    Raises `AttemptFaultError`: ATTEMPT_PROCESS_FAILED, ATTEMPT_TIMED_OUT, EVIDENCE_REFUSED.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    request_path = folder / "request.json"
    request_path.write_bytes(encode_request(request))
    with (folder / "referee.log").open("wb") as log_file:
        process = await asyncio.create_subprocess_exec(
            sys.executable, *_PROGRAM, "--request", str(request_path), "--out", str(folder),
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=log_file,
            cwd=Path(str(resources.files("qualify"))).parent, env=_environment(folder), limit=_LINE_BYTES,
            start_new_session=True, preexec_fn=_die_with_parent(os.getpid()),
        )
    try:
        async with asyncio.timeout(deadline_seconds):
            commitment, last = await _follow(process, request.attempt_id, on_sealed)
            status = await process.wait()
    except TimeoutError as error:
        raise AttemptFaultError(
            "ATTEMPT_TIMED_OUT", f"the attempt did not end within {deadline_seconds:.0f} s"
        ) from error
    finally:
        await _end(process)
    if status != 0 or last is None or last.event != "done":
        raise _failure(status, last)
    return await asyncio.to_thread(_accept, request, folder, commitment, last)


async def _follow(
    process: asyncio.subprocess.Process, attempt_id: str, on_sealed: Callable[[str], Awaitable[None]]
) -> tuple[str, _Event | None]:
    log = structlog.get_logger().bind(attempt=attempt_id)
    commitment, last = "", None
    if process.stdout is None:
        raise AttemptFaultError("ATTEMPT_PROCESS_FAILED", "the attempt process has no output stream")
    try:
        while line := await process.stdout.readline():
            event = msgspec.json.decode(line, type=_Event)
            if event.event == "sealed":
                commitment = event.commitment
                await on_sealed(commitment)
            elif event.event == "launch":
                log.info("attempt.launch", index=event.index, lower_ppm=event.lower_ppm, upper_ppm=event.upper_ppm)
            elif event.event == "screen" and event.outcome != "started":
                log.info("attempt.screen", screen=event.screen, outcome=event.outcome, code=event.code)
            elif event.event in ("done", "error"):
                last = event
    except (ValueError, msgspec.DecodeError) as error:
        raise AttemptFaultError(
            "ATTEMPT_PROCESS_FAILED", "the attempt process wrote something that is no event"
        ) from error
    return commitment, last


def _failure(status: int, last: _Event | None) -> AttemptFaultError:
    if last is not None and last.error is not None:
        message = f"the attempt failed: {last.error.message} [{last.error.code}]"
    else:
        message = f"the attempt process ended with status {status} and no evidence"
    return AttemptFaultError("ATTEMPT_PROCESS_FAILED", message)


def _accept(request: AttemptRequest, folder: Path, commitment: str, done: _Event) -> Evidence:
    path = Path(done.path)
    try:
        if path.resolve().parent != folder.resolve():
            raise AttemptFaultError("EVIDENCE_REFUSED", f"the attempt file lies outside its folder: {path}")
        attempt = read_attempt(read_compressed(path), expected_digest=done.digest)
    except GradeError as error:
        raise AttemptFaultError("EVIDENCE_REFUSED", f"the attempt file is refused: {error}") from error
    asked = (request.attempt_id, request.role, request.previous_attempt, request.candidate.content_hash, commitment)
    told = (
        attempt.attempt_id, attempt.role, attempt.previous_attempt, attempt.identity.content_hash,
        attempt.seed.commitment,
    )
    if asked != told:
        raise AttemptFaultError("EVIDENCE_REFUSED", f"the attempt file tells of another attempt: {told}, not {asked}")
    return Evidence(str(path), done.digest, attempt)


def read_compressed(path: Path) -> bytes:
    """Return the canonical bytes of a stored attempt file. Raises `GradeError` (ATTEMPT_UNREADABLE)."""
    try:
        with gzip.open(path) as stream:
            return stream.read(EVIDENCE.attempt_bytes + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise GradeError("ATTEMPT_UNREADABLE", f"the attempt file {path} cannot be read: {error}") from error


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill the process's whole group and reap it; also when our own task is being cancelled."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await asyncio.shield(process.wait())


def _environment(folder: Path) -> dict[str, str]:
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": str(folder), "PYTHONNOUSERSITE": "1"}


def _die_with_parent(parent: int) -> Callable[[], None]:
    def prepare() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # the node died before the call took effect
            os._exit(1)

    return prepare
