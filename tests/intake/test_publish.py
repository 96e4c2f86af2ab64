"""The store: immutable, idempotent, self-healing."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import msgspec
import pytest

from config.errors import HostError, IntakeError, NotFoundError
from intake.file_stream import encode_stream
from intake.package import package_bytes
from intake.publish import PublishedBundle, open_published, publish, sweep_staging
from intake.report import IntakeReport, decode_report
from intake.screen import Screened, screen_files
from tests.intake.support import bundle

FILES = bundle(**{"kernels/deep/er/__init__.py": b"", "kernels-x/README": b"x", "kernels/é/README": b"y"})


def screened() -> Screened:
    """Return an accepted bundle with nested and non-ASCII folders."""
    return screen_files(FILES)


def put(store: Path, subject: Screened | None = None) -> PublishedBundle:
    """Publish a bundle."""
    subject = subject or screened()
    return publish(b"".join(encode_stream(subject.files)), subject.report, store)


def tree_of(published: PublishedBundle) -> dict[str, bytes]:
    """Return the files of a published tree."""
    paths = [path for path in published.tree.rglob("*") if path.is_file()]
    return {path.relative_to(published.tree).as_posix(): path.read_bytes() for path in paths}


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_entries_are_sealed_whatever_the_umask(umask: int, tmp_path: Path) -> None:
    """Nested folders are 0555 and files 0444 under every umask."""
    before = os.umask(umask)
    try:
        published = put(tmp_path)
    finally:
        os.umask(before)
    assert tree_of(published) == FILES
    for path in [published.tree, *published.tree.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o555 if path.is_dir() else 0o444)
    assert stat.S_IMODE(published.report_path.stat().st_mode) == 0o444
    digest = published.content_hash
    assert published.tree == tmp_path / digest[:2] / digest / "tree"


def test_publishing_twice_changes_nothing(tmp_path: Path) -> None:
    """The second publication finds the first and leaves every inode alone."""
    first = put(tmp_path)
    before = {path: path.stat().st_ino for path in first.tree.rglob("*")}
    assert put(tmp_path) == first
    assert {path: path.stat().st_ino for path in first.tree.rglob("*")} == before
    assert open_published(tmp_path, first.content_hash) == first
    assert list((tmp_path / ".staging").iterdir()) == []


def test_a_newer_report_of_the_same_bytes_replaces_the_older_one(tmp_path: Path) -> None:
    """Screening again under new rules updates the report and keeps the tree."""
    subject = screened()
    first = put(tmp_path, subject)
    newer = msgspec.structs.replace(subject.report, fingerprint="f" * 64)
    put(tmp_path, Screened(newer, subject.files))
    assert decode_report(first.report_path.read_bytes()).fingerprint == "f" * 64


def damage_byte(entry: Path) -> None:
    path = entry / "tree" / "README.md"
    path.chmod(0o644)
    path.write_bytes(b"other\n")
    path.chmod(0o444)


def damage_extra(entry: Path) -> None:
    (entry / "tree").chmod(0o755)
    (entry / "tree" / "x.pyc").write_bytes(b"")
    (entry / "tree").chmod(0o555)


def damage_mode(entry: Path) -> None:
    (entry / "tree" / "README.md").chmod(0o644)


def damage_link(entry: Path) -> None:
    (entry / "tree").chmod(0o755)
    (entry / "tree" / "README.md").unlink()
    (entry / "tree" / "README.md").symlink_to("/etc/hostname")
    (entry / "tree").chmod(0o555)


def damage_report(entry: Path) -> None:
    (entry / "report.json").unlink()


def damage_neighbour(entry: Path) -> None:
    (entry / "more").write_bytes(b"")


@pytest.mark.parametrize(
    "damage",
    [damage_byte, damage_extra, damage_mode, damage_link, damage_report, damage_neighbour],
    ids=lambda f: f.__name__,
)
def test_a_damaged_entry_is_refused_and_heals(damage: object, tmp_path: Path) -> None:
    """A changed entry is never opened; the next publication of the same bytes replaces it."""
    first = put(tmp_path)
    assert callable(damage)
    damage(first.tree.parent)
    with pytest.raises(HostError) as caught:
        open_published(tmp_path, first.content_hash)
    assert caught.value.code == "STORE_ENTRY_DAMAGED"
    assert tree_of(put(tmp_path)) == FILES
    assert open_published(tmp_path, first.content_hash) == first


def test_a_crash_before_the_rename_leaves_no_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the one rename nothing is visible under the hash, and a later publication succeeds."""
    subject = screened()

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("intake.publish._remove", lambda _: None)  # a killed process cleans nothing up
        patch.setattr("intake.publish.os.rename", crash)
        with pytest.raises(KeyboardInterrupt):
            put(tmp_path, subject)
    with pytest.raises(NotFoundError) as caught:
        open_published(tmp_path, subject.report.content_hash)
    assert caught.value.code == "BUNDLE_NOT_PUBLISHED"
    assert tree_of(put(tmp_path, subject)) == FILES
    assert len(list((tmp_path / ".staging").iterdir())) == 1
    sweep_staging(tmp_path)
    assert list((tmp_path / ".staging").iterdir()) == []


def test_losing_a_race_to_the_same_bytes_is_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When somebody else published meanwhile, their entry is verified and used."""
    subject = screened()
    other = put(tmp_path / "other", subject)
    real = os.rename

    def slower(source: Path, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        real(other.tree.parent, target)
        real(source, target)

    monkeypatch.setattr("intake.publish.os.rename", slower)
    assert tree_of(put(tmp_path / "mine", subject)) == FILES


@pytest.mark.parametrize("change", ["content_hash", "files", "refused"])
def test_a_report_that_does_not_fit_its_files_publishes_nothing(change: str, tmp_path: Path) -> None:
    """The screening child is not believed about hashes or sizes."""
    subject = screened()
    report = subject.report
    if change == "content_hash":
        report = msgspec.structs.replace(report, content_hash="0" * 64)
    elif change == "files":
        report = msgspec.structs.replace(report, files=report.files[1:])
    else:
        report = IntakeReport(report.content_hash, error=IntakeError("X", "y.").to_document())
    with pytest.raises(IntakeError) as caught:
        put(tmp_path, Screened(report, subject.files))
    assert caught.value.code == "REPORT_MISMATCH"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["", "../../etc", "A" * 64, "0" * 63])
def test_only_digests_become_paths(text: str, tmp_path: Path) -> None:
    """A hash that is not 64 lower-case hex characters never reaches the file system."""
    with pytest.raises(IntakeError) as caught:
        open_published(tmp_path, text)
    assert caught.value.code == "BUNDLE_HASH_INVALID"


def test_an_unwritable_store_is_the_operators_fault(tmp_path: Path) -> None:
    """A store that is a file gives one host error."""
    (tmp_path / "store").write_bytes(b"")
    with pytest.raises(HostError) as caught:
        put(tmp_path / "store")
    assert caught.value.code == "STORE_WRITE_FAILED"


def test_a_stream_is_read_strictly(tmp_path: Path) -> None:
    """An archive is not a stream; a stream with one more byte is none."""
    subject = screened()
    stream = b"".join(encode_stream(subject.files))
    for data in (package_bytes(FILES), stream + b"\x00", stream[:-1], b""):
        with pytest.raises(IntakeError) as caught:
            publish(data, subject.report, tmp_path)
        assert caught.value.code == "FILE_STREAM_MALFORMED"
