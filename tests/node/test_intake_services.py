"""Fetching and screening: transport retries bound to the committed hash, refusals, copies, and our own faults."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from sqlalchemy import select

from config.canonical import sha256_hex
from config.errors import HostError, IntakeError, NetworkError
from config.settings import ChainSettings, IntakeSettings, QualifySettings, Settings
from config.target_catalog import load_catalog
from intake.content_hash import hash_files
from intake.file_stream import encode_stream
from intake.manifest import ABI, LEGACY_ABI
from intake.package import package_bytes
from intake.publish import open_published
from intake.report import decode_report
from intake.screen import screen_archive
from node.jobs import Job, JobState
from node.services.context import NodeContext
from node.services.fetching import FetchingService, claim_fetches
from node.services.intake import IntakeService
from node.services.supervisor import cancel_all
from node.services.transport import TransportFailure, transport_failed
from node.store.engine import Store
from node.store.events import verify_chain
from node.store.evidence_rows import find_bundle
from node.store.job_rows import entries, load_job, recover_all
from node.store.schema import fetches
from node.store.submission_rows import Submission
from qualify.intake_runner import ScreenedBundle
from tests.node.support import HOTKEY_B, record, submission, until
from tests.scoring.support import make_arena

TARGET = "norm.rmsnorm"
MANIFEST = """
bundle_id = "{name}"
abi_version = "cacheon-op-abi-v0"

[competition]
target = "{target}"
mode = "slot"

