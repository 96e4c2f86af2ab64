"""`qualify.intake_runner`: hostile archives are screened in the sandbox, and only what is proved comes back."""

from __future__ import annotations

import gzip
import os
import signal
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from config.errors import Blame, CacheonError, HostError, IntakeError, InternalError, SourceLocation
from config.limits import INTAKE
from intake.content_hash import hash_files
from intake.file_stream import encode_stream, read_stream
from intake.manifest import ABI, LEGACY_ABI
from intake.package import package_bytes
from intake.report import IntakeReport, encode_report
from intake.screen import screen_files
from qualify import intake_runner
from qualify.intake_frame import answer_parts, frame_bytes, read_answer
from qualify.intake_runner import INTAKE_POLICY, IntakeRunner, ScreeningRefused
from qualify.sandbox.outcome import Outcome, OutcomeKind


def _bundle() -> dict[str, bytes]:
    """Return the smallest example bundle of the repository as a file table."""
    folder = Path(__file__).parent.parent.parent / "examples" / "silu_fast"
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.fixture(scope="module")
def runner() -> Iterator[IntakeRunner]:
    """One runner for the module."""
    with IntakeRunner() as made:
        yield made


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    """A bundle that passes every screen."""
    return _bundle()


def test_a_good_bundle_comes_back_proved(runner: IntakeRunner, files: dict[str, bytes]) -> None:
    """The report and the file stream of an accepted bundle are those of its tree."""
    screened = runner.run(package_bytes(files), hash_files(files))
    assert screened.report.accepted
    assert screened.report.content_hash == hash_files(files)
    assert {entry.path for entry in screened.report.files} == set(files)
    assert bytes(screened.stream) == b"".join(map(bytes, encode_stream(files)))


def test_an_archive_may_come_from_a_file(runner: IntakeRunner, files: dict[str, bytes], tmp_path: Path) -> None:
    """A path works like the bytes it holds; a path that cannot be read is the host's fault."""
    (tmp_path / "archive.tar.gz").write_bytes(package_bytes(files))
    assert runner.run(tmp_path / "archive.tar.gz", hash_files(files)).report.accepted
    with pytest.raises(HostError) as caught:
        runner.run(tmp_path / "missing", hash_files(files))
    assert caught.value.code == "INTAKE_ARCHIVE_UNREADABLE"


def test_other_bytes_are_refused_with_the_seen_hash(runner: IntakeRunner, files: dict[str, bytes]) -> None:
    """An archive that hashes to something else is refused and says to what."""
    other = {**files, "extra.py": b"VALUE = 1\n"}
    with pytest.raises(ScreeningRefused) as caught:
        runner.run(package_bytes(other), hash_files(files))
    assert caught.value.code == "BUNDLE_HASH_MISMATCH"
    assert caught.value.seen_hash == hash_files(other)
    assert caught.value.blame is Blame.MINER


def test_a_broken_rule_is_refused_with_its_place_and_all_findings(
    runner: IntakeRunner, files: dict[str, bytes]
) -> None:
    """The refusal carries the first finding with file and line, and the report carries all of them."""
    source = next(path for path in files if path.endswith(".py"))
    bad = {**files, source: b"import subprocess\nimport ctypes\n" + files[source]}
    with pytest.raises(ScreeningRefused) as caught:
        runner.run(package_bytes(bad), hash_files(bad))
    assert caught.value.location is not None
    assert caught.value.location.path == source
    assert caught.value.location.line == 1
    assert len(caught.value.report.findings) >= 2
    assert caught.value.report.findings[0] == caught.value.to_document()


def test_the_legacy_abi_is_admitted_run_by_run(runner: IntakeRunner, files: dict[str, bytes]) -> None:
    """One runner gives each submission its own answer; accepted reports and files keep the spelling as written."""
    manifest = files["manifest.toml"].replace(ABI.encode(), LEGACY_ABI.encode())
    legacy = {**files, "manifest.toml": manifest}
    archive, digest = package_bytes(legacy), hash_files(legacy)
    for _ in range(2):
        screened = runner.run(archive, digest, allow_legacy_abi=True)
        assert screened.report.abi_version == LEGACY_ABI
        assert bytes(read_stream(screened.stream)["manifest.toml"]) == manifest
        with pytest.raises(ScreeningRefused) as caught:
            runner.run(archive, digest)
        assert caught.value.code == "MANIFEST_ABI"
        assert caught.value.location == SourceLocation("manifest.toml", 2)
        assert "before the cut-over" in caught.value.message
    assert runner.run(package_bytes(files), hash_files(files), allow_legacy_abi=True).report.abi_version == ABI


@pytest.mark.parametrize(
    ("archive", "code"),
    [
        (b"", "ARCHIVE_NOT_GZIP"),
        (b"not an archive", "ARCHIVE_NOT_GZIP"),
        (gzip.compress(b"not a tar archive"), None),
        (gzip.compress(bytes(300 << 20), 1), None),
        (os.urandom(4096), None),
    ],
    ids=["empty", "text", "no tar", "bomb", "noise"],
)
def test_hostile_bytes_are_an_intake_error(runner: IntakeRunner, archive: bytes, code: str | None) -> None:
    """Whatever the bytes are, the caller gets an IntakeError that blames the miner."""
    with pytest.raises(IntakeError) as caught:
        runner.run(archive, "0" * 64)
    assert caught.value.blame is Blame.MINER
    assert code is None or caught.value.code == code


def test_too_large_an_archive_never_reaches_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """The size limit holds before anything is started."""
    runner = IntakeRunner(limits=replace(INTAKE, archive_bytes=10))
    with pytest.raises(IntakeError) as caught:
        runner.run(bytes(11), "0" * 64)
    assert caught.value.code == "ARCHIVE_TOO_LARGE"


