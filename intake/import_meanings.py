"""What the names of one file may mean, scopes ignored: a superset of what `intake.scopes` says about any of them.

Invariants
1. A name that is bound by an import, or by a chain of `name = a.b.c` that ends at one, anywhere in the file, may mean
   that import everywhere in it.
2. Few steps only are followed from a name; a file that needs more is not answered for.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping

from intake.holdings import reached
from intake.nodes import Kinds
from intake.scopes import ImportedName
from intake.syntax import dotted_name

_STEPS = 9  # aliases followed from one name; the full scan bounds its own steps, which are these in each scope
_CHAINS = frozenset({ast.Name, ast.Attribute, ast.Call})  # a call may be `getattr` with a literal name

Chain = tuple[str, tuple[str, ...]]  # a root name and the attributes taken of it
Meanings = dict[str, set[ImportedName]]


def with_aliases(imported: Meanings, kinds: Kinds) -> Meanings | None:
    """Return `imported` with what aliases may mean; None when they are too entangled."""
    chains: dict[str, set[Chain]] = {}
    for name, value in _bindings(kinds):
        if value.__class__ in _CHAINS and (found := dotted_name(value)) is not None:
            chains.setdefault(name, set()).add((found[0].id, tuple(found[1])))
    reaching = _reaching(imported, chains)
    meanings = {name: set(origins) for name, origins in imported.items()}
    for name in chains.keys() & reaching:
        found_here = _follow(name, chains, imported, reaching)
        if found_here is None:
            return None
        meanings.setdefault(name, set()).update(found_here)
    return meanings


def _reaching(imported: Meanings, chains: Mapping[str, set[Chain]]) -> set[str]:
    """Return the names from which some import may be reached."""
    users: dict[str, list[str]] = {}
    for name, targets in chains.items():
        for root, _ in targets:
            users.setdefault(root, []).append(name)
    return reached(users, imported)


def _bindings(kinds: Kinds) -> Iterator[tuple[str, ast.expr]]:
    for node in kinds.get(ast.Assign, ()):
        for target in node.targets:
            if target.__class__ is ast.Name:
                yield target.id, node.value
    for kind in (ast.AnnAssign, ast.NamedExpr):
        for node in kinds.get(kind, ()):
            if node.target.__class__ is ast.Name and node.value is not None:
                yield node.target.id, node.value


def _follow(
    name: str, chains: Mapping[str, set[Chain]], imported: Meanings, reaching: Collection[str]
) -> set[ImportedName] | None:
    found: set[ImportedName] = set()
    pending: list[Chain] = [(name, ())]
    seen: set[Chain] = set()
    while pending:
        step = pending.pop()
        root, attributes = step
        if step in seen or root not in reaching:
            continue
        seen.add(step)
        if len(seen) > _STEPS or len(attributes) > _STEPS:
            return None
        for origin in imported.get(root, ()):
            path = ".".join([origin.path, *attributes])
            found.add(ImportedName(origin.name, path, origin.is_module and not attributes))
        pending += [(further, (*more, *attributes)) for further, more in chains.get(root, ())]
    return found
