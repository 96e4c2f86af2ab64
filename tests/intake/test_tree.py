"""File kinds, contents and declarations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from config.errors import ErrorDocument, IntakeError
from intake.content_hash import read_tree
from intake.manifest import load_manifest
from intake.refusal import Findings
from intake.screen import screen_files
from intake.syntax import parse_python
from intake.tree import Kind, check_names, check_tree, kind_of
from tests.intake.differences import TREE
from tests.intake.support import bundle, golden, plant

VECTORS = [vector for vector in golden("tree_scan_vectors") if vector.get("entries")]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_golden_trees(vector: dict[str, Any], tmp_path: Path) -> None:
    """Recorded trees pass or fail the inventory as recorded, or as our list of differences says."""
    findings = Findings()
    root = plant(tmp_path / "tree", vector["entries"])
    try:
        files = read_tree(root)
        manifest = load_manifest(files, findings)
        check_names(files, findings)
        check_tree(files, manifest, findings)
        for path, data in files.items():
            if kind_of(path) is Kind.PYTHON:
                parse_python(path, data)
    except IntakeError as error:
        findings.take(error)
    expected = TREE[vector["name"]][0] if vector["name"] in TREE else vector["strict_accept"]
    assert (not findings) == expected, findings.documents()


def findings_of(**changes: bytes | None) -> list[ErrorDocument]:
    """Return what screening says about a bundle with these files changed."""
    try:
        screen_files(bundle(**changes))
    except IntakeError as error:
        return list(getattr(error, "findings", [error.to_document()]))
    return []


@pytest.mark.parametrize(
    ("path", "content", "code"),
    [
        ("notes.txt", b"x", "TREE_FILE_KIND"),
        ("kernels/k.cubin", b"\x7fELF", "TREE_BINARY"),
        ("weights.pt", b"x", "TREE_BINARY"),
        ("README.md", b"a\x00b", "TREE_NOT_TEXT"),
        ("README.md", b"a\x1b[31mb", "TREE_NOT_TEXT"),
        ("README.md", b"\xff", "TREE_NOT_TEXT"),
        ("README.exe", b"x", "TREE_BINARY"),
        ("LICENSE-1.0-py3-none-any.whl", b"x", "TREE_BINARY"),
        ("metadata/x.json", b"{", "METADATA_MALFORMED"),
        ("metadata/x.json", b'{"a": 1, "a": 2}', "METADATA_MALFORMED"),
        ("rebuild.json", b'{"steps": [{"type": "repo_python", "path": "x"}]}', "REBUILD_UNKNOWN_BUILDER"),
        ("kernels/other.py", b"x = 1\n", "TREE_UNDECLARED"),
        ("kernels/other.cu", b"//", "TREE_UNDECLARED"),
        ("p.patch", b"--- a/x\n", "TREE_UNDECLARED"),
        ("kernels/kernel.py", b"x = '/home/alice/x'\ndef silu_and_mul():\n    pass\n", "TREE_MACHINE_PATH"),
        ("README.md", b"key AKIAABCDEFGHIJKLMNOP\n", "TREE_CREDENTIAL"),
        ("README.md", b"-----BEGIN RSA PRIVATE KEY-----\n", "TREE_CREDENTIAL"),
        ("README.md", b"hf_" + b"a" * 34, "TREE_CREDENTIAL"),
        ("README.md", b"github_pat_" + b"a" * 82, "TREE_CREDENTIAL"),
        ("README.md", b"sk-" + b"a" * 48, "TREE_CREDENTIAL"),
        ("README.md", b"sk-proj-" + b"a" * 48, "TREE_CREDENTIAL"),
        ("README.md", b"xoxb-" + b"1" * 24, "TREE_CREDENTIAL"),
        ("README.md", b"AIza" + b"a" * 35, "TREE_CREDENTIAL"),
        ("metadata/hotkey.json", b'{"ss58Address": "x", "secretPhrase": "some words"}', "TREE_CREDENTIAL"),
        ("metadata/hotkey.json", b'{"secretSeed" : "0xab", "secretPhrase": null}', "TREE_CREDENTIAL"),
        ("kernels/kernel.py", "x = 1 # \u202e\ndef silu_and_mul():\n    pass\n".encode(), "TREE_NOT_TEXT"),
        ("torch.py", b"", "LOCAL_SHADOWS_EXTERNAL"),
        ("os/__init__.py", b"", "LOCAL_SHADOWS_EXTERNAL"),
        ("config.py", b"", "LOCAL_SHADOWS_EXTERNAL"),
    ],
)
def test_what_a_bundle_may_not_hold(path: str, content: bytes, code: str) -> None:
    """Each kind of foreign material has its code and names the file."""
    findings = findings_of(**{path: content})
    assert code in {item.code for item in findings}
    assert any(item.location.startswith(path) for item in findings if item.code == code)


@pytest.mark.parametrize(
    "path",
    ["LICENSE", "LICENSE-APACHE.txt", "docs/README.rst", ".gitignore", "x/metadata/y/b.json", "kernels/__init__.py"],
)
def test_what_a_bundle_may_hold(path: str) -> None:
    """Texts, notes and package markers are fine anywhere."""
    assert findings_of(**{path: b"" if path.endswith(".py") else b"{}"}) == []


def test_words_about_credentials_are_none() -> None:
    """What only resembles the beginning of a key is ordinary text."""
    text = b"a disk-cache, task-" + b"a" * 50 + b", sk-learn, hf_transfer, xox, AIza, secretPhrase, a PRIVATE KEY"
    assert findings_of(**{"README.md": text}) == []


def test_a_builder_that_builds_nothing_is_fine() -> None:
    """An empty rebuild.json is legal."""
    assert findings_of(**{"rebuild.json": b'{"steps": []}'}) == []
