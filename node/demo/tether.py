"""Start a program that dies with its parent: `python -m node.demo.tether PARENT_PID PROGRAM ARGUMENTS...`.

Invariants
1. The kernel kills this process the moment its parent is gone, however the parent went; the setting survives exec.
2. A parent that died before the setting took effect is noticed, and nothing is started.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import NoReturn

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> NoReturn:
    """Tie this process to its parent, then become `PROGRAM`; exit with 1 when the parent is gone."""
    parent, program = int(arguments[0]), arguments[1:]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0 or os.getppid() != parent:
        sys.exit(1)
    os.execv(program[0], program)


if __name__ == "__main__":
    main(sys.argv[1:])
