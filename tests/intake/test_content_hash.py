"""The content hash is a pure function of paths and contents."""

from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.errors import IntakeError, NotFoundError
from intake.content_hash import hash_files, hash_tree, read_tree
from tests.intake.differences import CONTENT_HASH
from tests.intake.support import golden, plant, write_tree

VECTORS = golden("content_hash_vectors")["vectors"]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_golden_trees_hash_as_recorded(vector: dict[str, Any], tmp_path: Path) -> None:
    """Trees on disk give the recorded hash and order, or the recorded refusal."""
    root = plant(tmp_path / "tree", vector["entries"])
    if vector["content_hash"] is None or vector["name"] in CONTENT_HASH:
        with pytest.raises(IntakeError):
            hash_tree(root)
        return
    found = hash_tree(root)
    assert found.hex == vector["content_hash"]
    assert [file.path for file in found.files] == vector["hashed_order"]
    assert hash_files(read_tree(root)) == found.hex


def test_a_symbolic_link_is_refused_by_name(tmp_path: Path) -> None:
    """A link is an error that names it, not a file that silently goes missing."""
    root = write_tree(tmp_path, {"a.py": b""})
    (root / "link.py").symlink_to("a.py")
    with pytest.raises(IntakeError) as caught:
        hash_tree(root)
    assert caught.value.code == "TREE_LINK"
    assert "link.py" in caught.value.message


def test_a_special_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe or a socket in the tree is an error, and reading it does not block."""
    root = write_tree(tmp_path, {"a.py": b""})
    os.mkfifo(root / "pipe")
    with pytest.raises(IntakeError) as caught:
        hash_tree(root)
    assert caught.value.code == "TREE_SPECIAL_FILE"
    (root / "pipe").unlink()
    with socket.socket(socket.AF_UNIX) as server:
        monkeypatch.chdir(root)  # a socket's path has to be short
        server.bind("sock")
        with pytest.raises(IntakeError) as caught:
            read_tree(root)
    assert caught.value.code == "TREE_SPECIAL_FILE"


def test_caches_and_repositories_do_not_count(tmp_path: Path) -> None:
    """Noise around the bundle changes nothing, and a strict reader refuses it."""
    root = write_tree(tmp_path, {"a.py": b"1"})
    before = hash_tree(root).hex
    write_tree(root, {".git/HEAD": b"x", "__pycache__/a.pyc": b"x", "old.pyc": b"x", "._a.py": b"x"})
    assert hash_tree(root).hex == before
    with pytest.raises(IntakeError) as caught:
        read_tree(root, strict=True)
    assert caught.value.code == "NAME_EXCLUDED"


def test_a_name_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    """A file name outside UTF-8 has no place in the preimage."""
    (tmp_path / "a.py").write_bytes(b"")
    with open(os.path.join(os.fsencode(tmp_path), b"\xff.py"), "wb"):
        pass
    with pytest.raises(IntakeError) as caught:
        hash_tree(tmp_path)
    assert caught.value.code == "NAME_INVALID"


def test_a_missing_folder_is_not_found(tmp_path: Path) -> None:
    """A folder that does not exist is the caller's mistake, not an empty bundle."""
    with pytest.raises(NotFoundError) as caught:
        hash_tree(tmp_path / "none")
    assert caught.value.code == "BUNDLE_NOT_FOUND"


NAMES = st.text("abz.- é", min_size=1, max_size=4).filter(lambda name: name.strip("."))


@given(st.dictionaries(st.lists(NAMES, min_size=1, max_size=3).map("/".join), st.binary(max_size=9), min_size=1))
def test_the_preimage_is_what_the_document_says(files: dict[str, bytes]) -> None:
    """The hash is SHA-256 over length-prefixed records in component order, whatever order the table has."""
    preimage = b"".join(
        len(path.encode()).to_bytes(4, "big") + path.encode() + len(files[path]).to_bytes(8, "big") + files[path]
        for path in sorted(files, key=lambda path: path.split("/"))
    )
    assert hash_files(files) == hashlib.sha256(preimage).hexdigest()
    assert hash_files(dict(reversed(files.items()))) == hash_files(files)
