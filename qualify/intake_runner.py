"""The trusted parent of screening children: archive bytes in, a proved bundle out.

Invariants
1. This process never parses the archive: it reads back a canonical file stream and recomputes every hash of it.
2. Refusals and limits are `IntakeError`s and final for these bytes. What may be this host's fault is `HostError`, what
   can only be ours is `InternalError`; both may be tried again.
3. The archive is handed over in sealed memory, the answer comes back in memory whose size the kernel bounds; both are
   read only after the child is dead.
"""

from __future__ import annotations

import fcntl
import os
import threading
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from config.errors import Blame, HostError, IntakeError, InternalError, SourceLocation
from config.limits import INTAKE, IntakeLimits
from intake.report import IntakeReport
from qualify.intake_child import ScreenRequest
from qualify.intake_frame import Answer, frame_bytes, read_answer
from qualify.sandbox.client import Zygote
from qualify.sandbox.closing import Closing
from qualify.sandbox.outcome import Outcome, OutcomeKind
from qualify.sandbox.policy import SandboxPolicy

_MIB = 1 << 20
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
_PRELOAD = ("qualify.intake_child",)

INTAKE_POLICY = SandboxPolicy(
    memory_bytes=1536 * _MIB,
    cpu_seconds=60,
    wall_seconds=180.0,
    output_bytes=256 << 10,
    processes=1,
    scratch_bytes=_MIB,
    file_bytes=frame_bytes(),
    open_files=32,
)


@dataclass(frozen=True, slots=True)
class ScreenedBundle:
    """An accepted bundle, ready for `intake.publish.publish`: its report and its canonical file stream."""

    report: IntakeReport
    stream: memoryview


class ScreeningRefused(IntakeError):  # noqa: N818 - named for what happened to the bundle
    """A bundle that the screens refuse.

    `report` holds every finding; `seen_hash` is what the archive hashed to, as the child says, and empty when unknown.
    """

    def __init__(self, answer: Answer) -> None:
        document = answer.report.error
        if document is None:
            raise InternalError("INTAKE_ANSWER_MALFORMED", "an accepted bundle was taken for a refused one.")
        super().__init__(
            document.code,
            document.message,
            hint=document.hint,
            blame=Blame(document.blame) if document.blame in set(Blame) else None,
            location=SourceLocation.read(document.location) if document.location else None,
        )
        self.report = answer.report
        self.seen_hash = answer.seen_hash


class IntakeRunner(Closing):
    """Screens archives one child at a time or several side by side; every method may be called from any thread.

    The fork server behind it starts with the first archive and is replaced when it dies.
    """

    def __init__(
        self,
        *,
        waive: tuple[str, ...] = (),
        policy: SandboxPolicy = INTAKE_POLICY,
        limits: IntakeLimits = INTAKE,
    ) -> None:
        self._policy = replace(policy, waive=waive)
        self._limits = limits
        self._lock = threading.Lock()
        self._zygote: Zygote | None = None

    def run(
        self, archive: bytes | memoryview | Path, expected_hash: str, *, allow_legacy_abi: bool = False
    ) -> ScreenedBundle:
        """Screen an archive that was committed under `expected_hash` (64 lower-case hex characters).

        `allow_legacy_abi`: the submission was finalized before the ABI cut-over. The report keeps the spelling as
        written.

        Raises `ScreeningRefused` for a bundle that breaks rules, `IntakeError` INTAKE_LIMIT_MEMORY, INTAKE_LIMIT_CPU,
        INTAKE_LIMIT_DISK, INTAKE_LIMIT_PROCESSES, INTAKE_LIMIT_OUTPUT or INTAKE_CHILD_CRASHED for bytes the child
        cannot survive, `HostError` for a missing layer, a dead fork server, an unreadable archive or a child that the
        host ended (INTAKE_HOST_INTERFERED), and `InternalError` INTAKE_CHILD_FAILED or INTAKE_ANSWER_MALFORMED for
        faults of ours.
        """
        data = _read(archive, self._limits)
        source = _sealed(data)
        answer = os.memfd_create("intake-answer", os.MFD_CLOEXEC)
        try:
            self._screen(source, answer, ScreenRequest(expected_hash, allow_legacy_abi))
            frame = _contents(answer)
        finally:
            os.close(source)
            os.close(answer)
        result = read_answer(frame, expected_hash, limits=self._limits)
        if not result.report.accepted:
            raise ScreeningRefused(result)
        return ScreenedBundle(result.report, result.stream)

    def close(self) -> None:
        """End the fork server and every child; safe to call more than once."""
        with self._lock:
            zygote, self._zygote = self._zygote, None
        if zygote is not None:
            zygote.close()

    def _screen(self, source: int, answer: int, request: ScreenRequest) -> None:
        argument = msgspec.json.encode(request)
        zygote = self._warm()
        try:
            with zygote.spawn("intake", self._policy, (source, answer), argument) as child:
                outcome = child.wait()
        except HostError as error:
            if error.code == "SANDBOX_ZYGOTE_GONE":
                self._discard(zygote)
            raise
        _raise_for(outcome, self._policy)

    def _warm(self) -> Zygote:
        with self._lock:
            if self._zygote is None:
                self._zygote = Zygote.start(_PRELOAD)
            return self._zygote

    def _discard(self, zygote: Zygote) -> None:
        with self._lock:
            if self._zygote is zygote:
                self._zygote = None
        zygote.close()


