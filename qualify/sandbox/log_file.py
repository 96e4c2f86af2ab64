"""What a child wrote, kept where no later child can find it.

Invariants
1. The bytes go from the pipe into a memory file inside the kernel and never through the memory of this process: every
   later child inherits a copy of that, and could read there what an earlier one had left for it.
2. All of it is kept; the limit on output, which ends the run, bounds it.
"""

from __future__ import annotations

import os

_STEP_BYTES = 64 << 10


class LogFile:
    """The output of one run. Not inherited by programs; children close it before anything foreign runs."""

    def __init__(self) -> None:
        self.total_bytes = 0
        self.descriptor = os.memfd_create("log", os.MFD_CLOEXEC)

    def take(self, pipe: int) -> bool:
        """Move one chunk out of a pipe that does not block; False at its end, when nothing is there, and without room.

        Without room, as where the node was started with a limit on file sizes, the rest of the log is lost.
        """
        try:
            moved = os.splice(pipe, self.descriptor, _STEP_BYTES, flags=os.SPLICE_F_NONBLOCK)
        except OSError:
            return False
        self.total_bytes += moved
        return moved > 0

    def close(self) -> None:
        """Let go of it, once."""
        os.close(self.descriptor)
