"""A digest of what an implementation computes, blind to how it is written down.

Invariants
1. The digest is taken over what an entry reaches, and over what runs when its files are imported. Formatting, comments,
   docstrings, annotations, noise, dead code, unreached definitions, the order of definitions, file names and the split
   into files do not change it; nor do names of locals, parameters, helpers and the entry, nor other spellings of the
   same constant or the same statement (`intake.fingerprint.body`, `rewrite`, `folding`).
2. Constants, operators, attributes, control flow and calls do count: different work gives a different digest.
3. CUDA sources and dependency patches count as `intake.payload` says, each unit and each patched file as a piece of its
   own. Where they do the work (they outweigh the Python, and no kernel is written in Python), the Python around them is
   a shim and does not count: another shim makes no other implementation, and the same shim no copy.
4. Routing metadata, variants, dtypes and architectures are not part of it.
5. `VERSION` changes whenever a digest of some bundle may change; it is part of every digest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from config.canonical import domain_digest
from intake.closure import LocalModules
from intake.digest_graph import digest_of
from intake.fingerprint.names import Trees
from intake.fingerprint.outline import File
from intake.fingerprint.program import Program
from intake.manifest import Op
from intake.parts import PYTHON, Part, heaviest
from intake.payload import Payload, direct_parts
from intake.syntax import too_complex

VERSION: Final = 4


class Fingerprint(NamedTuple):
    """`digest` of the whole bundle, its sorted `pieces`, and the `parts` it consists of, for showing and comparing.

    Two bundles with equal digests hold the same implementations; pieces are what one of them has to hold of another to
    hold all of its work.
    """

    digest: str
    pieces: tuple[str, ...]
    parts: tuple[Part, ...]


def fingerprint(
    ops: Iterable[Op],
    trees: Trees,
    modules: LocalModules,
    payload: Payload,
    outlines: Mapping[str, File] = MappingProxyType({}),
) -> Fingerprint:
    """Fingerprint a bundle from its rows, the syntax trees of its files and its native sources.

    `trees` returns the tree of one file; it is asked for files that an entry reaches by name, and what it returns is
    not changed. `outlines` are those of some files, made from the same trees, which saves asking for them.
    Raises `IntakeError` (PYTHON_TOO_COMPLEX).
    """
    try:
        return _fingerprint(ops, Program(trees, modules, outlines), payload)
    except RecursionError:  # nesting is bounded; this is for what we did not think of
        raise too_complex("") from None


def _fingerprint(ops: Iterable[Op], program: Program, payload: Payload) -> Fingerprint:
    rows: set[tuple[str, ...]] = set()
    parts: dict[Part, None] = {}
    for op in ops:
        pieces, reached = _row(op, program, payload)
        rows.add((op.slot, *pieces))
        parts.update(dict.fromkeys(reached))
    digest = domain_digest("cacheon.fingerprint", [VERSION, *(list(row) for row in sorted(rows))])
    pieces = sorted({piece for _, *row in rows for piece in row})
    return Fingerprint(digest, tuple(pieces), heaviest(parts))


def _row(op: Op, program: Program, payload: Payload) -> tuple[list[str], list[Part]]:
    """Return the sorted pieces of one row, and its parts."""
    tags = ["cacheon.implementation", str(VERSION), op.slot]
    if op.base_kernel is not None:
        tags.append(f"{op.base_kernel}/{op.override_point}")
    names = [op.entry] + ([] if op.prepare is None else [op.prepare])
    if op.override_point is not None:
        names.append(f"{op.entry}_ref")
    if op.direct is not None:
        declaration, exports = direct_parts(op.direct)
        tags.append(declaration)
        names = [export.factory for export in exports]
    roots = [program.root(op.source, name) for name in names]
    nodes = program.below(roots)
    native = payload.of(op, program.imported(nodes))
    pieces = [digest_of(*tags, unit.whole.kind, unit.whole.digest) for unit in native]
    parts = [part for unit in native for part in unit.parts]
    python = sum(program.nodes[node].weight for node in nodes)
    holds_kernel = any(program.nodes[node].holds_kernel for node in nodes)
    if not native or holds_kernel or python > sum(unit.whole.weight for unit in native):
        said = [program.deep(root) if isinstance(root, int) else root for root in roots]
        effects = [program.deep(effect) for effect in program.effects(roots, nodes)]
        pieces.append(digest_of(*tags, "roots", *said, "effects", *effects))
        parts += [_part(program, node) for node in nodes]
    return sorted(set(pieces)), parts


def _part(program: Program, node: int) -> Part:
    found = program.nodes[node]
    return Part(PYTHON, f"{found.path}:{found.line} {found.name}", found.digest, found.shape, found.weight)


__all__ = ["VERSION", "Fingerprint", "Part", "fingerprint"]
