"""A process that means to end, or that answers nobody any more, ends, whatever is stuck in it."""

from __future__ import annotations

import asyncio
import sys

import pytest

from config.errors import ExitCode

PARTS = """
import asyncio, os, signal, sys, threading, time
from node.exit_watch import ExitWatch
def stuck():
    print("stuck", flush=True)
    threading.Event().wait()
"""
THREAD = PARTS + """
async def main():
    watch = ExitWatch(stop_seconds=0.2, wedged_seconds=3600)
    with watch.watching_loop():
        asyncio.create_task(asyncio.to_thread(stuck))
        await asyncio.sleep(0)
        watch.arm()
asyncio.run(main())  # joins the thread, for ever
"""
LOOP = PARTS + """
async def main():
    with ExitWatch(wedged_seconds=0.5).watching_loop():
        stuck()
asyncio.run(main())
"""
LOCKED = PARTS + """
watch = ExitWatch(stop_seconds=0.2)
threading.Thread(target=stuck).start()
watch.arm()
sys.exit(0)  # joins the thread, for ever
"""
WELL = PARTS + """
async def main():
    watch = ExitWatch(stop_seconds=3600, wedged_seconds=3600)
    with watch.watching_loop():
        await asyncio.sleep(0)
    watch.arm()
    watch.arm()
asyncio.run(main())
print("well")
"""


async def run(script: str) -> tuple[int, str, str]:
    """Run a script; return its exit code, output and errors."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    output, errors = await process.communicate()
    return process.returncode or 0, output.decode(), errors.decode()


@pytest.mark.parametrize(
    ("script", "why"),
    [(THREAD, "does not end by itself"), (LOCKED, "does not end by itself"), (LOOP, "event loop stands still")],
    ids=["a worker thread hangs", "sys.exit waits for a thread", "the loop hangs"],
)
async def test_a_half_dead_call_cannot_keep_the_process(script: str, why: str) -> None:
    """A thread or loop that hangs for ever ends with the process, its stack on standard error and exit code 1."""
    code, output, errors = await run(script)
    assert (code, output) == (ExitCode.INTERNAL, "stuck\n")
    assert why in errors
    assert "in stuck" in errors


async def test_a_well_process_is_left_alone() -> None:
    """Nothing happens to a process that ends in time."""
    assert await run(WELL) == (0, "well\n", "")


async def test_a_loop_that_turns_is_never_ended() -> None:
    """Work in many small pieces does not look like a loop that stands still."""
    script = PARTS + """
async def main():
    with ExitWatch(wedged_seconds=4.0).watching_loop():
        end = time.monotonic() + 5
        while time.monotonic() < end:
            time.sleep(0.01)
            await asyncio.sleep(0)
asyncio.run(main())
print("well")
"""
    assert await run(script) == (0, "well\n", "")
