"""The demo, killed with SIGKILL again and again on one state folder, still ends as it must.

Moments are random inside phases, so that every phase is hit: waiting for a phase, then a random delay. The seed is
printed; set DEMO_KILL_SEED to repeat a run.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from chain.blocks import BlockRef
from chain.client import ChainClient
from chain.hyperparameters import read_hyperparameters
from config.errors import CacheonError
from node.demo.place import Place
from node.demo.settings_file import NETUID
from node.status import NodeStatus, read_status
from node.store.engine import reader_engine
from node.store.events import verify_chain
from node.store.layout import StateLayout
from tests.crash.warm_demo import Demo, demos

PR_SET_CHILD_SUBREAPER = 36
WEIGHT_EVENTS = ("TimelockedWeightsCommitted", "WeightsSet")
DEMO = [sys.executable, "-m", "node.cli.main", "demo", "--json", "--state"]


@dataclass(frozen=True)
class Phase:
    """When to strike: a random delay of at most `spread` seconds after `reached` holds for a demo that runs."""

    name: str
    reached: Callable[[Place, NodeStatus | None], bool]
    spread: float
    kills: int


def _has(status: NodeStatus | None, test: Callable[[NodeStatus], bool]) -> bool:
    return status is not None and status.running_pid != 0 and test(status)


PHASES = (
    Phase("preparing", lambda place, status: True, 1.5, 2),
    Phase("the chain starts, miners commit", lambda place, status: place.chain_state.exists(), 2.5, 4),
    Phase("the node starts", lambda place, status: _has(status, lambda s: True), 1.5, 2),
    Phase(
        "archives are fetched and screened",
        lambda place, status: _has(status, lambda s: len(s.submissions) > 0),
        2.0,
        3,
    ),
    Phase(
        "a first attempt is measured",
        lambda place, status: _has(status, lambda s: any(one.attempts for one in s.submissions)),
        3.0,
        3,
    ),
    Phase(
        "one attempt has passed",
        lambda place, status: _has(status, lambda s: s.counts.get("passed_once", 0) + len(s.crowns) > 0),
        3.0,
        2,
    ),
    Phase("a crown is given", lambda place, status: _has(status, lambda s: len(s.crowns) > 0), 1.0, 2),
    Phase(
        "weights are on their way",
        lambda place, status: _has(status, lambda s: s.publication is not None and len(s.crowns) > 0),
        1.5,
        2,
    ),
)


@pytest.mark.crash
@pytest.mark.timeout(1500)  # three minutes on two idle cores; ten were seen beside five other programs
def test_a_demo_killed_twenty_times_ends_as_if_it_never_was(tmp_path: Path) -> None:
    """Same crown, six verdicts, at most one weight publication per epoch, an unbroken ledger, nothing left running."""
    seed = int(os.environ.get("DEMO_KILL_SEED") or random.SystemRandom().randrange(10**6))
    print(f"DEMO_KILL_SEED={seed}")
    rng = random.Random(seed)
    place = Place(tmp_path / "demo")
    kills, start = 0, time.monotonic()
    with demos() as forge, adopting_orphans():
        ours = descendants()  # that one, and helpers of other tests that live as long as the whole run
        for phase in PHASES:
            for _ in range(phase.kills):
                delay = rng.uniform(0, phase.spread)
                kills += strike(forge, place, phase, delay)
                print(f"{time.monotonic() - start:6.1f} s: kill {kills} in {phase.name}, {delay:.2f} s after its start")
                await_no_descendants(phase.name, ours)
        assert kills == 20
        done = subprocess.run([*DEMO, str(place.root)], capture_output=True, text=True, timeout=300)
        await_no_descendants("the end", ours)
    document = json.loads(done.stdout)
    assert document["ok"], document
    result = document["data"]
    assert done.returncode == 0
    assert [player["code"] for player in result["players"] if not player["as_expected"]] == []
    assert result["crown_hotkey"] == result["players"][0]["hotkey"]
    check_ledger(place)
    check_publications(place)


def strike(forge: subprocess.Popen[bytes], place: Place, phase: Phase, delay: float) -> bool:
    """Start the demo, wait for the phase and the delay, kill it. A run that ends by itself must have ended well."""
    demo = Demo(forge, place.root, place.root.with_suffix(".out"))
    while not demo.has_ended(0) and not phase.reached(place, status_of(place)):
        time.sleep(0.1)
    if not demo.has_ended(delay):
        demo.kill()
        return True
    # the phase was over before the blow: strike once more at a finished demo, which must survive that, too
    output = demo.output.read_text()
    assert json.loads(output)["ok"], output
    again = Demo(forge, place.root, place.root.with_suffix(".again"))
    again.has_ended(min(delay, 1.0))
    again.kill()
    print(f"the demo had ended before {phase.name!r} came to a kill")
    return True


def status_of(place: Place) -> NodeStatus | None:
    """What the node knows, or None."""
    try:
        return read_status(place.node_state)
    except CacheonError:
        return None


@contextmanager
def adopting_orphans() -> Iterator[None]:
    """Make this process the parent of every orphaned descendant, so that leftovers can be seen."""
    libc = ctypes.CDLL(None)
    assert libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    try:
        yield
    finally:
        libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def await_no_descendants(when: str, ours: dict[int, str]) -> None:
    """Wait a moment for the kernel, then require that nothing the demo started still runs."""
    deadline = time.monotonic() + 120
    while running := {pid: line for pid, line in descendants().items() if pid not in ours}:
        assert time.monotonic() < deadline, (when, running)
        reap(running)
        time.sleep(0.02)


def reap(running: Iterable[int]) -> None:
    """Collect adopted orphans that are dead."""
    for pid in running:
        try:
            os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            continue


def descendants() -> dict[int, str]:
    """Return all processes below this one with their command lines."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parents[int(folder.name)] = int(
                    (folder / "stat").read_text("ascii", "replace").rpartition(")")[2].split()[1]
                )
            except OSError:
                continue
    below, found = {os.getpid()}, []
    while fresh := {pid for pid, parent in parents.items() if parent in below and pid not in below}:
        below |= fresh
        found += sorted(fresh)
    return {pid: command_line(pid) for pid in found}


