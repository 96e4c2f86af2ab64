"""The normal form of a CUDA unit: what its kernels and host functions say, blind to names and order.

Invariants
1. Names that the bundle declares are numbered by first use, declaration by declaration; all other names stand as they
   are. Equal digests therefore mean texts that differ in a consistent renaming only.
2. A unit is the set of what it exports and of what runs when it is loaded: its host functions, objects that are built
   or computed (a registration, say) and, when none of these names a kernel, all its kernels.
   What they do not reach is dead and does not count, nor does the order or the file of a declaration.
3. Time is linear in the tokens. Text beyond `_RENAMED` bytes or `_DECLARATIONS` in all is compared with its names as
   they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from intake.cuda_chunks import PLAIN_TYPES, Chunk, chunks_of, is_number
from intake.cuda_sources import CudaSources
from intake.cuda_text import read_cuda
from intake.digest_graph import deep_digests, digest_of, reached
from intake.parts import CUDA, Part
from intake.suggest import words

_RENAMED = 1 << 20  # bytes of all units, each with its headers
_DECLARATIONS = 16_384  # of all units, each with its headers; bounds memory
_PASSIVE = words("__device__ template struct class union enum using typedef constexpr const static inline __constant__")

_NO_OBJECTS = words("__device__ __constant__ constexpr enum extern template typedef union using struct class")


class Unit(NamedTuple):
    """One compiled unit: the whole as one part, and the declarations it consists of."""

    whole: Part
    parts: tuple[Part, ...]


def cuda_units(cuda: CudaSources, files: Mapping[str, bytes]) -> dict[str, Unit]:
    """Return the normal form of every unit, by path."""
    texts = {path: (path, *cuda.closure(path)) for path in cuda.units.values()}
    if sum(len(files[name]) for names in texts.values() for name in names) > _RENAMED:
        return _plain_units(cuda, files)
    chunks: dict[str, list[Chunk]] = {}
    left = _DECLARATIONS
    for path in cuda.edges:
        chunks[path] = chunks_of(read_cuda(path, bytes(files[path])), left)
        left -= len(chunks[path])
        if left < 0:
            return _plain_units(cuda, files)
    if sum(len(chunks[name]) for names in texts.values() for name in names) > _DECLARATIONS:
        return _plain_units(cuda, files)
    return {path: _unit(path, [(name, chunks[name]) for name in names]) for path, names in texts.items()}


def _unit(path: str, files: list[tuple[str, list[Chunk]]]) -> Unit:
    places, chunks = _without_prototypes([(name, chunk) for name, found in files for chunk in found])
    owners: dict[str, list[int]] = {}
    for index, chunk in enumerate(chunks):
        for name in chunk.shared:
            owners.setdefault(name, []).append(index)
    members = {name for chunk in chunks for name in chunk.members}
    written = [_write(chunk, owners, members, chunks) for chunk in chunks]
    digests = [digest_of(*tokens) for tokens, _ in written]
    # A name that several declarations declare is a node of its own, which refers to them all.
    shared = {
        name: len(digests) + place for place, name in enumerate(n for n, found in owners.items() if len(found) > 1)
    }
    references = [[shared.get(name, owners[name][0]) for name in names] for _, names in written]
    references += [sorted(owners[name], key=digests.__getitem__) for name in shared]
    digests += ["overloads"] * len(shared)
    deep = deep_digests(digests, references)
    roots = _roots(chunks, owners, references)
    parts = [
        Part(CUDA, f"{places[node]} {_label(chunks[node])}", digests[node], _shape(tokens), len(tokens))
        for node in reached(roots, references)
        if node < len(chunks)
        for tokens in [written[node][0]]
    ]
    digest = digest_of(*sorted({deep[root] for root in roots}))
    shape = digest_of(*sorted({part.shape for part in parts}))
    return Unit(Part(CUDA, path, digest, shape, sum(part.weight for part in parts)), tuple(parts))


def _without_prototypes(found: list[tuple[str, Chunk]]) -> tuple[list[str], list[Chunk]]:
    """Return the files and the declarations, leaving out those that only announce another one."""
    bodies = {name for _, chunk in found if not _is_prototype(chunk) for name in chunk.shared}
    kept = [item for item in found if not (_is_prototype(item[1]) and item[1].shared.keys() <= bodies)]
    return [path for path, _ in kept], [chunk for _, chunk in kept]


def _is_prototype(chunk: Chunk) -> bool:
    tokens = chunk.tokens
    return tokens[-1] == ";" and "{" not in tokens and "=" not in tokens and ("(" in tokens or "struct" in tokens)


def _write(
    chunk: Chunk, owners: Mapping[str, list[int]], members: set[str], chunks: list[Chunk]
) -> tuple[list[str], list[str]]:
    """Return the tokens of a declaration with its names numbered, and the names it refers to in order of first use."""
    own: dict[str, str] = {}
    outer: dict[str, str] = {}
    tokens: list[str] = []
    before = ""
    for token in chunk.tokens:
        is_member = before in (".", "->")
        if (token in chunk.local and not is_member and before != "::") or token in chunk.shared:
            written = own.setdefault(token, f"l{len(own)}")
        elif token in owners and (not is_member or token in members):
            # Which of the names that the other declaration declares counts as well.
            ordinal = chunks[owners[token][0]].shared[token]
            written = outer.setdefault(token, f"g{len(outer)}:{ordinal}")
        else:
            written = token
        tokens.append(written)
        before = token
    return tokens, list(outer)


def _roots(chunks: list[Chunk], owners: Mapping[str, list[int]], references: list[list[int]]) -> list[int]:
    """Return what a unit exports: host functions, and its kernels if no host function names one."""
    kernels = {index for index, chunk in enumerate(chunks) if "__global__" in chunk.head}
    hosts = [index for index, chunk in enumerate(chunks) if index not in kernels and not _is_passive(chunk)]
    # `static T name;` reads as if it declared both names; the type's constructor runs as well.
    made = [chunk for chunk in chunks if _is_made_on_loading(chunk)]
    hosts += sorted({index for chunk in made for name in chunk.shared for index in owners[name]}.difference(hosts))
    return hosts if kernels & set(reached(hosts, references)) else [*hosts, *sorted(kernels)]


def _is_passive(chunk: Chunk) -> bool:
    """Say whether a declaration does nothing unless something names it."""
    is_instance = chunk.tokens[0] == "template" and chunk.tokens[1:2] != ["<"]
    is_macro = chunk.is_directive and (chunk.tokens[0] == "#define(" or chunk.tokens[1:2] == ["define"])
    if is_macro:
        return True
    return not (is_instance or chunk.is_directive or _is_made_on_loading(chunk)) and bool(chunk.head & _PASSIVE)


def _is_made_on_loading(chunk: Chunk) -> bool:
    """Say whether a declaration is an object that code may build or compute when the unit is loaded."""
    tokens = chunk.tokens
    if tokens[-1] != ";" or chunk.head & _NO_OBJECTS:
        return False
    if "=" in tokens:
        return "(" in tokens[tokens.index("=") :]
    given = "(" not in tokens or any(is_number(token) or token[0] in "\"'" for token in tokens)
    return given and not chunk.head & PLAIN_TYPES


def _label(chunk: Chunk) -> str:
    return next(iter(chunk.shared), "declaration")


def _shape(tokens: list[str]) -> str:
    return digest_of(*("number" if is_number(token) else token for token in tokens))


def _plain_units(cuda: CudaSources, files: Mapping[str, bytes]) -> dict[str, Unit]:
    """Return the units of a bundle with very much CUDA, its names as they are."""
    units = {}
    for path in cuda.units.values():
        headers = sorted(cuda.digests[header] for header in cuda.closure(path))
        digest = digest_of(cuda.digests[path], *headers)
        part = Part(CUDA, path, digest, digest, len(files[path]) // 4)
        units[path] = Unit(part, (part,))
    return units
