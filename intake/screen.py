"""Hostile archive bytes in; one complete verdict of intake out. Runs inside the sandboxed child.

Order, each step on the output of the one before
1. unpack in memory, within limits (`intake.archive`); 2. content hash against the committed one; 3. names; 4. manifest;
5. file kinds and contents; 6. syntax and policy of every Python file; 7. local imports and reachability;
8. rebuild steps, dependency patches, CUDA sources; 9. target; 10. routing domains; 11. what is served; 12. fingerprint.

Invariants
1. Only `IntakeError` leaves. Everything wrong from step 3 on is found in one pass; the first finding is the refusal.
2. Nothing is imported, run or written. This module and all it imports need the standard library, msgspec, tomli and
   `config` only.
"""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from config.canonical import is_digest, sha256_hex, sorted_paths
from config.errors import IntakeError, SourceLocation
from config.limits import INTAKE, IntakeLimits
from config.slot_resources import load_slot_resources
from config.target_catalog import TargetCatalog, load_catalog
from intake.archive import unpack
from intake.content_hash import hash_files
from intake.domain import Domain, effective_domain, read_metadata, read_row_metadata
from intake.fingerprint import VERSION, fingerprint
from intake.manifest import Manifest, Op, load_manifest
from intake.manifest_fields import MANIFEST
from intake.native import load_native
from intake.payload import native_payload
from intake.python_files import PythonFiles
from intake.refusal import Findings, HashMismatch, clip
from intake.registry import VariantRegistry
from intake.report import FileEntry, IntakeReport, ResolvedVariant
from intake.resolve import resolve_target
from intake.served import SERVED, check_served
from intake.tree import check_names, check_reachable, check_tree


class Screened(NamedTuple):
    """An accepted bundle: its report and its file table in path order."""

    report: IntakeReport
    files: dict[str, bytes]


def screen_archive(
    archive: bytes | memoryview,
    expected_hash: str,
    *,
    limits: IntakeLimits = INTAKE,
    catalog: TargetCatalog | None = None,
    allow_legacy_abi: bool = False,
) -> Screened:
    """Screen an archive that was committed under `expected_hash` (64 lower-case hex characters).

    Raises `IntakeError`; `HashMismatch` when the archive holds other bytes, `BundleRefused` with all findings when the
    bundle breaks rules. `allow_legacy_abi`: the submission was finalized before the ABI cut-over.
    """
    if not is_digest(expected_hash):
        raise IntakeError("BUNDLE_HASH_INVALID", f"{clip(expected_hash)} is not a content hash.")
    files = unpack(archive, limits=limits)
    seen = hash_files(files)
    if seen != expected_hash:
        raise HashMismatch(expected_hash, seen)
    return screen_files(files, content_hash=seen, limits=limits, catalog=catalog, allow_legacy_abi=allow_legacy_abi)


def screen_files(
    files: Mapping[str, bytes],
    *,
    content_hash: str = "",
    limits: IntakeLimits = INTAKE,
    catalog: TargetCatalog | None = None,
    allow_legacy_abi: bool = False,
    served: Collection[str] | None = SERVED,
    may_fork: bool = False,
) -> Screened:
    """Screen an unpacked file table (path -> content). Raises `BundleRefused` with all findings.

    `served` are the features that can be executed; None says all. `may_fork`: much Python may be scanned by several
    processes, where this one has no other thread and may use other processors.
    """
    # A broken table of ours is no miner's fault, so the tables are read before any bundle.
    known = load_catalog() if catalog is None else catalog
    load_slot_resources()
    with _collector_paused():
        return _screen(files, content_hash, limits, known, served, allow_legacy_abi=allow_legacy_abi, may_fork=may_fork)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Pause cycle collection: syntax trees hold no cycles, and walking millions of nodes twice costs half the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _screen(
    files: Mapping[str, bytes],
    content_hash: str,
    limits: IntakeLimits,
    catalog: TargetCatalog,
    served: Collection[str] | None,
    *,
    allow_legacy_abi: bool,
    may_fork: bool,
) -> Screened:
    findings = Findings(limits.findings)
    ordered = {path: files[path] for path in sorted_paths(files)}
    check_names(ordered, findings, limits)
    manifest = load_manifest(ordered, findings, allow_legacy_abi=allow_legacy_abi, limits=limits)
    check_tree(ordered, manifest, findings, limits)
    python = PythonFiles(ordered, manifest, findings, limits, may_fork=may_fork)
    native = load_native(manifest, ordered, findings, catalog, python.modules.roots, limits)
    if manifest is None or native is None:
        findings.raise_if_any()
        raise IntakeError("MANIFEST_SYNTAX", "the manifest cannot be read.")
    closure = python.closure(manifest.ops)
    check_reachable(ordered, closure, findings)
    resolution = resolve_target(manifest, catalog, findings, native.rebuild)
    domains = _domains(manifest, ordered, findings)
    if resolution is not None:
        findings.attempt(lambda: check_served(resolution.allowed_features, served))
    findings.raise_if_any()
    if resolution is None or len(domains) != len(manifest.ops):
        raise IntakeError("MANIFEST_SYNTAX", "the manifest cannot be resolved.")
    payload = native_payload(native.cuda, native.patches, ordered)
    print_of = fingerprint(manifest.ops, python.tree, python.modules, payload, python.outlines)
    report = IntakeReport(
        content_hash=content_hash or hash_files(ordered),
        bundle_id=manifest.bundle_id,
        abi_version=manifest.abi_version,
        target_id=resolution.target.id,
        target_kind=resolution.target.kind,
        features=resolution.features,
        variants=tuple(map(_variant, manifest.ops, domains)),
        fingerprint=print_of.digest,
        fingerprint_version=VERSION,
        pieces=print_of.pieces,
        parts=print_of.parts,
        files=tuple(FileEntry(path, len(data), sha256_hex(data)) for path, data in ordered.items()),
        closure=tuple(closure),
    )
    return Screened(report, ordered)


def _domains(manifest: Manifest, files: Mapping[str, bytes], findings: Findings) -> list[Domain]:
    registry = VariantRegistry()
    domains: list[Domain] = []
    for op in manifest.ops:
        try:
            metadata = _metadata(op, files)
            domain = effective_domain(metadata, op.dtypes, op.architectures)
            registry.register(op.slot, op.variant, domain)
            domains.append(domain)
        except IntakeError as error:
            place = error.location or SourceLocation("", 0 if op.metadata else op.line)
            place = SourceLocation(place.path or op.metadata or MANIFEST, place.line)
            findings.take(IntakeError(error.code, error.message, hint=error.hint, location=place))
    return domains


def _metadata(op: Op, files: Mapping[str, bytes]) -> dict[str, Any]:
    if op.metadata is None:
        return {}
    data = files[op.metadata]
    return read_metadata(data) if op.direct is None else read_row_metadata(data, op.slot)


def _variant(op: Op, domain: Domain) -> ResolvedVariant:
    return ResolvedVariant(
        slot=op.slot,
        variant=op.variant,
        source=op.source,
        entry=op.entry,
        prepare=op.prepare,
        dtypes=domain.dtypes,
        architectures=domain.architectures,
        metadata=domain.render(),
        override_point=op.override_point,
    )
