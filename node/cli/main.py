"""Entry point of the `cacheon` command.

Rules
1. Nothing is loaded here but the interpreter's own: an interrupt while the command is being loaded ends it without a
   traceback, as an interrupt later does.
2. Everything else is `node.cli.process`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

_INTERRUPTED = 130  # config.errors.ExitCode, which may not have been loaded yet


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return the exit code; without `arguments`, as the whole process."""
    try:
        from node.cli.process import run as run_command

        return run_command(arguments)
    except KeyboardInterrupt:
        return _INTERRUPTED


if __name__ == "__main__":
    sys.exit(run())