def command_line(pid: int) -> str:
    """The arguments of a process, as far as it still has some."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text("utf-8", "replace").replace("\0", " ")
    except OSError:
        return ""


def check_ledger(place: Place) -> None:
    """The hash chain of events verifies."""
    engine = reader_engine(StateLayout.at(place.node_state))
    with engine.connect() as connection:
        count, _ = verify_chain(connection)
    engine.dispose()
    assert count > 0


def check_publications(place: Place) -> None:
    """No epoch has two weight submissions, in the journal or on the chain, and the chain has none without an intent."""
    intents = Counter(one.epoch for one in read_status(place.node_state).publications)
    assert set(intents.values()) == {1}, intents
    command = [sys.executable, "-m", "node.cli.main", "devnet", "--port", "0", "--block-time", "3600"]
    command += ["--state", str(place.chain_state), "--genesis", str(place.genesis)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as chain:
        assert chain.stdout is not None
        try:
            on_chain = asyncio.run(publications_by_epoch(chain.stdout.readline().strip()))
        finally:
            chain.terminate()
    assert set(on_chain.values()) == {1}, on_chain
    assert sum(on_chain.values()) <= sum(intents.values())


async def publications_by_epoch(endpoint: str) -> Counter[int]:
    """Count the weight commitments on the chain by epoch, block by block."""
    counted: Counter[int] = Counter()
    async with ChainClient([endpoint], rpc_per_second=10_000) as client:
        for number in range(1, (await client.head()).number + 1):
            block = BlockRef(number, await client.block_hash(number))
            for event in await client.events(block):
                # events of an extrinsic only: what an epoch applies by itself is no submission
                if event.extrinsic_index is not None and event.name in WEIGHT_EVENTS:
                    counted[(await read_hyperparameters(client, NETUID, block)).epoch] += 1
    return counted
