"""Archives of ordinary tools: recorded once, and made again by whatever tools this machine has (B56)."""

from __future__ import annotations

import base64
import gzip
import io
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest

from config.errors import IntakeError
from intake.archive import unpack
from intake.content_hash import hash_files, hash_tree
from intake.screen import screen_archive
from tests.intake.accepted_archives import BUILT, RECIPES, TREE, by_macos, run_recipe, tool_version
from tests.intake.hostile_archives import header, member, pax, record, tar
from tests.intake.support import golden, write_tree

ROWS = golden("archives")
# What a refusal has to tell: the command, or the option, that makes an archive which is accepted.
ADVICE = {
    "GNU tar of the current folder": "tar -czf bundle.tar.gz FOLDER",
    "GNU tar, dot in front": "tar -czf bundle.tar.gz FOLDER",
    "GNU tar, hard links": "--hard-dereference",
    "GNU tar, posix, holes": "without -S",
    "GNU tar, v7": "--format=ustar",
    "bsdtar of the current folder": "tar -czf bundle.tar.gz FOLDER",
    "bsdtar, C locale": "LC_ALL=C.UTF-8",
    "macOS": "COPYFILE_DISABLE=1 tar -czf bundle.tar.gz FOLDER",
}


def check(name: str, code: str, archive: bytes, digest: str) -> None:
    """Accept an archive with the content hash of its tree, or refuse it with one code and the right advice."""
    if not code:
        assert hash_files(unpack(archive)) == digest
        assert screen_archive(archive, digest).files == TREE
        return
    with pytest.raises(IntakeError) as caught:
        unpack(archive)
    assert caught.value.code == code
    assert ADVICE.get(name, "") in caught.value.hint


def test_the_corpus_is_complete() -> None:
    """Every recipe is recorded, with the tool and the command that made it."""
    assert [row["name"] for row in ROWS] == [*RECIPES, *BUILT]
    assert all(row["tool"] and row["command"] for row in ROWS)
    assert {row["tool"].split()[0] for row in ROWS} >= {"tar", "bsdtar", "git", "cpio", "BusyBox", "7-Zip", "Python"}
    assert set(ADVICE) <= {row["name"] for row in ROWS if row["code"]}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_recorded_archives(row: dict[str, Any], tmp_path: Path) -> None:
    """What tools once made is accepted, with the hash that the folder has, or refused with advice."""
    digest = hash_tree(write_tree(tmp_path / "w", TREE)).hex
    assert row["hash"] in (digest, "")
    check(row["name"], row["code"], base64.b64decode(row["archive_b64"]), digest)


@pytest.mark.parametrize("name", RECIPES)
def test_archives_of_the_tools_of_this_machine(name: str, tmp_path: Path) -> None:
    """The same commands give the same answer with the versions that are installed here."""
    recipe = RECIPES[name]
    if shutil.which(recipe.tool) is None:
        pytest.skip(f"{recipe.tool} is not installed; its recorded archive is tested")
    if recipe.tool == "tar" and "GNU tar" not in tool_version("tar"):
        pytest.skip("tar is not GNU tar; its recorded archive is tested")
    archive, digest = run_recipe(recipe, tmp_path)
    check(name, recipe.code, archive, digest)


@pytest.mark.parametrize("name", BUILT)
def test_archives_of_this_python(name: str) -> None:
    """The standard library's formats, and the records of macOS, as this interpreter writes them."""
    build, code = BUILT[name]
    check(name, code, build(), hash_files(TREE))


def test_a_desktop_file_is_content(tmp_path: Path) -> None:
    """`.DS_Store` is hashed like any file, by the archive and by the folder, and no bundle may hold it."""
    archive = by_macos(doubles=False, ds_store=True)
    files = unpack(archive)
    digest = hash_tree(write_tree(tmp_path / "w", files)).hex
    assert digest == hash_files(files) != hash_files(TREE)
    with pytest.raises(IntakeError) as caught:
        screen_archive(archive, digest)
    assert caught.value.code == "TREE_FILE_KIND"
    assert ".DS_Store" in str(caught.value)


def odd(**fields: bytes) -> bytes:
    """Return an archive whose only member has bytes of these fields replaced."""
    places = {"mode": 100, "uid": 108, "gid": 116, "mtime": 136, "linkname": 157, "uname": 265, "device": 329}
    return tar(header(b"w/a", 1, fields={places[name]: text for name, text in fields.items()}), b"1" + bytes(511))


@pytest.mark.parametrize(
    "archive",
    [
        odd(mode=b"0006777\x00"),
        odd(mode=b"\xff" * 8),
        odd(uid=b"\x80\x00\x00\x00\x00\x4c\x4b\x40"),
        odd(mtime=b"\xff" * 12),
        odd(linkname=b"/etc/passwd", uname=b"root\x00\xff", device=b"7777777\x00"),
        tar(pax(record(b"comment", b"0" * 40), kind=b"g"), member("w/a")),
        tar(pax(record(b"path", b"w/a")), pax(record(b"comment", b"x"), kind=b"g"), member("w/b")),
        tar(member("w/a"), end=bytes(1024)),
        tar(header(b"w/", kind=b"5"), member("w/a")),
        tar(member("w/a", kind=b"\x00")),
        tar(member("w/a")) + bytes(4096),
    ],
    ids=range(11),
)
def test_what_means_nothing_is_ignored(archive: bytes) -> None:
    """Modes (also setuid), owners, times, comments and padding are no content, whatever they hold."""
    assert unpack(archive) == {"a": b"1"}


def test_gzip_headers_mean_nothing() -> None:
    """A file name, a time and another level give the same bundle."""
    buffer = io.BytesIO()
    with gzip.GzipFile("../../etc/passwd", "wb", 1, buffer, 4e9) as file, tarfile.open(fileobj=file, mode="w") as inner:
        info = tarfile.TarInfo("w/a")
        inner.addfile(info)
    assert unpack(buffer.getvalue()) == {"a": b""}
