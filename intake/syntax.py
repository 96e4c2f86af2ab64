"""Hostile Python bytes -> a bounded syntax tree of exactly what the interpreter would read.

Invariants
1. UTF-8 only: no byte-order mark, no coding cookie for anything else, no NUL, no lone carriage return. What is scanned
   is what runs.
2. Cost is bounded before it is spent: bytes, then punctuation (which bounds the tree), then nodes and nesting.
3. Nothing here recurses deeper than the nesting bound.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

from config.errors import IntakeError, SourceLocation
from config.limits import INTAKE, IntakeLimits
from intake.refusal import clip
from intake.suggest import words

_COOKIE = re.compile(rb"[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
_UTF8 = frozenset({b"utf-8", b"utf8", b"utf_8"})
_PUNCTUATION = b"\n\"%&'()*+,-./:;<=>@[]^{|}~"
_LEAF_FIELDS = words(
    "ctx op ops id attr arg kind type_comment level module names conversion is_async simple asname rest kwd_attrs "
    "type_ignores"
)
_SPARSE_FIELDS = frozenset({"keys", "kw_defaults"})  # lists that hold None for what is not there
_FIELDS: dict[type, tuple[str, ...]] = {ast.Constant: ()}


class Parsed(NamedTuple):
    """One source file: its tree, and all nodes of the tree from the top down."""

    tree: ast.Module
    nodes: list[ast.AST]


def parse_python(path: str, data: bytes | memoryview, limits: IntakeLimits = INTAKE) -> Parsed:
    """Return the syntax tree of one source file, its size and depth checked, with all its nodes.

    Raises `IntakeError` (PYTHON_ENCODING, PYTHON_SYNTAX, PYTHON_TOO_COMPLEX).
    """
    tree = parse_tree(path, data, limits)
    return Parsed(tree, bounded_nodes(path, tree, limits))


def parse_tree(path: str, data: bytes | memoryview, limits: IntakeLimits = INTAKE) -> ast.Module:
    """Return the syntax tree of one source file; its size and depth are still to be checked.

    Raises `IntakeError` (PYTHON_ENCODING, PYTHON_SYNTAX, PYTHON_TOO_COMPLEX).
    """
    raw = bytes(data)
    _check_encoding(path, raw)
    if len(raw) > limits.text_file_bytes or _punctuation(raw) > limits.source_punctuation:
        raise too_complex(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an odd escape sequence is the miner's taste, not our event
            return ast.parse(raw.decode("utf-8"), filename=path)
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise _encoding(path, "the file is not UTF-8", line) from None
    except SyntaxError as error:
        raise IntakeError(
            "PYTHON_SYNTAX",
            f"the file does not parse: {clip(str(error.msg))}.",
            hint="Run `python -m py_compile` on it.",
            location=SourceLocation(path, error.lineno or 0),
        ) from None
    except (RecursionError, MemoryError, ValueError, OverflowError):
        raise too_complex(path) from None


def bounded_nodes(path: str, tree: ast.Module, limits: IntakeLimits = INTAKE) -> list[ast.AST]:
    """Return all nodes of a file from the top down. Raises `IntakeError` (PYTHON_TOO_COMPLEX)."""
    return _check_size(path, tree, limits, limits.syntax_depth)


def parse_expression(text: str, line: int, limits: IntakeLimits = INTAKE) -> ast.expr | None:
    """Return the tree of the expression `text`, its nodes placed on `line`; None when it is no expression.

    Raises `IntakeError` (PYTHON_TOO_COMPLEX).
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError):
        return None
    except (RecursionError, MemoryError, OverflowError):
        raise too_complex("", line) from None
    # Annotations nest inside their function, so they get a part of the bound only.
    _check_size("", tree, limits, limits.syntax_depth // 4)
    for node in walk(tree.body):
        if hasattr(node, "lineno"):
            node.lineno = line
    return tree.body


def children(node: ast.AST) -> list[ast.AST]:
    """Return the child nodes of `node` in source order, without operators and contexts."""
    kind = type(node)
    names = _FIELDS.get(kind)
    if names is None:
        names = _FIELDS[kind] = tuple(name for name in getattr(kind, "_fields", ()) if name not in _LEAF_FIELDS)
    found: list[ast.AST] = []
    if not names:
        return found
    values = node.__dict__  # half the cost of a scan is spent here
    for name in names:
        value = values.get(name)
        if value.__class__ is list:
            found += value if name not in _SPARSE_FIELDS else [item for item in value if item is not None]
        elif isinstance(value, ast.AST):
            found.append(value)
    return found


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """Yield `node` and everything below it, without recursion."""
    pending: list[ast.AST] = [node]
    while pending:
        current = pending.pop()
        yield current
        pending.extend(children(current))


def dotted_name(node: ast.AST) -> tuple[ast.Name, list[str]] | None:
    """Return the root name and the attribute names of `a.b.c`, or of `getattr(a, "b").c`; None for anything else."""
    attributes: list[str] = []
    while not isinstance(node, ast.Name):
        link = attribute_link(node)
        if link is None:
            return None
        node, name = link
        attributes.append(name)
    attributes.reverse()
    return node, attributes


def attribute_link(node: ast.AST) -> tuple[ast.AST, str] | None:
    """Return `(object, attribute name)` for `object.name` and `getattr(object, "name", ...)`, else None."""
    if isinstance(node, ast.Attribute):
        return node.value, node.attr
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr"):
        return None
    if len(node.args) not in (2, 3) or isinstance(node.args[0], ast.Starred):
        return None
    name = literal_text(node.args[1])
    return None if name is None else (node.args[0], name)


def literal_text(node: ast.AST) -> str | None:
    """Return the value of a text literal, else None."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def line_of(node: ast.AST) -> int:
    """Return the line of a node, 0 when it has none."""
    line: Any = getattr(node, "lineno", 0)
    return int(line)


def _check_encoding(path: str, raw: bytes) -> None:
    if raw.startswith(b"\xef\xbb\xbf"):
        raise _encoding(path, "the file starts with a byte-order mark", 1)
    if b"\x00" in raw:
        raise _encoding(path, "the file holds a NUL byte", raw.count(b"\n", 0, raw.index(b"\x00")) + 1)
    if b"\r" in raw and raw.count(b"\r") != raw.count(b"\r\n"):
        raise _encoding(path, "the file holds a carriage return that does not end a line", 0)
    for number, line in enumerate(raw.split(b"\n", 2)[:2], start=1):
        cookie = _COOKIE.match(line)
        if cookie and cookie.group(1).lower() not in _UTF8:
            raise _encoding(
                path, f"the file declares the encoding {clip(cookie.group(1).decode('ascii', 'replace'))}", number
            )


def _punctuation(raw: bytes) -> int:
    return len(raw) - len(raw.translate(None, _PUNCTUATION))


def _check_size(path: str, tree: ast.mod, limits: IntakeLimits, depth: int) -> list[ast.AST]:
    """Return all nodes, level by level, if they are few and shallow enough."""
    nodes: list[ast.AST] = []
    level: list[ast.AST] = [tree]
    for _ in range(depth + 1):
        nodes += level
        if len(nodes) > limits.syntax_nodes:
            raise too_complex(path)
        level = [child for node in level for child in children(node)]
        if not level:
            return nodes
    raise too_complex(path, line_of(level[0]))


def _encoding(path: str, complaint: str, line: int) -> IntakeError:
    return IntakeError(
        "PYTHON_ENCODING",
        f"{complaint}; Python sources must be plain UTF-8.",
        hint="Save the file as UTF-8 without a byte-order mark and without a coding line.",
        location=SourceLocation(path, line),
    )


def too_complex(path: str, line: int = 0) -> IntakeError:
    """Return the refusal of a file that is too large or too deeply nested to be scanned."""
    return IntakeError(
        "PYTHON_TOO_COMPLEX",
        "the file is too large or too deeply nested to be scanned.",
        hint="Split the file, or flatten long expressions and else-if chains.",
        location=SourceLocation(path, line),
    )
