"""How a sandboxed process ended.

Invariants
1. Every run ends in exactly one `Outcome`, whatever the child did.
2. `kind` says what the trusted side saw: it never repeats a claim of the child, except `memory_limit` from the
   child's own MemoryError, which only ever harms the child that reports it.
   A child that sends itself the signal of a limit is believed as well; that harms nobody else either.
3. The log is bounded and is text of the child: data to show, never to interpret.
"""

from __future__ import annotations

import signal as signals
from dataclasses import dataclass
from enum import StrEnum

LOG_TAIL_BYTES = 64 << 10
MEMORY_EXIT_STATUS = 117
"""Exit status with which the entry wrapper reports a MemoryError; unusual enough not to be met by accident."""


class OutcomeKind(StrEnum):
    """The closed set of endings."""

    EXITED = "exited"
    SIGNALED = "signaled"
    WALL_LIMIT = "wall_limit"
    CPU_LIMIT = "cpu_limit"
    MEMORY_LIMIT = "memory_limit"
    OUTPUT_LIMIT = "output_limit"
    PROCESS_LIMIT = "process_limit"
    DISK_LIMIT = "disk_limit"
    REFUSED = "refused"
    KILLED = "killed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of one run.

    exit_status     of an `exited` child, else None
    signal          number of the signal that ended it, else None
    layer, detail   the missing layer of a refusal; one sentence of ours about the ending
    log, log_bytes  the last 64 KiB of output, and how many bytes were written in all
    layers          what was in force, such as "landlock:7"
    cpu_ns, wall_ns, peak_rss_bytes   what the child used; zero where it never ran
    rank            of a group: the rank that ended first, and with it the group
    """

    kind: OutcomeKind
    exit_status: int | None = None
    signal: int | None = None
    layer: str = ""
    detail: str = ""
    log: bytes = b""
    log_bytes: int = 0
    layers: tuple[str, ...] = ()
    cpu_ns: int = 0
    wall_ns: int = 0
    peak_rss_bytes: int = 0
    rank: int = 0

    @property
    def ok(self) -> bool:
        """True when the entry returned normally."""
        return self.kind is OutcomeKind.EXITED and self.exit_status == 0

    def describe(self) -> str:
        """Return one sentence for logs and receipts, without any text of the child."""
        match self.kind:
            case OutcomeKind.EXITED:
                return f"exited with status {self.exit_status}"
            case OutcomeKind.SIGNALED:
                return f"ended by {signal_name(self.signal)}"
            case OutcomeKind.REFUSED:
                return f"refused: layer {self.layer} is missing ({self.detail})"
            case _:
                return f"{self.kind.value}: {self.detail}"


def signal_name(number: int | None) -> str:
    """Return a readable name such as "SIGSEGV" for a signal number."""
    if number is None:
        return "no signal"
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"
