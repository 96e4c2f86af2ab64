"""What a bundle brings besides Python, blind to how it is written down: CUDA, patches, direct declarations.

Invariants
1. CUDA: `intake.cuda_normal` says what does not count. A unit stands for itself and every header of the bundle it
   reaches; one that nothing imports does not count beside one that is imported.
2. Patches: context, blanks, headers, file names of patches and their split into files do not count; which lines of
   which file of which dependency change, and into what, does.
3. Direct declarations: names of exports, factories, plans, resources and kernels, and the order of exports, do not
   count; which of them is meant where does.
4. Time is linear in the size of the files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from config.canonical import canonical_json, sha256_hex
from intake.cuda_normal import Unit, cuda_units
from intake.cuda_sources import CudaSources
from intake.dep_patches import DependencyPatch
from intake.direct.exports import Export
from intake.direct.identity import resource_plan
from intake.direct.row import DirectRow
from intake.manifest import Op
from intake.parts import PATCH, Part

_HUNK = re.compile(rb"@@ -([0-9]{1,9})(?:,([0-9]{1,9}))? \+[0-9]{1,9}(?:,([0-9]{1,9}))? @@")
_WORD = re.compile(rb"\w+|[^\w\s]")
_RESOURCES = ("workspace.", "prepared.", "state.")
_RESOURCE_KEYS = frozenset({"name", "source", "target", "peer_resource"})
Labels = dict[tuple[str, str], str]


class Payload(NamedTuple):
    """`units` maps the path of each CUDA unit to its normal form, `stems` an import name to such a path; `patches` are
    the changed files, sorted."""

    units: Mapping[str, Unit]
    stems: Mapping[str, str]
    patches: tuple[Part, ...]

    def of(self, op: Op, imported: Iterable[str]) -> list[Unit]:
        """Return the native material behind one row whose Python imports some names; [] when there is none."""
        paths = dict.fromkeys(path for path in op.cuda_sources if path in self.units)
        used = {self.stems[name] for name in imported if name in self.stems} & paths.keys()
        units = {self.units[path].whole.digest: self.units[path] for path in paths if not used or path in used}
        return [*(units[digest] for digest in sorted(units)), *(Unit(part, (part,)) for part in self.patches)]


def native_payload(cuda: CudaSources, patches: Iterable[DependencyPatch], files: Mapping[str, bytes]) -> Payload:
    """Read the checked native sources of a bundle."""
    changed = {part.digest: part for patch in patches for part in _changes(patch, files[patch.path])}
    return Payload(cuda_units(cuda, files), cuda.units, tuple(changed[digest] for digest in sorted(changed)))


def _changes(patch: DependencyPatch, data: bytes) -> list[Part]:
    """Return one part per changed file: the removed and added lines with their places in the original."""
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
    return [_patched(patch.dependency, name, lines) for name, lines in changes.items()]


def _patched(dependency: str, path: bytes, lines: list[bytes]) -> Part:
    digest = sha256_hex(b"\x1f".join([dependency.encode(), path, *lines]))
    shape = sha256_hex(b"\x1f".join([dependency.encode(), path, *(line.partition(b":")[2] for line in lines)]))
    weight = sum(len(_WORD.findall(line)) for line in lines)
    return Part(PATCH, f"{dependency}: {path.decode('utf-8', 'replace')}", digest, shape, weight)


def direct_parts(row: DirectRow) -> tuple[str, list[Export]]:
    """Return the declaration of a direct row without its names, and its exports in an order apart from names."""
    ordered = sorted(row.exports, key=lambda export: (canonical_json(_nameless(export, None)), export.factory))
    labels: Labels = {}
    exports = [_nameless(export, labels) for export in ordered]
    resources: Any = resource_plan(row)["resources"]
    resources = sorted((_relabelled(item, labels) for item in resources), key=canonical_json)
    return canonical_json({"slot": row.slot, "exports": exports, "resources": resources}).decode(), ordered


def _nameless(export: Export, labels: Labels | None) -> Any:
    document = {key: value for key, value in export.document().items() if key not in ("name", "factory")}
    return _relabelled(document, labels)


def _relabelled(value: Any, labels: Labels | None, key: str = "") -> Any:
    """Return a document in which the names of plans, kernels and declared resources are numbered by first use, or all
    alike when there are no `labels`."""
    if isinstance(value, dict):
        # A kernel is named where it is declared, and meant by that name where it is launched.
        is_kernel = "parameter_sizes" in value
        keys = {name: "kernel" if is_kernel and name == "name" else name for name in value}
        return {name: _relabelled(value[name], labels, keys[name]) for name in sorted(value)}
    if isinstance(value, list):
        return [_relabelled(item, labels, key) for item in value]
    if not isinstance(value, str):
        return value
    kind = key if key in ("plan", "kernel") else ""
    if key in _RESOURCE_KEYS:
        kind = next((prefix for prefix in _RESOURCES if value.startswith(prefix)), "")
    if not kind:
        return value
    return kind if labels is None else labels.setdefault((kind, value), f"{kind}#{len(labels)}")