[[ops]]
slot = "{target}"
source = "kernel.py"
entry = "run"
dtypes = ["bfloat16"]
"""
KERNEL = "def run(x, weight, out):\n    out.copy_(x * {factor})\n"


def bundle(name: str = "one", factor: int = 2, kernel: str = KERNEL, target: str = TARGET) -> dict[str, bytes]:
    """Return the files of a small bundle."""
    return {
        "manifest.toml": MANIFEST.format(name=name, target=target).encode(),
        "kernel.py": kernel.format(factor=factor).encode(),
    }


def committed(number: int, files: dict[str, bytes], **changes: object) -> Submission:
    """Return a submission that commits to `files`."""
    return msgspec.structs.replace(submission(number, **changes), content_hash=hash_files(files))  # type: ignore[arg-type]


class Archive(NamedTuple):
    """A fetched archive."""

    data: bytes
    archive_sha256: str


class Host:
    """A host that answers each URL with its list of answers, the last one for ever."""

    def __init__(self) -> None:
        self.answers: dict[str, list[bytes | Exception]] = {}
        self.asked: list[str] = []
        self.closed: set[str] = set()  # URLs that never answer

    def serve(self, one: Submission, *answers: dict[str, bytes] | bytes | Exception) -> None:
        """Answer for `one` with file tables (packed), raw bytes or errors."""
        self.answers[one.url] = [package_bytes(a) if isinstance(a, dict) else a for a in answers]

    async def fetch(self, url: str) -> Archive:
        """Answer."""
        self.asked.append(url)
        if url in self.closed:
            await asyncio.Event().wait()
        answers = self.answers[url]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return Archive(answer, sha256_hex(answer))


class Screener:
    """The real screens without the sandbox, and faults on demand."""

    def __init__(self) -> None:
        self.faults: list[BaseException] = []
        self.runs = 0

    def run(self, archive: Path, expected_hash: str, *, allow_legacy_abi: bool) -> ScreenedBundle:
        """Screen."""
        self.runs += 1
        if self.faults:
            raise self.faults.pop()
        screened = screen_archive(archive.read_bytes(), expected_hash, allow_legacy_abi=allow_legacy_abi)
        return ScreenedBundle(screened.report, memoryview(b"".join(encode_stream(screened.files))))


class World:
    """The two services on a store."""

    def __init__(self, store: Store, cutover: int | None = None) -> None:
        settings = Settings(
            chain=ChainSettings(poll_seconds=0.01),
            qualify=QualifySettings(retry_base_seconds=0.0),
            intake=IntakeSettings(
                transport_attempts=3, retry_base_seconds=0.0, retry_cap_seconds=0.0, abi_cutover_block=cutover
            ),
        )
        self.store, self.host, self.screener = store, Host(), Screener()
        self.context = NodeContext(
            settings, store.layout, store, make_arena(), load_catalog(), "worker", Path("/arena.toml")
        )

    async def run(self, condition: Callable[[list[Job]], bool]) -> list[Job]:
        """Run both services until `condition` holds of all jobs."""
        services = (FetchingService(self.context, self.host), IntakeService(self.context, self.screener))
        tasks = [asyncio.create_task(service.run()) for service in services]

        async def reached() -> bool:
            return condition(await self.jobs())

        try:
            await until(reached)
            return await self.jobs()
        finally:
            await cancel_all(tasks)

    async def jobs(self) -> list[Job]:
        """Return all jobs in chain order."""
        return [entry.job for entry in await self.store.read(entries)]

    async def settle(self) -> list[Job]:
        """Run until no job is on its way through intake."""
        early = {JobState.RESERVED, JobState.FETCHING, JobState.READY, JobState.SCREENING}
        return await self.run(lambda jobs: all(job.state not in early for job in jobs))

    async def fetched(self, one: Submission) -> list[tuple[str, str]]:
        """Return (code, seen hash) of every fetch of a submission."""
        rows = await self.store.read(
            lambda connection: connection.execute(
                select(fetches.c.code, fetches.c.seen_hash).where(fetches.c.submission_id == one.submission_id)
            ).all()
        )
        return [(row.code, row.seen_hash) for row in rows]


@pytest.fixture
def world(store: Store) -> World:
    """A world."""
    return World(store)


async def test_good_bundle_is_published_and_queued(world: World) -> None:
    """The committed bytes end up immutable in the store, their target and fingerprint known, the archive gone."""
    files = bundle()
    one = committed(1, files)
    world.host.serve(one, files)
    await record(world.store, one)
    (job,) = await world.settle()
    assert (job.state, job.target_id, job.code) == (JobState.QUEUED, TARGET, "")
    assert job.fingerprint
    row = await world.store.read(find_bundle, one.content_hash)
    assert open_published(world.context.layout.bundles, one.content_hash).tree.is_dir()
    assert row is not None
    assert (row.target_id, row.fingerprint) == (TARGET, job.fingerprint)
    assert list(world.context.layout.archives.iterdir()) == []
    assert await world.fetched(one) == [("", one.content_hash)]


async def test_host_may_heal(world: World) -> None:
    """An error first, then other bytes, then the right ones: the bundle is accepted at the third attempt."""
    files = bundle()
    one = committed(1, files)
    world.host.serve(one, NetworkError("FETCH_FAILED", "503"), bundle("other"), files)
    await record(world.store, one)
    (job,) = await world.settle()
    assert (job.state, job.transport_failures) == (JobState.QUEUED, 2)
    assert await world.fetched(one) == [
        ("FETCH_FAILED", ""),
        ("BUNDLE_HASH_MISMATCH", hash_files(bundle("other"))),
        ("", one.content_hash),
    ]


async def test_other_bytes_are_never_accepted(world: World) -> None:
    """A host that never serves the committed bytes makes its submission fail, with the hash that was seen."""
    one, other = committed(1, bundle()), bundle("other")
    world.host.serve(one, NetworkError("FETCH_FAILED", "503"), other)
    await record(world.store, one)
    (job,) = await world.settle()
    assert (job.state, job.code, job.blame, job.seen_hash) == (
        JobState.FAILED,
        "BUNDLE_HASH_MISMATCH",
        "miner",
        hash_files(other),
    )
    assert len(await world.fetched(one)) == 3
    assert not any(world.context.layout.bundles.iterdir())
    await world.store.read(verify_chain)


async def test_unreachable_host_fails_its_submission_only(world: World) -> None:
    """Without an answer the submission fails as unavailable; a neighbour is not held up."""
    gone, files = committed(1, bundle("gone")), bundle()
    good = committed(2, files)
    world.host.serve(gone, NetworkError("FETCH_FAILED", "no route"))
    world.host.serve(good, files)
    await record(world.store, gone, good)
    jobs = await world.settle()
    assert [(job.state, job.code) for job in jobs] == [
        (JobState.FAILED, "BUNDLE_UNAVAILABLE"),
        (JobState.QUEUED, ""),
    ]
    assert "no route" in jobs[0].detail


async def test_garbage_counts_as_transport(world: World) -> None:
    """Bytes that are no archive may be the host's fault: they are retried, and named when they persist."""
    files = bundle()
    healed, broken = committed(1, files), committed(2, bundle("two"))
    world.host.serve(healed, b"<html>busy</html>", files)
    world.host.serve(broken, b"<html>busy</html>")
    await record(world.store, healed, broken)
    jobs = await world.settle()
    assert [(job.state, job.code) for job in jobs] == [(JobState.QUEUED, ""), (JobState.FAILED, "ARCHIVE_NOT_GZIP")]


async def test_rule_breaking_bundle_fails_at_once(world: World) -> None:
    """The committed bytes that break a rule fail without a second fetch, with file and line."""
    files = bundle(kernel="import socket\n" + KERNEL)
    one = committed(1, files)
    world.host.serve(one, files)
    await record(world.store, one)
    (job,) = await world.settle()
    assert (job.state, job.code, job.blame) == (JobState.FAILED, "SCAN_IMPORT", "miner")
    assert job.detail.startswith("kernel.py:1:")
    assert len(world.host.asked) == 1


