"""Every code that can be raised is documented, and every documented code can be raised."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest

from config.codes import load_codes
from config.errors import Blame, CacheonError, EvidenceError

ROOT = Path(__file__).parent.parent.parent
ROOMS = ("config", "chain", "intake", "qualify", "scoring", "node")


def spelled_codes() -> Iterator[tuple[str, str]]:
    """Yield (code, place) for every first argument of a call of an error class, and every text that names a code."""
    for room in ROOMS:
        for path in (ROOT / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if not isinstance(node, ast.Call) or not node.args:
                    continue
                name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
                first = node.args[0]
                if name.endswith("Error") and isinstance(first, ast.Constant) and isinstance(first.value, str):
                    text = first.value
                    if text.isupper() and " " not in text:
                        yield text, f"{path.relative_to(ROOT)}:{node.lineno}"


def blames() -> Iterator[tuple[str, str, str]]:
    """Yield (code, place, whom the error blames) of every error that is built with a constant code and blame."""
    errors = (*CacheonError.__subclasses__(), EvidenceError)
    kinds = {kind.__name__: kind.default_blame.value for kind in errors if kind.__module__ == "config.errors"}
    for room in ROOMS:
        for path in (ROOT / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or not node.args:
                    continue
                told = next((word.value for word in node.keywords if word.arg == "blame"), None)
                blame = told.attr.lower() if isinstance(told, ast.Attribute) else kinds.get(node.func.id, "")
                stated = told is None or blame in set(Blame)
                if node.func.id in kinds and isinstance(node.args[0], ast.Constant) and stated:
                    yield str(node.args[0].value), f"{path.relative_to(ROOT)}:{node.lineno}", blame


def test_an_error_blames_whom_its_explanation_blames() -> None:
    """What `cacheon explain` says of a code, the error itself says too."""
    known, found = load_codes(), list(blames())
    assert len(found) > 300
    assert [one for one in found if one[0] in known and known[one[0]].blame != one[2]] == []


def test_every_raised_code_is_documented() -> None:
    """`cacheon explain` knows every code that the source spells."""
    known = load_codes()
    missing = sorted({f"{code} ({place})" for code, place in spelled_codes() if code not in known})
    assert not missing


def test_every_documented_code_is_spelled_somewhere() -> None:
    """No code is documented that nothing can produce."""
    source = "\n".join(path.read_text("utf-8") for room in ROOMS for path in (ROOT / room).rglob("*.py"))
    unused = sorted(code for code in load_codes() if code not in source)
    assert not unused


def test_no_code_is_documented_twice() -> None:
    """One code has one meaning."""
    seen: dict[str, str] = {}
    for item in resources.files("config.codes").iterdir():
        if item.name.endswith(".toml"):
            for line in item.read_text("utf-8").splitlines():
                if line.startswith("["):
                    assert line not in seen, f"{line} in {item.name} and {seen[line]}"
                    seen[line] = item.name


@pytest.mark.parametrize("code", sorted(load_codes()))
def test_each_document_can_be_read_by_a_stranger(code: str) -> None:
    """A code has a known blame, one sentence and a longer text."""
    document = load_codes()[code]
    assert document.blame in set(Blame)
    assert document.summary.endswith(".")
    assert len(document.explain.strip()) > 40
