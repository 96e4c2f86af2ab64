"""A crowned bundle that vanished stops its own challengers only, and comes back by itself."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from sqlalchemy import delete

from config.errors import HostError, NetworkError
from intake.content_hash import hash_files
from intake.file_stream import encode_stream
from intake.package import package_bytes
from intake.publish import open_published, publish
from intake.screen import screen_archive
from node.jobs import JobState
from node.services import qualification, restoring
from node.services.restoring import Restorer
from node.store.crown_rows import crown_state
from node.store.evidence_rows import find_bundle
from node.store.job_rows import unpark_all
from node.store.schema import bundles
from node.store.submission_rows import Submission
from qualify.intake_runner import ScreenedBundle
from tests.node.judging import World
from tests.node.support import submission
from tests.scoring.support import TARGET

FILES = {
    "manifest.toml": f"""
bundle_id = "crown"
abi_version = "cacheon-op-abi-v0"

[competition]
target = "{TARGET}"
mode = "slot"

[[ops]]
slot = "{TARGET}"
source = "kernel.py"
entry = "run"
dtypes = ["bfloat16"]
""".encode(),
    "kernel.py": b"def run(x, weight, out):\n    out.copy_(x * 2)\n",
}


class _Archive(NamedTuple):
    data: bytes
    archive_sha256: str = ""


class Host:
    """Serves one archive, or nothing."""

    def __init__(self, data: bytes | None) -> None:
        self.data = data
        self.asked: list[str] = []

    async def fetch(self, url: str) -> _Archive:
        """Return the archive. Raises `NetworkError` while there is none."""
        self.asked.append(url)
        if self.data is None:
            raise NetworkError("FETCH_REFUSED", "nobody serves it")
        return _Archive(self.data)


class Screener:
    """Reads archives as the sandboxed child does, without the sandbox."""

    def run(self, archive: Path, expected_hash: str, *, allow_legacy_abi: bool) -> ScreenedBundle:
        """Screen one archive. Raises `IntakeError`."""
        found = screen_archive(archive.read_bytes(), expected_hash, allow_legacy_abi=allow_legacy_abi)
        return ScreenedBundle(found.report, memoryview(b"".join(encode_stream(found.files))))


def _publish(world: World) -> None:
    """Publish the crown's bundle as intake does."""
    found = screen_archive(package_bytes(FILES), hash_files(FILES))
    publish(b"".join(encode_stream(found.files)), found.report, world.context.layout.bundles)


@pytest.fixture
async def crowned(judging: World, monkeypatch: pytest.MonkeyPatch) -> Submission:
    """A crown over the target, with its bundle really published; challengers' bundles are made up."""
    one = msgspec.structs.replace(submission(1), content_hash=hash_files(FILES))
    _publish(judging)
    made_up = qualification.open_published

    def open_bundle(store: Path, content_hash: str) -> Any:
        return (open_published if content_hash == one.content_hash else made_up)(store, content_hash)

    monkeypatch.setattr(qualification, "open_published", open_bundle)
    await judging.queue(one)
    await judging.work()
    assert (await judging.store.read(crown_state)).crowns[0].content_hash == one.content_hash
    return one


def _lose(world: World, one: Submission) -> None:
    folder = world.context.layout.bundles
    (entry,) = [path for path in folder.rglob(one.content_hash) if path.is_dir()]
    for path in [entry, *entry.rglob("*")]:
        path.chmod(0o700)
    shutil.rmtree(entry)


@pytest.mark.parametrize("lost", ["files", "row"])
async def test_a_lost_crown_parks_its_challengers_and_is_restored(
    judging: World, crowned: Submission, lost: str
) -> None:
    """The job says which bundle it waits for, spends nothing, and is measured once the bundle is fetched again."""
    if lost == "files":
        _lose(judging, crowned)
    else:
        await judging.store.write(lambda connection: connection.execute(delete(bundles)))
    await judging.queue(submission(2))
    await judging.work()
    job = await judging.job(submission(2))
    assert (job.state, job.code, job.faults) == (JobState.PARKED, "INCUMBENT_BUNDLE_LOST", 0)
    assert crowned.content_hash in job.detail
    assert TARGET in job.detail
    host = Host(package_bytes(FILES))
    (back,) = await Restorer(judging.context, host, Screener()).look()
    assert (back.state, back.code) == (JobState.QUEUED, "")
    assert host.asked == ([crowned.url] if lost == "files" else [])  # what is whole on disk is only noted again
    open_published(judging.context.layout.bundles, crowned.content_hash)
    assert await judging.store.read(find_bundle, crowned.content_hash) is not None
    await judging.work()
    (against,) = judging.requests[-2].stack  # before the crown was checked, because the challenger earns more
    assert against.bundle.content_hash == crowned.content_hash
    assert (await judging.job(submission(2))).state is JobState.SETTLED


async def test_a_bundle_restored_by_hand_frees_its_challengers(judging: World, crowned: Submission) -> None:
    """Files that are whole again are enough; the host is not asked."""
    _lose(judging, crowned)
    await judging.queue(submission(2))
    await judging.work()
    host = Host(None)
    restorer = Restorer(judging.context, host, Screener())
    assert await restorer.look() == []
    assert await restorer.look() == []
    assert len(host.asked) == 1  # asked again after a pause only
    assert await judging.store.write(unpark_all, "worker") == []
    _publish(judging)
    (back,) = await restorer.look()
    assert back.state is JobState.QUEUED


@pytest.mark.parametrize("answer", [b"no archive", package_bytes({**FILES, "kernel.py": b"# another\n"})])
async def test_other_bytes_are_never_stored_for_a_crown(judging: World, crowned: Submission, answer: bytes) -> None:
    """What does not hash to the crown's bundle restores nothing, and leaves nothing."""
    _lose(judging, crowned)
    await judging.queue(submission(2))
    await judging.work()
    assert await Restorer(judging.context, Host(answer), Screener()).look() == []
    assert (await judging.job(submission(2))).state is JobState.PARKED
    assert list(judging.context.layout.archives.iterdir()) == []


async def test_a_damaged_crown_is_replaced(judging: World, crowned: Submission) -> None:
    """One changed byte parks the challenger as if all were gone."""
    tree = open_published(judging.context.layout.bundles, crowned.content_hash).tree
    (tree / "kernel.py").chmod(0o644)
    (tree / "kernel.py").write_bytes(b"# changed\n")
    await judging.queue(submission(2))
    await judging.work()
    assert (await judging.job(submission(2))).code == "INCUMBENT_BUNDLE_LOST"
    (back,) = await Restorer(judging.context, Host(package_bytes(FILES)), Screener()).look()
    assert back.state is JobState.QUEUED
    assert (tree / "kernel.py").read_bytes() == FILES["kernel.py"]


async def test_a_bundle_nobody_submitted_is_named_in_the_log(
    judging: World, crowned: Submission, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a submission there is nowhere to fetch it from; the jobs go on waiting."""

    def unknown(*_: object) -> None:
        raise HostError("BUNDLE_NOT_STORED", "no submission of it is known")

    _lose(judging, crowned)
    await judging.queue(submission(2))
    await judging.work()
    monkeypatch.setattr(restoring, "_origin", unknown)
    host = Host(package_bytes(FILES))
    assert await Restorer(judging.context, host, Screener()).look() == []
    assert host.asked == []
