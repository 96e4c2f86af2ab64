"""Packaging is a function of the tree, and refuses what a validator refuses."""

from __future__ import annotations

import os
import tarfile
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.errors import IntakeError
from intake.archive import unpack
from intake.content_hash import hash_files, hash_tree
from intake.names import check_no_collisions, check_path, is_excluded
from intake.package import package_bundle, package_bytes
from intake.refusal import BundleRefused
from intake.screen import screen_archive
from tests.intake.support import bundle, write_tree


def test_the_same_tree_gives_the_same_bytes(tmp_path: Path) -> None:
    """Folder name, times, modes, owners, links between files and noise leave no trace in the archive."""
    first = write_tree(tmp_path / "one", bundle())
    made = package_bundle(first, tmp_path / "one.tar.gz")
    second = write_tree(tmp_path / "two", {**bundle(**{"README.md": None}), ".git/HEAD": b"x"})
    (second / "LICENSE").write_bytes(b"# a kernel\n")
    os.link(second / "LICENSE", second / "README.md")
    (second / "LICENSE").unlink()
    (second / "kernels" / "kernel.py").chmod(0o755)
    os.utime(second / "manifest.toml", (1, 1))
    again = package_bundle(second, tmp_path / "two.tar.gz")
    assert made.path.read_bytes() == again.path.read_bytes()
    assert made.content_hash == again.content_hash == hash_tree(first).hex
    assert [file.path for file in made.files] == ["README.md", "kernels/kernel.py", "manifest.toml"]


def test_an_archive_says_nothing_about_its_maker(tmp_path: Path) -> None:
    """Members are plain files of nobody, at time zero, under one wrapper named after the content hash."""
    made = package_bundle(write_tree(tmp_path / "b", bundle()), tmp_path / "b.tar.gz")
    with tarfile.open(made.path) as archive:
        for member in archive.getmembers():
            assert member.isreg()
            assert (member.mode, member.uid, member.gid, member.uname, member.gname, member.mtime) == (
                0o644,
                0,
                0,
                "",
                "",
                0,
            )
            assert member.name.startswith(f"bundle-{made.content_hash[:16]}/")
    assert made.path.read_bytes()[4:8] == bytes(4)


def test_an_archive_of_a_packaged_bundle_screens(tmp_path: Path) -> None:
    """What was packaged is what a validator accepts."""
    made = package_bundle(write_tree(tmp_path / "b", bundle()), tmp_path / "b.tar.gz")
    screened = screen_archive(made.path.read_bytes(), made.content_hash)
    assert screened.files == bundle()
    assert screened.report.content_hash == made.content_hash


def test_the_output_may_not_lie_in_the_bundle(tmp_path: Path) -> None:
    """An archive inside its own tree is refused, also through a link to the tree."""
    root = write_tree(tmp_path / "b", bundle())
    (tmp_path / "link").symlink_to(root)
    for out in (root / "x.tar.gz", root / "kernels" / "x", tmp_path / "link" / "x.tar.gz"):
        with pytest.raises(IntakeError) as caught:
            package_bundle(root, out)
        assert caught.value.code == "OUTPUT_INSIDE_BUNDLE"


def test_what_a_validator_refuses_is_not_packaged(tmp_path: Path) -> None:
    """All findings are there, and no archive is."""
    root = write_tree(tmp_path / "b", bundle(**{"x.so": b"\x7fELF", "kernels/kernel.py": b"import socket\n"}))
    with pytest.raises(BundleRefused) as caught:
        package_bundle(root, tmp_path / "x.tar.gz")
    assert {item.code for item in caught.value.findings} == {"TREE_BINARY", "SCAN_IMPORT", "ENTRY_NOT_DEFINED"}
    assert not (tmp_path / "x.tar.gz").exists()


def test_an_unwritable_output_is_one_error(tmp_path: Path) -> None:
    """A missing output folder is reported, and nothing is left behind."""
    root = write_tree(tmp_path / "b", bundle())
    with pytest.raises(IntakeError) as caught:
        package_bundle(root, tmp_path / "none" / "x.tar.gz")
    assert caught.value.code == "OUTPUT_UNWRITABLE"


def test_only_a_regular_file_is_replaced(tmp_path: Path) -> None:
    """A pipe, a device or a folder in the place of the archive stays what it is."""
    root = write_tree(tmp_path / "b", bundle())
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(IntakeError) as caught:
            package_bundle(root, tmp_path / name)
        assert caught.value.code == "OUTPUT_UNWRITABLE"
    assert (tmp_path / "pipe").is_fifo()
    assert (tmp_path / "folder").is_dir()


def test_an_older_archive_is_replaced(tmp_path: Path) -> None:
    """Packaging again overwrites the file, completely."""
    out = tmp_path / "x.tar.gz"
    out.write_bytes(b"old" * 10_000)
    package_bundle(write_tree(tmp_path / "b", bundle()), out)
    assert unpack(out.read_bytes()) == bundle()
    assert sorted(item.name for item in tmp_path.iterdir()) == ["b", "x.tar.gz"]


COMPONENT = st.text(st.characters(exclude_categories=("C", "Z"), exclude_characters="/\\"), min_size=1, max_size=12)
PATHS = st.lists(COMPONENT, min_size=1, max_size=4).map("/".join)


def is_legal(files: dict[str, bytes]) -> bool:
    """Say whether a file table keeps the name rule."""
    try:
        for path in files:
            check_path(path)
        check_no_collisions(files)
    except IntakeError:
        return False
    return not any(map(is_excluded, files))


@settings(deadline=None, max_examples=200)
@given(st.dictionaries(PATHS, st.binary(max_size=700), min_size=1, max_size=6).filter(is_legal))
def test_any_legal_tree_survives_packing_and_unpacking(files: dict[str, bytes]) -> None:
    """Pack, unpack, hash: the same table and the same identity, for every legal tree."""
    archive = package_bytes(files)
    assert unpack(archive) == files
    assert hash_files(unpack(archive)) == hash_files(files)
    assert package_bytes(dict(reversed(files.items()))) == archive


def test_packaging_does_not_depend_on_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another day, the same bytes."""
    before = package_bytes(bundle())
    monkeypatch.setattr(time, "time", lambda: 4_000_000_000.0)
    assert package_bytes(bundle()) == before
