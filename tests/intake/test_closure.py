"""Local imports: what an entry reaches."""

from __future__ import annotations

from typing import Any

import pytest

from config.errors import IntakeError
from intake.closure import LocalModules, check_source, imports_of, python_closure
from intake.refusal import Findings
from intake.screen import screen_files
from intake.syntax import parse_python
from tests.intake.differences import CLOSURE
from tests.intake.support import MANIFEST, golden

VECTORS = golden("python_closure_vectors")


@pytest.mark.parametrize("vector", [v for v in VECTORS if "files" in v], ids=lambda vector: vector["name"])
def test_golden_closures(vector: dict[str, Any]) -> None:
    """Recorded file sets give the recorded closure, or a refusal; the whole screen agrees."""
    files = {path: text.encode() for path, text in vector["files"].items()}
    manifest = MANIFEST.replace(b"kernels/kernel.py", b"k.py")
    try:
        closure = screen_files({**files, "manifest.toml": manifest}).report.closure
    except IntakeError:
        assert not vector["accept"] or vector["name"] in CLOSURE
        return
    assert vector["accept"]
    assert list(closure) == vector["closure"]


@pytest.mark.parametrize("vector", [v for v in VECTORS if "source" in v], ids=lambda vector: vector["name"])
def test_golden_sources(vector: dict[str, Any]) -> None:
    """Sources that cannot be imported under their path are refused."""
    files = {vector["source"].removeprefix("./"): b"def silu_and_mul(x, out):\n    pass\n"}
    manifest = MANIFEST.replace(b"kernels/kernel.py", vector["source"].encode())
    with pytest.raises(IntakeError):
        screen_files({**files, "manifest.toml": manifest})


def closure(files: dict[str, str]) -> tuple[list[str], list[str]]:
    """Return the closure of `k.py` and the codes of findings."""
    modules = LocalModules(files)
    imports = {path: imports_of(parse_python(path, text.encode()).nodes) for path, text in files.items()}
    findings = Findings()
    reached = python_closure(["k.py"], imports, modules, findings)
    return reached, [f"{item.code} {item.location}" for item in findings.documents()]


def test_every_package_above_a_reached_file_is_reached() -> None:
    """`__init__.py` files run before their modules, so they belong to the closure."""
    files = {
        "k.py": "import a.b.c\n",
        "a/__init__.py": "",
        "a/b/__init__.py": "from . import d\n",
        "a/b/c.py": "",
        "a/b/d.py": "",
    }
    assert closure(files) == (["a/__init__.py", "a/b/__init__.py", "a/b/c.py", "a/b/d.py", "k.py"], [])


@pytest.mark.parametrize(
    "statement",
    ["import ns", "import a.nothing", "from a import b, nothing", "from ..x import y", "from .nothing import x"],
)
def test_partly_local_imports_are_refused_at_their_line(statement: str) -> None:
    """What is local in part has to be local in whole."""
    files = {"k.py": f"\n{statement}\n", "ns/x.py": "", "a/b.py": ""}
    _, codes = closure(files)
    assert codes == ["IMPORT_UNRESOLVED k.py:2"]


@pytest.mark.parametrize(
    ("path", "good"), [("a/b.py", True), ("class/b.py", False), ("a-b/c.py", False), ("a.txt", False), ("é.py", True)]
)
def test_entry_sources_are_importable(path: str, good: bool) -> None:
    """Folders and file are Python identifiers and no keywords."""
    assert (check_source(path) == "") is good
