"""The house rules a linter cannot state: size, start-up imports, and nothing of the workshop in the tree."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("config", "chain", "intake", "qualify", "scoring", "node")
SOURCES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_functions_stay_small(path: Path) -> None:
    """No file has more than 800 lines and no function more than 120."""
    text = path.read_text("utf-8")
    assert text.count("\n") <= 800
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert (node.end_lineno or 0) - node.lineno < 120, node.name


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_module_says_what_it_is(path: Path) -> None:
    """A module with code begins with a docstring."""
    tree = ast.parse(path.read_text("utf-8"))
    assert not tree.body or ast.get_docstring(tree)


@pytest.mark.parametrize("room", ["config", "intake", "scoring"])
def test_pure_rooms_load_no_heavy_library(room: str) -> None:
    """Importing every module of a pure room loads neither torch nor the chain SDK nor the database."""
    names = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in SOURCES
        if path.relative_to(ROOT).parts[0] == room and path.name != "__main__.py"
    ]
    program = "import importlib, sys\n" + "".join(f"importlib.import_module({name!r})\n" for name in names)
    program += "bad = {'torch', 'bittensor', 'bittensor_core', 'sqlalchemy', 'typer', 'cuda'} & set(sys.modules)\n"
    program += "sys.exit(', '.join(sorted(bad)) or 0)"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False)
    assert result.returncode == 0, result.stderr