def _raise_for(outcome: Outcome, policy: SandboxPolicy) -> None:
    """Turn the ending of a child into an error with the right blame; return for a child that ended well."""
    match outcome.kind:
        case OutcomeKind.EXITED if outcome.exit_status == 0:
            return
        case OutcomeKind.MEMORY_LIMIT:
            mib = policy.memory_bytes // _MIB
            raise _limit("INTAKE_LIMIT_MEMORY", f"screening the bundle needs more than {mib} MiB of memory.")
        case OutcomeKind.CPU_LIMIT:
            seconds = policy.cpu_seconds
            raise _limit("INTAKE_LIMIT_CPU", f"screening the bundle needs more than {seconds} s of processor time.")
        case OutcomeKind.OUTPUT_LIMIT:
            raise _limit("INTAKE_LIMIT_OUTPUT", "screening the bundle made the child write without end.")
        case OutcomeKind.DISK_LIMIT:
            mib = policy.scratch_bytes // _MIB
            raise _limit("INTAKE_LIMIT_DISK", f"screening the bundle fills more than {mib} MiB of disk.")
        case OutcomeKind.PROCESS_LIMIT:
            raise _limit("INTAKE_LIMIT_PROCESSES", f"screening the bundle starts more than {policy.processes} tasks.")
        case OutcomeKind.SIGNALED:
            raise _limit("INTAKE_CHILD_CRASHED", f"the bundle crashed the screening child: {outcome.describe()}.")
        case OutcomeKind.EXITED:
            last = outcome.log.decode("utf-8", "replace").strip().rpartition("\n")[2][:200]
            raise InternalError("INTAKE_CHILD_FAILED", f"the screening child failed: {last!r}.")
        case _:
            raise HostError(
                "INTAKE_HOST_INTERFERED",
                f"the screening child did not finish, and not because of the bundle: {outcome.describe()}.",
                hint="Look for memory pressure or an overloaded machine; the archive is screened again.",
            )


def _limit(code: str, message: str) -> IntakeError:
    return IntakeError(code, message, hint="Make the bundle smaller or simpler.")


def _read(archive: bytes | memoryview | Path, limits: IntakeLimits) -> bytes | memoryview:
    if isinstance(archive, Path):
        try:
            with archive.open("rb") as file:
                archive = file.read(limits.archive_bytes + 1)
        except OSError as error:
            raise HostError("INTAKE_ARCHIVE_UNREADABLE", f"a fetched archive cannot be read: {error}.") from error
    if len(archive) > limits.archive_bytes:
        raise IntakeError("ARCHIVE_TOO_LARGE", f"the archive has more than {limits.archive_bytes} bytes.")
    if not len(archive):
        raise IntakeError(
            "ARCHIVE_NOT_GZIP", "the archive is empty.", hint="Host the .tar.gz that chain-package wrote."
        )
    return archive


def _sealed(data: bytes | memoryview) -> int:
    descriptor = os.memfd_create("intake-archive", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    return descriptor


def _contents(descriptor: int) -> memoryview:
    with os.fdopen(os.dup(descriptor), "rb") as file:
        file.seek(0)
        return memoryview(file.read())
