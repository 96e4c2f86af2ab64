"""The store after SIGKILL at any moment: everything that was reported as committed is there, and nothing is torn."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from pathlib import Path

import pytest
from sqlalchemy import func, select

from node.jobs import JobState
from node.store.engine import Store
from node.store.events import verify_chain
from node.store.job_rows import entries, recover_all
from node.store.layout import StateLayout
from node.store.schema import submissions
from node.store.submission_rows import read_cursor

pytestmark = pytest.mark.crash

WRITER = """
import asyncio, sys
from node.jobs import JobState, RetryBudget, transition
from node.store.engine import Store
from node.store.job_rows import claim, recover_all, save
from node.store.layout import StateLayout
from node.store.submission_rows import read_cursor
from tests.node.support import GENESIS, record, submission

async def main():
    store = await Store.open(StateLayout.at(sys.argv[1]))
    await store.bind(GENESIS, 2)
    await store.write(recover_all)
    before = await store.read(read_cursor)
    number = before.block if before else 0
    print("open", flush=True)
    while True:
        number += 1
        await record(store, submission(number))
        for entry in await store.write(claim, JobState.RESERVED, JobState.FETCHING, RetryBudget(1, 1, 1), 1):
            await store.write(save, entry.job, transition(entry.job, JobState.READY, entry.job.token))
        print(number, flush=True)

asyncio.run(main())
"""


async def _run_and_kill(folder: Path, seconds: float, *, first: bool) -> int:
    """Run the writer for `seconds` after it opened, kill it, and return the last number it reported.

    The `first` writer begins with an empty store; it is killed `seconds` after it filled in something.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WRITER, str(folder), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"open\n"
    reported = int(await process.stdout.readline()) if first else 0
    await asyncio.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    lines = (await process.stdout.read()).split()
    await process.wait()
    return int(lines[-1]) if lines else reported


async def test_killed_writer_leaves_whole_transactions(tmp_path: Path) -> None:
    """Killed five times at random moments, the store keeps cursor, rows, tokens and ledger in step."""
    dice = random.Random(7)
    reported = 0
    for number in range(5):
        reported = max(reported, await _run_and_kill(tmp_path, dice.uniform(0.01, 0.25), first=number == 0))
        store = await Store.open(StateLayout.at(tmp_path))
        cursor = await store.read(read_cursor)
        rows = await store.read(lambda connection: connection.scalar(select(func.count()).select_from(submissions)))
        assert cursor is not None
        assert rows == cursor.block >= reported
        await store.read(verify_chain)
        await store.write(recover_all)
        states = {entry.job.state for entry in await store.read(entries)}
        assert states <= {JobState.RESERVED, JobState.READY}
        await store.close()
