"""The program behind the worker check: `python -m node.doctor.worker_probe [CORE ...]`.

It imports what an attempt's process imports, asks for the core of the arms as an attempt does, and prints one line of
JSON. It runs in a process of its own because a broken library may end or hang whoever loads it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main(wanted: list[str]) -> int:
    """Print what an attempt's process would find; `wanted` are the settings' cores. The exit status is 0."""
    import torch

    import qualify.attempt_main  # noqa: F401 - that it can be imported is the question
    from config.errors import HostError
    from qualify.environment import choose_core

    answer: dict[str, object] = {"torch": str(torch.__version__)}
    try:
        core = choose_core([int(core) for core in wanted])
    except HostError as error:
        answer |= {"code": error.code, "message": error.message, "hint": error.hint}
    else:
        topology = Path(f"/sys/devices/system/cpu/cpu{core}")
        answer |= {
            "core": core,
            "siblings": _text(topology / "topology/thread_siblings_list"),
            "governor": _text(topology / "cpufreq/scaling_governor"),
        }
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


def _text(path: Path) -> str:
    try:
        return path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
