"""Children that die with their parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PARENT = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-m", "node.demo.tether", str(os.getpid()), sys.executable, "-c",
                          "print('up', flush=True); import time; time.sleep(600)"], stdout=subprocess.PIPE, text=True)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(600)
"""


def gone(pid: int) -> bool:
    """Whether the process is dead (reaped, or waiting to be)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_killed_parent_takes_its_child_along() -> None:
    """SIGKILL on the parent ends the tethered program, although no code of the parent can run any more."""
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert not gone(child)
        parent.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 120
    while not gone(child):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_nothing_starts_for_a_parent_that_is_gone() -> None:
    """When the named parent is not the parent any more, the program is not started."""
    done = subprocess.run(
        [sys.executable, "-m", "node.demo.tether", str(os.getppid()), sys.executable, "-c", "print('up')"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 1
    assert done.stdout == ""
