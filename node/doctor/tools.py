"""Asks other programs of the machine for their version or state.

Invariants
1. Programs are looked for in fixed folders, so an empty or strange PATH changes nothing.
2. A program gets no input, an almost empty environment and a deadline; what it prints is cut.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass

_FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/nvidia/bin")
_PATH = ":".join(_FOLDERS)
_KEPT = 16_384


@dataclass(frozen=True, slots=True)
class Answer:
    """What a program said. `ok` is false when it failed, hung or could not be started; `text` then says how."""

    ok: bool
    text: str


def find_tool(name: str) -> str | None:
    """Return the path of a program, or None when this machine has none."""
    return shutil.which(name, path=_PATH)


def ask_tool(path: str, *arguments: str, seconds: float = 5.0) -> Answer:
    """Run a program and return what it printed."""
    try:
        done = subprocess.run(
            [path, *arguments], stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds,
            env={"PATH": _PATH, "LC_ALL": "C"}, cwd="/", check=False,
        )
    except subprocess.TimeoutExpired:
        return Answer(False, f"no answer within {seconds:g} s")
    except OSError as error:
        return Answer(False, str(error.strerror or error))
    text = (done.stdout or done.stderr)[:_KEPT].decode("utf-8", "replace").strip()
    return Answer(done.returncode == 0, text or f"exit status {done.returncode}")


def version_in(text: str) -> tuple[int, ...]:
    """Return the first dotted number of `text` as integers, () when there is none."""
    found = re.search(r"\d+(?:\.\d+)+", text)
    return tuple(int(part) for part in found.group().split(".")) if found else ()


def dotted(version: tuple[int, ...]) -> str:
    """Return a version as people write it."""
    return ".".join(map(str, version))
