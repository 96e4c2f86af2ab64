"""Digests of what a bundle brings besides Python, blind to how it is written down: CUDA, patches, direct declarations.

Invariants
1. CUDA: comments, line ends, joined lines, blanks, file names and folders do not count; tokens and literals do. A unit
   stands for itself and every header of the bundle it reaches (`intake.cuda_tokens`).
2. Patches: context, blanks, headers, file names of patches and their split into files do not count; which lines of
   which file of which dependency change, and into what, does.
3. Direct declarations: names of exports and of their factories, and the order of exports, do not count.
4. Time is linear in the size of the files; no list of all tokens is held.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from config.canonical import canonical_json, sha256_hex
from intake.cuda_sources import CudaSources
from intake.dep_patches import DependencyPatch
from intake.direct.exports import Export
from intake.direct.identity import resource_plan
from intake.direct.row import DirectRow
from intake.manifest import Op

_HUNK = re.compile(rb"@@ -([0-9]+)(?:,([0-9]+))? \+[0-9]+(?:,([0-9]+))? @@")


class Payload(NamedTuple):
    """`units` maps the path of each CUDA unit to its digest; `patches` are the digests of all changed files, sorted."""

    units: Mapping[str, str]
    patches: tuple[str, ...]

    def of(self, op: Op) -> list[str]:
        """Return the tokens of the native material behind one row; [] when there is none."""
        units = {self.units[path] for path in op.cuda_sources if path in self.units}
        return [*(f"cuda:{digest}" for digest in sorted(units)), *(f"patch:{digest}" for digest in self.patches)]


def native_payload(cuda: CudaSources, patches: Iterable[DependencyPatch], files: Mapping[str, bytes]) -> Payload:
    """Digest the checked native sources of a bundle."""
    units = {}
    for path in cuda.units.values():
        headers = sorted(cuda.digests[header] for header in cuda.closure(path))
        units[path] = sha256_hex("\x1f".join([cuda.digests[path], *headers]).encode())
    return Payload(units, tuple(sorted({digest for patch in patches for digest in _changes(patch, files[patch.path])})))


def _changes(patch: DependencyPatch, data: bytes) -> list[str]:
    """Return one digest per changed file: the removed and added lines with their places in the original."""
    changes: dict[bytes, list[bytes]] = {}
    path = b""
    position = old_left = new_left = 0
    for line in bytes(data).split(b"\n"):
        if old_left > 0 or new_left > 0:
            tag = line[:1] or b" "
            content = b"".join(line[1:].split())
            if tag == b"-" or (tag == b"+" and content):
                changes[path].append(b"%s%d:%s" % (tag, position, content))
            position += tag != b"+"
            old_left -= tag != b"+"
            new_left -= tag != b"-"
        elif line.startswith(b"+++ b/"):
            path = line[len(b"+++ b/") :].split(b"\t")[0].rstrip(b"\r")
            changes[path] = []
        elif header := _HUNK.match(line):
            old_left, new_left = (1 if text is None else int(text) for text in header.group(2, 3))
            position = int(header[1]) + (old_left == 0)
    parts = ([patch.dependency.encode(), name, *lines] for name, lines in changes.items())
    return [sha256_hex(b"\x1f".join(part)) for part in parts]


def direct_parts(row: DirectRow) -> tuple[str, list[Export]]:
    """Return the declaration of a direct row without its names, and its exports in an order apart from names."""

    def nameless(export: Export) -> str:
        document = {key: value for key, value in export.document().items() if key not in ("name", "factory")}
        return canonical_json(document).decode()

    ordered = sorted(row.exports, key=lambda export: (nameless(export), export.factory))
    resources = canonical_json(resource_plan(row)).decode()
    return "\x1f".join([resources, *map(nameless, ordered)]), ordered
