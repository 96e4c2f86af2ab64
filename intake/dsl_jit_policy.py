"""The one exception to the ban on `.compile`: tracing a function object with a registered kernel language.

Invariants
1. `DSL_JIT_ENTRYPOINTS` is the whole exception. Triton needs none: its kernels compile when they are launched.
2. A call is admitted only if its receiver is a bare name that is bound exactly once in the whole file, by an absolute
   import of the registered module, and nothing in the file could rebind names behind the reader's back.
3. The first positional argument is present, is not starred and is no text or bytes literal, formatted or put together
   from literals; no keyword value is one. What a name holds is not followed.
   The exception is for function objects, never for source text.
4. A file that imports a language's module but uses the package itself has to import that, too: kernels would fail when
   they are traced, far from the line that is wrong.
"""

from __future__ import annotations

import ast
from collections import Counter

from config.errors import IntakeError, SourceLocation
from intake.nodes import FIELDS
from intake.syntax import Parsed, line_of

DSL_JIT_ENTRYPOINTS = {"compile": "cutlass.cute"}

_REBINDING_CALLS = frozenset({"setattr", "delattr", "globals", "vars", "locals"})
_REBINDING_ATTRIBUTES = frozenset({"__setattr__", "__delattr__", "__dict__", "__globals__", "__builtins__"})
# The kinds of node of which `_bound_names` may know a name.
_BINDERS = frozenset({ast.Name, ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal, ast.arg}) | {
    kind for kind in FIELDS if not {"name", "rest"}.isdisjoint(kind._fields)
}


def admitted_calls(nodes: list[ast.AST], *, is_vendored: bool) -> frozenset[int]:
    """Return the `id()` of every call among the `nodes` of one file that the exception admits.

    `is_vendored` says that the bundle itself holds a module under a registered language's name.
    """
    if is_vendored or any(_withdraws(node) for node in nodes) or _reads_module_table(nodes):
        return frozenset()
    bindings = Counter(name for node in nodes for name in _bound_names(node))
    receivers = {name for node in nodes for name in _receivers(node) if bindings[name] == 1}
    return frozenset(id(node) for node in nodes if _is_admitted(node, receivers))


def check_package_import(path: str, parsed: Parsed) -> None:
    """Raise `IntakeError` (IMPORT_MISSING) at the first use of a language's package that the file never binds."""
    imports = [node for kind in (ast.Import, ast.ImportFrom) for node in parsed.kinds.get(kind, ())]
    if not any(_receivers(node) for node in imports):
        return
    used = {module.partition(".")[0]: module for module in DSL_JIT_ENTRYPOINTS.values()}
    uses: list[ast.Name] = [node for node in parsed.kinds.get(ast.Name, ()) if node.id in used]
    if not uses:
        return
    binders = (node for kind, nodes in parsed.kinds.items() if kind in _BINDERS for node in nodes)
    bound = {name for node in binders for name in _bound_names(node)}
    uses = [node for node in uses if node.id not in bound]
    for node in sorted(uses, key=lambda node: (node.lineno, node.col_offset))[:1]:
        raise IntakeError(
            "IMPORT_MISSING",
            f"{node.id} is used, but only {used[node.id]} is imported.",
            hint=f"Add `import {node.id}` at the top of the file.",
            location=SourceLocation(path, line_of(node)),
        )


def _withdraws(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return any(alias.name == "*" for alias in node.names)
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in _REBINDING_CALLS
    return isinstance(node, ast.Attribute) and node.attr in _REBINDING_ATTRIBUTES


def _reads_module_table(nodes: list[ast.AST]) -> bool:
    aliases = {
        alias.asname or alias.name
        for node in nodes
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name == "sys"
    }
    return any(
        isinstance(node, ast.Attribute)
        and node.attr == "modules"
        and isinstance(node.value, ast.Name)
        and node.value.id in aliases
        for node in nodes
    )


def _bound_names(node: ast.AST) -> list[str]:
    """Return the names that one node binds, in any scope and by any construct."""
    if isinstance(node, ast.Name):
        return [] if isinstance(node.ctx, ast.Load) else [node.id]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name.partition(".")[0] for alias in node.names]
    if isinstance(node, ast.Global | ast.Nonlocal):
        return list(node.names)
    if isinstance(node, ast.arg):
        return [node.arg]
    name = getattr(node, "name", None) or getattr(node, "rest", None)
    return [name] if isinstance(name, str) else []


def _receivers(node: ast.AST) -> list[str]:
    registered = set(DSL_JIT_ENTRYPOINTS.values())
    if isinstance(node, ast.Import):
        return [alias.asname for alias in node.names if alias.asname and alias.name in registered]
    if isinstance(node, ast.ImportFrom) and node.level == 0:
        return [alias.asname or alias.name for alias in node.names if f"{node.module}.{alias.name}" in registered]
    return []


def _is_admitted(node: ast.AST, receivers: set[str]) -> bool:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    if node.func.attr not in DSL_JIT_ENTRYPOINTS or not isinstance(node.func.value, ast.Name):
        return False
    if node.func.value.id not in receivers or not node.args or isinstance(node.args[0], ast.Starred):
        return False
    return not any(_is_text(value) for value in (node.args[0], *(keyword.value for keyword in node.keywords)))


def _is_text(node: ast.AST) -> bool:
    """Say whether `node` is a text or bytes literal, or can only be a text made of literals."""
    if isinstance(node, ast.NamedExpr):
        return _is_text(node.value)
    if isinstance(node, ast.IfExp):
        return _is_text(node.body) or _is_text(node.orelse)
    if isinstance(node, ast.BoolOp):
        return any(map(_is_text, node.values))
    if isinstance(node, ast.BinOp):
        return _is_text(node.left) or _is_text(node.right)
    if isinstance(node, ast.Subscript):
        return _is_text(node.value)
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and _is_text(node.func.value)  # "".join(parts)
    if isinstance(node, ast.JoinedStr):
        return True
    return isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
