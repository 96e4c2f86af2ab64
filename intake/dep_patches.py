"""`[[dep_patches]]`: source changes to a dependency that the validator rebuilds.

Invariants
1. A row is exactly `target` (a dependency of the catalog) and `path` (a declared .patch or .diff file of the bundle).
   A pair stands once.
2. Every patch is a strict diff (`intake.unified_diff`) whose files lie where the dependency's policy allows. This is
   decided at intake, from the bundle alone, not when somebody builds it.
3. Across all patches one file of a dependency is changed by one patch only, so their order means nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from config.errors import IntakeError, SourceLocation
from config.globs import matches
from config.limits import INTAKE, IntakeLimits
from config.target_catalog import Dependency, TargetCatalog
from intake.manifest_fields import MANIFEST, Context, Table
from intake.names import fold, suffix_of
from intake.refusal import Findings, clip
from intake.suggest import nearest
from intake.unified_diff import FilePatch, parse_diff

_KEYS = ("target", "path")
_SUFFIXES = frozenset({".patch", ".diff"})


class PatchRow(msgspec.Struct, frozen=True):
    """One `[[dep_patches]]` row; `line` is where it begins in the manifest."""

    target: str
    path: str
    line: int = 0


class DependencyPatch(msgspec.Struct, frozen=True):
    """One admitted patch of a dependency."""

    dependency: str
    path: str
    files: tuple[FilePatch, ...]

    @property
    def feature(self) -> str:
        """The observed feature."""
        return f"dep_patch:{self.dependency}"


def patch_rows(context: Context, top: Table) -> tuple[PatchRow, ...]:
    """Read the rows of a manifest's top-level table; what is wrong becomes a finding at its line (MANIFEST_*)."""
    value = top.value.get("dep_patches", [])
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        hint = "Write [[dep_patches]]."
        top.refuse("MANIFEST_TYPE", "dep_patches is not an array of tables.", hint, key="dep_patches")
        return ()
    if len(value) > context.limits.op_rows:
        top.refuse("MANIFEST_VALUE", f"dep_patches has more than {context.limits.op_rows} rows.", key="dep_patches")
        return ()
    rows: list[PatchRow] = []
    for index, item in enumerate(value):
        table = Table(context, item, "dep_patches", index)
        row = _row(table)
        if row is None:
            continue
        if any((row.target, row.path) == (other.target, other.path) for other in rows):
            table.refuse("MANIFEST_VALUE", f"the patch {clip(row.path)} of {clip(row.target)} stands twice.")
        rows.append(row)
    return tuple(rows)


def _row(table: Table) -> PatchRow | None:
    for key in table.value:
        if key not in _KEYS:
            table.refuse("MANIFEST_UNKNOWN_KEY", f"unknown key {clip(key)}.", nearest(key, _KEYS), key=key)
    target = table.identifier("target", required=True)
    path = table.path("path", required=True)
    if path is not None and suffix_of(path) not in _SUFFIXES:
        table.refuse("MANIFEST_PATH", f"path names {clip(path)}, which is not a .patch or .diff file.", key="path")
        return None
    return PatchRow(target, path, table.line) if target is not None and path is not None else None


def load_patches(
    rows: Sequence[PatchRow],
    files: Mapping[str, bytes],
    findings: Findings,
    catalog: TargetCatalog,
    limits: IntakeLimits = INTAKE,
) -> tuple[DependencyPatch, ...]:
    """Return the admitted patches of a bundle, in row order; what is wrong becomes findings.

    Codes: PATCH_DEPENDENCY, PATCH_DESTINATION, PATCH_CONFLICT, BUNDLE_TOO_LARGE and those of `parse_diff`.
    """
    admitted: list[DependencyPatch] = []
    owners: dict[tuple[str, str], str] = {}
    for row in rows:
        dependency = catalog.dependency(row.target)
        if dependency is None:
            known = [item.id for item in catalog.dependencies]
            hint = nearest(row.target, known) or f"Known dependencies: {', '.join(known) or 'none'}."
            message = f"{clip(row.target)} is no dependency that a bundle may patch."
            findings.add("PATCH_DEPENDENCY", message, hint=hint, path=MANIFEST, line=row.line)
        sections = findings.attempt(lambda row=row: _sections(row, files, limits))  # type: ignore[misc]
        if dependency is None or sections is None:
            continue
        if _check_sections(row, dependency, sections, owners, findings):
            admitted.append(DependencyPatch(dependency.id, row.path, sections))
    return tuple(admitted)


def _sections(row: PatchRow, files: Mapping[str, bytes], limits: IntakeLimits) -> tuple[FilePatch, ...]:
    data = bytes(files[row.path])
    if len(data) > limits.text_file_bytes:
        message = f"a patch is limited to {limits.text_file_bytes} bytes."
        raise IntakeError("BUNDLE_TOO_LARGE", message, location=SourceLocation(row.path))
    return parse_diff(row.path, data)


def _check_sections(
    row: PatchRow,
    dependency: Dependency,
    sections: tuple[FilePatch, ...],
    owners: dict[tuple[str, str], str],
    findings: Findings,
) -> bool:
    clean = True
    for section in sections:
        if not allows(dependency, section.path):
            message = f"{clip(section.path)} is outside what a bundle may change in {dependency.id}."
            hint = f"Allowed: {', '.join(dependency.destinations)}."
            findings.add("PATCH_DESTINATION", message, hint=hint, path=row.path, line=section.line)
            clean = False
        # Folded: two spellings of one name are one file on some file systems.
        owner = owners.setdefault((dependency.id, fold(section.path)), f"{row.path}:{section.line}")
        if owner != f"{row.path}:{section.line}":
            message = f"{clip(section.path)} is already changed at {clip(owner)}."
            hint = "Merge the two patches: order would decide otherwise."
            findings.add("PATCH_CONFLICT", message, hint=hint, path=row.path, line=section.line)
            clean = False
    return clean


def allows(dependency: Dependency, path: str) -> bool:
    """Say whether a dependency's policy lets a patch change the file at `path` (a path from the package's parent)."""
    inside = path.startswith(f"{dependency.subtree}/")
    return inside and any(matches(pattern, path) for pattern in dependency.destinations)