def test_too_much_memory_is_the_bundle_s_fault(files: dict[str, bytes]) -> None:
    """A bundle that cannot be screened within the memory limit is refused for that."""
    large = {**files, **{f"{index}.json": bytes(7 << 20) for index in range(4)}}
    with IntakeRunner(policy=replace(INTAKE_POLICY, memory_bytes=16 << 20)) as runner:
        with pytest.raises(IntakeError) as caught:
            runner.run(package_bytes(large), hash_files(large))
        assert caught.value.code == "INTAKE_LIMIT_MEMORY"
        assert caught.value.blame is Blame.MINER


def test_a_dead_fork_server_is_replaced(files: dict[str, bytes]) -> None:
    """After the fork server died one screening fails as the host's fault and the next one works."""
    archive, digest = package_bytes(files), hash_files(files)
    with IntakeRunner() as runner:
        assert runner.run(archive, digest).report.accepted
        zygote = runner._zygote
        assert zygote is not None
        os.kill(zygote.pid, signal.SIGKILL)
        with pytest.raises(HostError) as caught:
            runner.run(archive, digest)
        assert caught.value.code == "SANDBOX_ZYGOTE_GONE"
        assert runner.run(archive, digest).report.accepted


def test_threads_may_share_a_runner(runner: IntakeRunner, files: dict[str, bytes]) -> None:
    """Screenings side by side do not disturb each other."""
    source = next(path for path in files if path.endswith(".py"))
    tables = [{**files, source: files[source] + b"\n# %d\n" % index} for index in range(8)]

    def screen(table: dict[str, bytes]) -> str:
        return runner.run(package_bytes(table), hash_files(table)).report.content_hash

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(screen, tables)) == [hash_files(table) for table in tables]


@pytest.mark.parametrize(
    ("outcome", "family", "code"),
    [
        (Outcome(OutcomeKind.MEMORY_LIMIT), IntakeError, "INTAKE_LIMIT_MEMORY"),
        (Outcome(OutcomeKind.CPU_LIMIT, signal=24), IntakeError, "INTAKE_LIMIT_CPU"),
        (Outcome(OutcomeKind.OUTPUT_LIMIT), IntakeError, "INTAKE_LIMIT_OUTPUT"),
        (Outcome(OutcomeKind.DISK_LIMIT), IntakeError, "INTAKE_LIMIT_DISK"),
        (Outcome(OutcomeKind.PROCESS_LIMIT), IntakeError, "INTAKE_LIMIT_PROCESSES"),
        (Outcome(OutcomeKind.SIGNALED, signal=11), IntakeError, "INTAKE_CHILD_CRASHED"),
        (Outcome(OutcomeKind.EXITED, exit_status=1, log=b"ValueError: x"), InternalError, "INTAKE_CHILD_FAILED"),
        (Outcome(OutcomeKind.WALL_LIMIT, signal=9), HostError, "INTAKE_HOST_INTERFERED"),
        (Outcome(OutcomeKind.KILLED, signal=9), HostError, "INTAKE_HOST_INTERFERED"),
    ],
)
def test_each_ending_has_its_blame(outcome: Outcome, family: type[CacheonError], code: str) -> None:
    """Limits and crashes are the bundle's fault, interference the host's, exceptions ours."""
    with pytest.raises(family) as caught:
        intake_runner._raise_for(outcome, INTAKE_POLICY)
    assert caught.value.code == code


def _frame(report: bytes, stream: bytes, seen: str = "") -> bytes:
    return b"".join(map(bytes, answer_parts(report, seen, [stream], len(stream))))


def _honest(files: dict[str, bytes]) -> tuple[IntakeReport, bytes]:
    return screen_files(files).report, b"".join(map(bytes, encode_stream(files)))


def test_an_honest_answer_is_read(files: dict[str, bytes]) -> None:
    """The frame of an accepted bundle is accepted."""
    report, stream = _honest(files)
    answer = read_answer(memoryview(_frame(encode_report(report), stream)), report.content_hash)
    assert answer.report == report
    assert bytes(answer.stream) == stream


def test_a_taken_over_child_cannot_smuggle_anything(files: dict[str, bytes]) -> None:
    """Other files, another file table, another bundle, missing sources and stray bytes are all recognised."""
    report, stream = _honest(files)
    digest, good = report.content_hash, encode_report(report)
    other = {**files, "more.py": b"x"}
    other_stream = b"".join(map(bytes, encode_stream(other)))
    variant = report.variants[0]
    forged = [
        _frame(good, other_stream),
        _frame(encode_report(msgspec.structs.replace(report, content_hash=hash_files(other))), other_stream),
        _frame(encode_report(msgspec.structs.replace(report, files=report.files[:-1])), stream),
        _frame(encode_report(msgspec.structs.replace(report, closure=("elsewhere.py",))), stream),
        _frame(
            encode_report(
                msgspec.structs.replace(report, variants=(msgspec.structs.replace(variant, source="elsewhere.py"),))
            ),
            stream,
        ),
        _frame(good, stream, seen="not a hash"),
        _frame(good, stream) + b"x",
        _frame(good, stream)[:-1],
        _frame(b"{}", stream),
        _frame(good, b""),
        struct.pack(">I", 1 << 31),
        b"",
    ]
    for frame in forged:
        with pytest.raises(InternalError) as caught:
            read_answer(memoryview(frame), digest)
        assert caught.value.code == "INTAKE_ANSWER_MALFORMED"


def test_the_child_s_memory_is_bounded_by_the_frame() -> None:
    """The answer's memory can hold every legal bundle and little more."""
    assert INTAKE.extracted_bytes < frame_bytes() < INTAKE.extracted_bytes + (16 << 20)
    assert INTAKE_POLICY.file_bytes == frame_bytes()
