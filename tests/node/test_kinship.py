"""What a copy verdict shows, which likenesses are noted, and how stored fingerprints follow a newer version."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import Connection, update

from intake.fingerprint import VERSION
from node.cli.standings import Standing, kinship_lines
from node.jobs import JobState
from node.kinship import Kinship, decode
from node.services.reprints import reprint_all
from node.store.engine import Store
from node.store.evidence_rows import find_bundle
from node.store.schema import bundles, jobs
from node.store.submission_rows import Submission
from tests.node.support import HOTKEY_B, record
from tests.node.test_intake_services import World, bundle, committed

WORK = """import torch

BLOCK = {factor}


def scale(x, weight):
    wide = x.float()
    norm = wide.pow(2).mean(-1, keepdim=True)
    return wide * torch.rsqrt(norm + 1e-5) * weight.float()


def run(x, weight, out):
    for start in range(0, x.shape[0], BLOCK):
        out[start : start + BLOCK].copy_(scale(x[start : start + BLOCK], weight))
"""
RENAMED = (
    WORK.replace("scale", "normalise")
    .replace("wide", "w")
    .replace("BLOCK", "ROWS")
    .replace("out)", "dest)")
    .replace("out[", "dest[")
)


@pytest.fixture
def world(store: Store) -> World:
    """The services that fetch and screen, on a store."""
    return World(store)


def kernel(text: str, name: str = "one", factor: int = 64) -> dict[str, bytes]:
    """Return a bundle with this kernel."""
    return bundle(name, factor=factor, kernel=text)


async def settled(world: World, *served: tuple[Submission, dict[str, bytes]]) -> list[Kinship | None]:
    """Serve, screen and return what each job shares with an earlier one."""
    for one, files in served:
        world.host.serve(one, files)
    await record(world.store, *(one for one, _ in served))
    await world.settle()
    return [decode(job.kinship) for job in await world.jobs()]


async def test_a_copy_shows_what_it_copies(world: World) -> None:
    """The verdict names the earlier submission and pairs the functions, in the job, its words and `chain-status`."""
    files, other = kernel(WORK), kernel(RENAMED, "two")
    original, copy = committed(1, files), committed(2, other, hotkey=HOTKEY_B)
    first, found = await settled(world, (original, files), (copy, other))
    assert first is None
    assert found is not None
    assert (found.kind, found.submission_id, found.equal_ppm) == ("copy", original.submission_id, 1_000_000)
    assert [(part.ours, part.earlier) for part in found.parts] == [
        ("kernel.py:12 run", "kernel.py:12 run"),
        ("kernel.py:6 normalise", "kernel.py:6 scale"),
    ]
    job = (await world.jobs())[1]
    assert (job.code, job.earlier_id) == ("COPY_OF_EARLIER", original.submission_id)
    assert "the same: kernel.py:12 run = kernel.py:12 run, kernel.py:6 normalise = kernel.py:6 scale" in job.detail
    row = Standing("id", HOTKEY_B, copy.content_hash, "", "failed", 2, 0, job.code, "miner", "", 0, True, found)
    lines = kinship_lines(row)
    assert original.submission_id in lines[0]
    assert lines[3].startswith("  kernel.py:6 normalise = kernel.py:6 scale, ")


async def test_other_constants_resemble_and_nothing_follows(world: World) -> None:
    """A tuned constant makes another submission; that everything else is the same is noted with it."""
    files, other, far = kernel(WORK), kernel(RENAMED, "two", 128), bundle("three")
    original, tuned = committed(1, files), committed(2, other, hotkey=HOTKEY_B)
    found = await settled(world, (original, files), (tuned, other), (committed(3, far, hotkey="5C"), far))
    assert [job.state for job in await world.jobs()] == [JobState.QUEUED] * 3
    assert found[2] is None
    near = found[1]
    assert near is not None
    assert (near.kind, near.submission_id, near.alike_ppm) == ("resembles", original.submission_id, 1_000_000)
    assert 0 < near.equal_ppm < 1_000_000
    assert [part.is_equal for part in near.parts] == [False, True]


async def test_fingerprints_follow_the_version(world: World) -> None:
    """Fingerprints of an older version are made anew from the published trees, and waiting copies fail at once."""
    files, other = kernel(WORK), kernel(RENAMED, "two")
    original, copy = committed(1, files), committed(2, other, hotkey=HOTKEY_B)
    await settled(world, (original, files))

    def age(connection: Connection) -> None:
        connection.execute(update(bundles).values(print_version=VERSION - 1, fingerprint="old", pieces=""))
        connection.execute(update(jobs).values(fingerprint="old"))

    await world.store.write(age)
    world.screener.runs = 0
    assert await reprint_all(world.context, world.screener) == 1
    assert await reprint_all(world.context, world.screener) == 0
    row = await world.store.read(find_bundle, original.content_hash)
    (job,) = await world.jobs()
    assert row is not None
    assert (row.print_version, row.fingerprint, job.state) == (VERSION, job.fingerprint, JobState.QUEUED)
    assert row.fingerprint != "old"
    await settled(world, (copy, other))
    assert (await world.jobs())[1].code == "COPY_OF_EARLIER"
    assert not list(Path(world.context.layout.archives).glob("reprint-*"))