async def test_refused_url_is_not_retried(world: World) -> None:
    """What the fetcher refuses for good is final at once."""
    one = committed(1, bundle())
    world.host.serve(one, IntakeError("FETCH_REFUSED", "too large"))
    await record(world.store, one)
    (job,) = await world.settle()
    assert (job.state, job.code, len(world.host.asked)) == (JobState.FAILED, "FETCH_REFUSED", 1)


@pytest.mark.parametrize("first", ["original", "copy"])
async def test_copies_are_found_in_chain_order(world: World, first: str) -> None:
    """Identical and reformatted copies by another hotkey fail and name the original, whoever is fetched first."""
    files = bundle()
    reformatted = bundle("renamed", kernel="# mine\ndef run(x, weight, out):\n    out.copy_( (x) *{factor} )\n")
    original = committed(1, files)
    twin, disguised = committed(2, files, hotkey=HOTKEY_B), committed(3, reformatted, hotkey=HOTKEY_B)
    for one, served in ((original, files), (twin, files), (disguised, reformatted)):
        world.host.serve(one, served)
    late = [original] if first == "copy" else [twin, disguised]
    world.host.closed = {one.url for one in late}
    await record(world.store, original, twin, disguised)
    await world.run(lambda jobs: jobs[2 if first == "copy" else 0].state is JobState.QUEUED)
    world.host.closed = set()
    await world.store.write(recover_all)
    await world.settle()
    jobs = await world.jobs()  # the copies failed when the original was screened, before anything was chosen
    assert [job.code for job in jobs] == ["", "COPY_OF_EARLIER", "COPY_OF_EARLIER"]
    assert {job.earlier_id for job in jobs[1:]} == {original.submission_id}


async def test_hostile_text_is_stored_harmlessly(world: World) -> None:
    """Whatever a host or a bundle makes an error say, the job ends with it, shortened and readable."""
    one, two = committed(1, bundle()), committed(2, bundle("two"))
    world.host.serve(one, NetworkError("FETCH_FAILED", "\ud800\0" + "x" * 100_000))
    world.host.serve(two, RuntimeError("\udfff"))
    await record(world.store, one, two)
    jobs = await world.settle()
    assert [(job.state, job.code) for job in jobs] == [
        (JobState.FAILED, "BUNDLE_UNAVAILABLE"),
        (JobState.PARKED, "UNEXPECTED"),
    ]
    assert len(jobs[0].detail) == 2000
    await world.store.read(verify_chain)


async def test_own_resubmission_is_no_copy(world: World) -> None:
    """The same hotkey may submit the same content again."""
    files = bundle()
    ones = [committed(1, files), committed(2, files)]
    for one in ones:
        world.host.serve(one, files)
    await record(world.store, *ones)
    assert [job.state for job in await world.settle()] == [JobState.QUEUED, JobState.QUEUED]


async def test_sandbox_faults_are_ours(world: World) -> None:
    """A failing sandbox never fails a submission: it is screened again, then parked."""
    files = bundle()
    one, two = committed(1, files), committed(2, bundle("two", 3))
    world.host.serve(one, files)
    world.host.serve(two, bundle("two", 3))
    world.screener.faults = [HostError("SANDBOX_ZYGOTE_GONE", "gone")]
    await record(world.store, one)
    (job,) = await world.settle()
    assert (job.state, world.screener.runs, len(world.host.asked)) == (JobState.QUEUED, 2, 1)
    world.screener.faults = [RuntimeError("unforeseen") for _ in range(9)]
    await record(world.store, two)
    job = (await world.settle())[1]
    assert (job.state, job.code, job.blame, job.parked_from) == (JobState.PARKED, "UNEXPECTED", "internal", "ready")


def legacy_bundle(name: str) -> dict[str, bytes]:
    """Return a bundle that spells the ABI the legacy way."""
    files = bundle(name)
    return {**files, "manifest.toml": files["manifest.toml"].replace(ABI.encode(), LEGACY_ABI.encode())}


async def test_the_finalized_block_decides_about_the_legacy_abi(store: Store) -> None:
    """The last block before the cut-over is early enough, the cut-over itself is not; the bytes stay as they are."""
    early, late = committed(1, legacy_bundle("early")), committed(2, legacy_bundle("late"))
    world = World(store, cutover=late.block)
    for one, name in ((early, "early"), (late, "late")):
        world.host.serve(one, legacy_bundle(name))
    await record(store, early, late)
    jobs = await world.settle()
    assert late.block == early.block + 1
    assert [(job.state, job.code) for job in jobs] == [(JobState.QUEUED, ""), (JobState.FAILED, "MANIFEST_ABI")]
    assert jobs[1].detail.startswith("manifest.toml:3: ")
    published = open_published(world.context.layout.bundles, early.content_hash)
    assert decode_report(published.report_path.read_bytes()).abi_version == LEGACY_ABI
    assert (published.tree / "manifest.toml").read_bytes() == legacy_bundle("early")["manifest.toml"]


