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
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from config.errors import IntakeError, SourceLocation
from config.limits import INTAKE, IntakeLimits
from intake.nodes import ANY, FIELDS, MANY, ONE, OPTIONAL, SPARSE, Kinds, nodes_in, sort_nodes
from intake.refusal import clip

_COOKIE = re.compile(rb"[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
_BEFORE_EXPRESSION = re.compile(r"^[ \t\f]*\*?[ \t\f]*")
_UTF8 = frozenset({b"utf-8", b"utf8", b"utf_8"})
_PUNCTUATION = b"\n\"%&'()*+,-./:;<=>@[]^{|}~"


class Parsed(NamedTuple):
    """One source file: its tree, and all nodes of the tree by their kind."""

    tree: ast.Module
    kinds: Kinds

    @property
    def nodes(self) -> list[ast.AST]:
        """All nodes of the tree, in no particular order."""
        return [node for nodes in self.kinds.values() for node in nodes]


def parse_python(path: str, data: bytes | memoryview, limits: IntakeLimits = INTAKE) -> Parsed:
    """Return the syntax tree of one source file, its size and depth checked, with all its nodes.

    Raises `IntakeError` (PYTHON_ENCODING, PYTHON_SYNTAX, PYTHON_TOO_COMPLEX).
    """
    return bounded(path, parse_tree(path, data, limits), limits)


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


def bounded(path: str, tree: ast.Module, limits: IntakeLimits = INTAKE) -> Parsed:
    """Return a file of which size and depth are checked. Raises `IntakeError` (PYTHON_TOO_COMPLEX)."""
    kinds = sort_nodes(tree, limits.syntax_depth + 1, limits.syntax_nodes)
    if kinds is None:
        _check_size(path, tree, limits, limits.syntax_depth)
        raise too_complex(path)
    return Parsed(tree, kinds)


def parse_expression(text: str, line: int, limits: IntakeLimits = INTAKE) -> ast.expr | None:
    """Return the tree of the expression `text`, its nodes placed on `line`; None when it is no expression.

    Blanks around it and a star before it do not count: whoever evaluates annotations strips or unpacks them.

    Raises `IntakeError` (PYTHON_TOO_COMPLEX).
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(_BEFORE_EXPRESSION.sub("", text), mode="eval")
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


def children(node: ast.AST) -> Sequence[ast.AST]:
    """Return the child nodes of `node` in the order of the grammar, without operators, contexts and aliases."""
    return _CHILDREN[node.__class__](node)


def _child_reader(fields: Mapping[str, str]) -> Callable[[Any], Sequence[ast.AST]]:
    """Return what reads the children of one kind of node, in one step for the shapes that most nodes have."""
    shapes = tuple(fields.values())
    if not shapes:
        return lambda _: ()
    get: Any = attrgetter(*fields)
    if shapes == (MANY,) or (set(shapes) == {ONE} and len(shapes) > 1):
        return get  # type: ignore[no-any-return]
    if shapes == (ONE,):
        return lambda node: (get(node),)
    if shapes == (ONE, MANY, MANY):
        return lambda node: _joined(*get(node))
    if set(shapes) == {OPTIONAL}:
        return lambda node: tuple(filter(None, get(node) if len(shapes) > 1 else (get(node),)))
    return lambda node: _children(node.__dict__, fields)


def _joined(first: ast.AST, second: list[ast.AST], third: list[ast.AST]) -> list[ast.AST]:
    return [first, *second, *third]


def _children(values: Mapping[str, Any], fields: Mapping[str, str]) -> list[ast.AST]:
    found: list[ast.AST] = []
    for name, how in fields.items():
        value = values.get(name)
        if how is MANY:
            found += value or ()
        elif how is SPARSE:
            found += filter(None, value or ())
        elif how is ANY:
            found += nodes_in(value)
        elif value is not None:
            found.append(value)
    return found


_CHILDREN = {kind: _child_reader(fields) for kind, fields in FIELDS.items()}


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


def values_within(node: ast.AST) -> list[ast.AST]:
    """Return the expressions one of which `node` may give, itself or by an element; none where it makes a new value."""
    if isinstance(node, ast.Subscript | ast.Starred):
        return [node.value]
    if isinstance(node, ast.NamedExpr):
        return [node.target, node.value]
    if isinstance(node, ast.IfExp):
        return [node.body, node.orelse]
    if isinstance(node, ast.BoolOp | ast.Dict):
        return [*node.values]
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return [*node.elts]
    return []


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


def _check_size(path: str, tree: ast.mod, limits: IntakeLimits, depth: int) -> None:
    """Walk a tree level by level and say where it is too large or too deep."""
    count = 0
    level: list[ast.AST] = [tree]
    for _ in range(depth + 1):
        count += len(level)
        if count > limits.syntax_nodes:
            raise too_complex(path)
        level = [child for node in level for child in children(node)]
        if not level:
            return
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
