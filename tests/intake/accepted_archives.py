"""How ordinary tools make archives of one bundle: the recipes behind `tests/golden/archives.json`.

Run `python -m tests.intake.accepted_archives` where all tools are installed (on Debian: libarchive-tools, busybox,
cpio, p7zip-full) to record the file again. A recipe is a shell command that stands beside the bundle `w` and writes to
`out.tar.gz` or to standard output.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
import os
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from config.errors import IntakeError
from intake.archive import unpack
from intake.content_hash import hash_files, hash_tree
from tests.intake.support import GOLDEN, bundle, write_tree

# Names that tools spell in several ways: long, cut in mid-character at 100 bytes, in path order only by components.
TREE = {
    **bundle(),
    f"metadata/{'n' * 60}/{'m' * 60}/table.json": b"{}",
    f"notes/{'é' * 48}x/{'ü' * 30}/README.md": b"cut in mid-character\n",
    "notes-x/README": b"",
    "notes/LICENSE": b"x" * 3000,
    "kernels/README.rst": b"1\n",
}


class Recipe(NamedTuple):
    """One way to make an archive; `code` is the refusal, or "" when it has to be accepted."""

    tool: str
    command: str
    code: str = ""
    locale: str = "C.UTF-8"


def _tar(options: str, what: str = "w", code: str = "") -> Recipe:
    return Recipe("tar", f"tar {options} -cz {what}", code)


def _bsdtar(options: str, what: str = "w", code: str = "", locale: str = "C.UTF-8") -> Recipe:
    return Recipe("bsdtar", f"bsdtar {options} -czf out.tar.gz {what}", code, locale)


_GIT = "cd w && git init -q && git add -A && git -c user.name=a -c user.email=a@b.c commit -qm x && git archive"
_HOLE = "rm -rf w && mkdir w && truncate -s 1M w/a && printf x >> w/a &&"

RECIPES = {
    "GNU tar": _tar(""),
    "GNU tar, gnu": _tar("--format=gnu"),
    "GNU tar, oldgnu": _tar("--format=oldgnu"),
    "GNU tar, ustar": _tar("--format=ustar"),
    "GNU tar, posix": _tar("--format=posix"),
    "GNU tar, reproducible": _tar("--sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner"),
    "GNU tar, huge owner": _tar("--owner=miner:5000000 --group=miner:5000000"),
    "GNU tar, before 1970": _tar("--mtime=@-5"),
    "GNU tar, posix, before 1970": _tar("--format=posix --mtime=@-5.5"),
    "GNU tar, posix, attributes": _tar("--format=posix --xattrs --acls --selinux"),
    "GNU tar, sparse asked for": _tar("-S"),
    "GNU tar, odd modes": _tar("--mode=u+s,g+s,+t,a+x"),
    "GNU tar, one-block records": _tar("-b 1"),
    "GNU tar, huge records": _tar("-b 2048"),
    "GNU tar, no wrapper": Recipe("tar", "cd w && tar -cz *"),
    "GNU tar, files only": Recipe("tar", "find w -type f -print0 | tar --null -T - -cz"),
    "GNU tar, appended": Recipe("tar", "tar -cf t w/kernels && tar -rf t w/[!k]* && gzip -c t"),
    "GNU tar, gzip without name": Recipe("tar", "tar -c w | gzip -9n"),
    "GNU tar, gzip with name": Recipe("tar", "tar -cf t w && gzip -1N t && cat t.gz"),
    "GNU tar, rsyncable": Recipe("tar", "tar -c w | gzip --rsyncable"),
    "bsdtar": _bsdtar(""),
    "bsdtar, to a pipe": Recipe("bsdtar", "bsdtar -cz w | cat"),
    "bsdtar, pax": _bsdtar("--format pax"),
    "bsdtar, ustar": _bsdtar("--format ustar"),
    "bsdtar, gnutar": _bsdtar("--format gnutar"),
    "bsdtar, C locale, ustar": _bsdtar("--format ustar", locale="C"),
    "bsdtar, from GNU tar": Recipe("bsdtar", "tar -cf t w && bsdtar --format pax -czf out.tar.gz @t"),
    "git archive": Recipe("git", f"{_GIT} --format=tar.gz --prefix=w/ HEAD"),
    "git archive, no prefix": Recipe("git", f"{_GIT} --format=tar.gz HEAD"),
    "git archive of a tree": Recipe("git", f"{_GIT} --format=tar.gz --prefix=w/ 'HEAD^{{tree}}'"),
    "busybox": Recipe("busybox", "busybox tar -cz -f - w"),
    "cpio": Recipe("cpio", "find w | cpio --quiet -o -H ustar | gzip"),
    "7-Zip": Recipe("7z", "7z a -ttar t.tar w >&2 && gzip -c t.tar"),
    # Refused, each with a hint that says which command to run instead.
    "GNU tar of the current folder": _tar("-C w", ".", "NAME_INVALID"),
    "GNU tar, dot in front": _tar("", "./w", "NAME_INVALID"),
    "GNU tar, absolute": _tar("-P", '"$PWD/w"', "NAME_INVALID"),
    "GNU tar, a label": _tar("-V label", "w", "ARCHIVE_MALFORMED"),
    "GNU tar, incremental": _tar("-g snapshot", "w", "ARCHIVE_MEMBER_KIND"),
    "GNU tar, hard links": Recipe("tar", "ln w/README.md w/LICENSE && tar -cz w", "ARCHIVE_MEMBER_KIND"),
    "GNU tar, links": Recipe("tar", "ln -s README.md w/LICENSE && tar -cz w", "ARCHIVE_MEMBER_KIND"),
    "GNU tar, holes": Recipe("tar", f"{_HOLE} tar -Scz w", "ARCHIVE_MEMBER_KIND"),
    "GNU tar, posix, holes": Recipe("tar", f"{_HOLE} tar --format=posix -Scz w", "ARCHIVE_EXTENSION"),
    "GNU tar, v7": Recipe("tar", "tar --format=v7 -cz w/manifest.toml", "ARCHIVE_MALFORMED"),
    "GNU tar, xz": Recipe("tar", "tar -cJ w", "ARCHIVE_NOT_GZIP"),
    "bsdtar of the current folder": _bsdtar("-C w", ".", "NAME_INVALID"),
    "bsdtar, C locale": _bsdtar("", code="ARCHIVE_EXTENSION", locale="C"),
    "bsdtar, zip": Recipe("bsdtar", "bsdtar --format zip -cf out.tar.gz w", "ARCHIVE_NOT_GZIP"),
}


def run_recipe(recipe: Recipe, folder: Path) -> tuple[bytes, str]:
    """Write the bundle below `folder` and make its archive; return it and the content hash of the tree before."""
    digest = hash_tree(write_tree(folder / "w", TREE)).hex
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "LC_ALL": recipe.locale, "GIT_CONFIG_NOSYSTEM": "1"}
    shell = ["sh", "-c", f"umask 022; {recipe.command}"]
    done = subprocess.run(shell, cwd=folder, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    written = folder / "out.tar.gz"
    return (written.read_bytes() if written.exists() else done.stdout), digest


def by_python(style: int) -> bytes:
    """Return what `tarfile.add` makes of the tree, with the owners and times of this machine."""
    buffer = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        write_tree(Path(folder), TREE)
        with tarfile.open(fileobj=buffer, mode="w:gz", format=style) as archive:
            archive.add(folder, arcname="w")
    return buffer.getvalue()


def apple_double(value: bytes) -> bytes:
    """Return an AppleDouble file with one extended attribute as its resource."""
    entries = struct.pack(">III", 9, 38, 12 + len(value))
    return struct.pack(">II16sH", 0x51607, 0x20000, b"Mac OS X        ", 1) + entries + bytes(12) + value


def by_macos(*, doubles: bool, ds_store: bool = False) -> bytes:
    """Return the tree as the tar of macOS 14 records it: folders first, owner 501:20, vendor records on every member.

    With `doubles` every member comes after its AppleDouble file, which COPYFILE_DISABLE=1 prevents.
    """
    attribute = "xattr.com.apple.provenance"
    records = {
        f"LIBARCHIVE.{attribute}": "AQIAV0qLx5GkZTc",
        f"SCHILY.{attribute}": "\x01\x02",
        "mtime": "1764460800.25",
    }
    records["LIBARCHIVE.creationtime"] = "1764460700.5"
    files: dict[str, bytes] = {f"w/{path}": content for path, content in TREE.items()}
    if ds_store:
        files["w/.DS_Store"] = b"\x00\x00\x00\x01Bud1"
    folders = {parent for path in files for parent in Path(path).parents if parent.name}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted({*map(str, folders), *files}):
            double = f"{path.rpartition('/')[0]}/._{path.rpartition('/')[2]}".removeprefix("/")
            for name, content in ((double, apple_double(b"\x01\x02") if doubles else None), (path, files.get(path))):
                if name == double and content is None:
                    continue
                info = tarfile.TarInfo(name)
                info.uid, info.gid, info.uname, info.gname = 501, 20, "miner", "staff"
                info.pax_headers = dict(records)
                if content is None:
                    info.type, info.mode = tarfile.DIRTYPE, 0o755
                else:
                    info.size = len(content)
                archive.addfile(info, io.BytesIO(content or b""))
    return gzip.compress(buffer.getvalue(), mtime=1764460800)


BUILT: dict[str, tuple[Callable[[], bytes], str]] = {
    "Python, ustar": (lambda: by_python(tarfile.USTAR_FORMAT), ""),
    "Python, gnu": (lambda: by_python(tarfile.GNU_FORMAT), ""),
    "Python, pax": (lambda: by_python(tarfile.PAX_FORMAT), ""),
    "macOS, COPYFILE_DISABLE=1": (lambda: by_macos(doubles=False), ""),
    "macOS": (lambda: by_macos(doubles=True), "NAME_EXCLUDED"),
}


def tool_version(tool: str) -> str:
    """Return the first line a tool says about itself."""
    if tool in ("busybox", "7z"):
        done = subprocess.run([tool], capture_output=True, text=True, check=False)
    else:
        done = subprocess.run([tool, "--version"], capture_output=True, text=True, check=True)
    return next(line for line in (done.stdout + done.stderr).splitlines() if line.strip())


def _row(name: str, code: str, archive: bytes, **how: str) -> dict[str, Any]:
    try:
        digest = hash_files(unpack(archive))
        assert not code, name
    except IntakeError as error:
        if error.code != code:
            raise
        digest = ""
    return {"name": name, **how, "code": code, "hash": digest, "archive_b64": base64.b64encode(archive).decode()}


def record() -> None:
    """Make every archive once and write the golden file."""
    rows = []
    for name, recipe in RECIPES.items():
        assert shutil.which(recipe.tool), f"{recipe.tool} is not installed"
        with tempfile.TemporaryDirectory() as folder:
            archive, _ = run_recipe(recipe, Path(folder))
        how = {"tool": tool_version(recipe.tool), "command": recipe.command, "locale": recipe.locale}
        rows.append(_row(name, recipe.code, archive, **how))
    for name, (build, code) in BUILT.items():
        how = {"tool": f"Python {sys.version.split()[0]} tarfile", "command": "tests/intake/accepted_archives.py"}
        rows.append(_row(name, code, build(), **how))
    (GOLDEN / "archives.json").write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", "utf-8")
    print(f"{len(rows)} archives recorded")


if __name__ == "__main__":
    record()