async def test_without_a_cut_over_the_legacy_abi_is_never_read(world: World) -> None:
    """The setting is unset by default, and then no block is early enough."""
    files = legacy_bundle("one")
    one = committed(1, files)
    world.host.serve(one, files)
    await record(world.store, one)
    assert [job.code for job in await world.settle()] == ["MANIFEST_ABI"]


@pytest.mark.parametrize(("later", "code"), [(1, ""), (0, "MANIFEST_ABI")])
async def test_a_restart_gives_the_same_answer_about_the_legacy_abi(store: Store, later: int, code: str) -> None:
    """A node that died while it screened screens again; only the finalized block counts, however late that is."""
    files = legacy_bundle("one")
    one = committed(1, files)
    first = World(store, cutover=one.block + later)
    first.host.serve(one, files)
    first.screener.faults = [asyncio.CancelledError()]  # the node ends here, its job in the middle of screening
    await record(store, one)
    await first.run(lambda jobs: first.screener.runs == 1)
    assert [job.state for job in await first.jobs()] == [JobState.SCREENING]
    await store.write(recover_all)
    again = World(store, cutover=one.block + later)
    await record(store, committed(90, bundle("long after")))
    again.host.answers, again.host.closed = first.host.answers, {committed(90, bundle("long after")).url}
    (job, _) = await again.run(lambda jobs: jobs[0].state in (JobState.QUEUED, JobState.FAILED))
    assert job.code == code


async def test_lost_archive_is_fetched_again(world: World) -> None:
    """An archive that vanished from disk costs one more fetch and nothing else."""
    files = bundle()
    one = committed(1, files)
    world.host.serve(one, files)
    await record(world.store, one)
    fetching = FetchingService(world.context, world.host)
    task = asyncio.create_task(fetching.run())

    async def fetched() -> bool:
        return (await world.store.read(load_job, one.submission_id)).state is JobState.READY

    await until(fetched)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    world.context.layout.archive(one.submission_id).unlink()
    (job,) = await world.settle()
    assert (job.state, job.transport_failures, len(world.host.asked)) == (JobState.QUEUED, 0, 2)


async def test_target_outside_the_arena_is_parked(world: World) -> None:
    """A good bundle for a target that this arena does not measure waits for an arena that does."""
    kernel = "def run(x, out):\n    out.copy_(x * {factor})\n"
    files = bundle(target="activation.silu_and_mul", kernel=kernel)
    one = committed(1, files)
    world.host.serve(one, files)
    await record(world.store, one)
    (job,) = await world.settle()
    assert (job.state, job.code, job.parked_from) == (JobState.PARKED, "TARGET_NOT_SERVED", "queued")


async def test_hanging_hosts_of_one_hotkey_hold_one_place(world: World) -> None:
    """However many submissions of one hotkey hang, others are fetched; repeated fetches come after first ones."""
    stuck = [committed(number, bundle(f"stuck{number}")) for number in range(1, 21)]
    files = bundle()
    good = committed(30, files, hotkey=HOTKEY_B)
    world.host.serve(good, files)
    world.host.closed = {one.url for one in stuck}
    await record(world.store, *stuck, good)
    jobs = await world.run(lambda jobs: jobs[-1].state is JobState.QUEUED)
    assert [job.state for job in jobs[:-1]].count(JobState.FETCHING) == 1


async def test_first_fetches_come_before_repeated_ones(world: World) -> None:
    """A submission whose host failed goes behind those that were never tried, wherever it stands in the chain."""
    ones = [committed(number, bundle(f"b{number}"), hotkey=f"5{number}") for number in (1, 2, 3)]
    await record(world.store, *ones)
    budget = world.context.transport_budget
    (first,) = await world.store.write(claim_fetches, budget, 1, frozenset())
    failure = TransportFailure("FETCH_FAILED", "503")
    await world.store.write(transport_failed, first.job, failure, world.context.settings.intake)
    taken = await world.store.write(claim_fetches, budget, 3, frozenset())
    assert [entry.submission.hotkey for entry in taken] == ["52", "53", "51"]


async def test_slow_host_holds_one_place_only(world: World) -> None:
    """While one host never answers, other archives are fetched, and a stop waits for nobody."""
    stuck, files = committed(1, bundle("stuck")), bundle()
    good = committed(2, files, hotkey=HOTKEY_B)
    world.host.serve(good, files)
    world.host.closed = {stuck.url}
    await record(world.store, stuck, good)
    jobs = await world.run(lambda jobs: jobs[1].state is JobState.QUEUED)
    assert jobs[0].state is JobState.FETCHING
