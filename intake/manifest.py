"""`manifest.toml` -> a typed manifest. Data only: nothing of the bundle is imported or run.

Invariants
1. The file is UTF-8 TOML 1.0 without a byte-order mark; its top-level keys are exactly those listed here.
2. Values follow `intake.manifest_fields`: strict types, one alphabet, existing files in normal form.
3. Unknown keys of an `[[ops]]` row are kept (`Op.extra`) and observed later; no target allows them.
4. The whole grammar is read, whatever of it this validator can execute: that is decided last (`intake.served`).
5. Every finding carries `manifest.toml:line`. Whether a target exists is not asked here (`intake.resolve`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import tomli

from config.errors import IntakeError, SourceLocation
from config.limits import INTAKE, IntakeLimits
from intake.dep_patches import PatchRow, patch_rows
from intake.direct.metadata import capabilities_of, read_direct_metadata
from intake.direct.row import EXPORTS, RESOURCES, DirectRow, is_direct, read_direct_row
from intake.direct.where import LineFinder, line_finder, row_place
from intake.manifest_fields import MANIFEST, Context, Table
from intake.names import suffix_of
from intake.refusal import Findings, clip
from intake.suggest import nearest
from intake.toml_lines import TomlLines

ABI = "cacheon-op-abi-v0"
LEGACY_ABI = "optima-op-abi-v0"
DEFAULT_VARIANT = "default"
MODES = ("slot", "atomic", "system")

_TOP_KEYS = ("bundle_id", "abi_version", "ops", "competition", "dep_patches")
_COMPETITION_KEYS = ("target", "mode")
_DERIVED = frozenset({"extra", "line", "direct"})
_CUDA_SUFFIXES = frozenset({".cu", ".cuh"})


class Competition(msgspec.Struct, frozen=True):
    """The reward unit the bundle asks for."""

    target: str
    mode: str


class Op(msgspec.Struct, frozen=True):
    """One `[[ops]]` row. Paths are bundle-relative; `line` is where the row begins.

    A row with `direct` declares compiled artifacts: nothing calls its `entry`.
    """

    slot: str
    source: str
    entry: str
    variant: str = DEFAULT_VARIANT
    prepare: str | None = None
    setup: str | None = None
    dtypes: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()
    metadata: str | None = None
    base_kernel: str | None = None
    override_point: str | None = None
    cuda_sources: tuple[str, ...] = ()
    direct: DirectRow | None = None
    extra: dict[str, Any] = {}
    line: int = 0


class Manifest(msgspec.Struct, frozen=True):
    """A structurally valid manifest; `abi_version` is the submitted spelling."""

    bundle_id: str
    abi_version: str
    ops: tuple[Op, ...]
    competition: Competition | None = None
    dep_patches: tuple[PatchRow, ...] = ()


_OP_KEYS = (frozenset(Op.__struct_fields__) - _DERIVED) | {EXPORTS, RESOURCES}


def called_names(op: Op) -> tuple[str, ...]:
    """Return the functions of `op.source` that something calls: at run time, or when a direct artifact is built."""
    if op.direct is not None:
        return tuple(dict.fromkeys(export.factory for export in op.direct.exports))
    if op.override_point is not None:  # the device function may be absent where its compiler is
        return (f"{op.entry}_ref",)
    return tuple(name for name in (op.entry, op.prepare, op.setup) if name is not None)


def load_manifest(
    files: Mapping[str, bytes], findings: Findings, *, allow_legacy_abi: bool = False, limits: IntakeLimits = INTAKE
) -> Manifest | None:
    """Parse the manifest of a file table, or add what is wrong to `findings` and return None.

    `allow_legacy_abi` admits the one legacy ABI spelling, for bundles that were finalized before the cut-over.
    """
    try:
        text = _text(files, limits)
        document = tomli.loads(text)
    except IntakeError as error:
        findings.take(error)
        return None
    except tomli.TOMLDecodeError as error:
        findings.add("MANIFEST_SYNTAX", f"not valid TOML: {clip(error.msg)}.", path=MANIFEST, line=error.lineno)
        return None
    except (ValueError, RecursionError) as error:
        findings.add("MANIFEST_SYNTAX", f"not valid TOML: {clip(str(error))}.", path=MANIFEST)
        return None
    context = Context(files, TomlLines(text), findings, limits)
    manifest = _manifest(context, Table(context, document), allow_legacy_abi=allow_legacy_abi)
    return manifest if context.clean else None


def _text(files: Mapping[str, bytes], limits: IntakeLimits) -> str:
    data = files.get(MANIFEST)
    if data is None:
        raise IntakeError(
            "MANIFEST_MISSING", "the bundle has no manifest.toml at its root.", hint="Run `cacheon init` for a model."
        )
    raw = bytes(data)
    if len(raw) > limits.manifest_bytes:
        raise _syntax(f"the manifest is larger than {limits.manifest_bytes} bytes.")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _syntax("the manifest is not UTF-8.", raw.count(b"\n", 0, error.start) + 1) from None
    if text.startswith("\ufeff"):
        raise _syntax("the manifest starts with a byte-order mark.", 1)
    return text


def _syntax(message: str, line: int = 0) -> IntakeError:
    return IntakeError("MANIFEST_SYNTAX", message, location=SourceLocation(MANIFEST, line))


def _manifest(context: Context, top: Table, *, allow_legacy_abi: bool) -> Manifest | None:
    _closed(top, _TOP_KEYS)
    bundle_id = top.identifier("bundle_id", required=True)
    abi_version = _abi(top, allow_legacy_abi=allow_legacy_abi)
    competition = _competition(context, top)
    patches = patch_rows(context, top)
    ops = _ops(context, top)
    if bundle_id is None or abi_version is None:
        return None
    return Manifest(bundle_id, abi_version, ops, competition, patches)


def _closed(table: Table, known: tuple[str, ...]) -> None:
    for key in table.value:
        if key not in known:
            table.refuse("MANIFEST_UNKNOWN_KEY", f"unknown key {clip(key)}.", nearest(key, known), key=key)


def _abi(top: Table, *, allow_legacy_abi: bool) -> str | None:
    value = top.text("abi_version", required=True)
    if value is None or value == ABI or (value == LEGACY_ABI and allow_legacy_abi):
        return value
    message = f"abi_version {clip(value)} is unknown."
    if value == LEGACY_ABI:
        message = f"the spelling {LEGACY_ABI!r} is read only in bundles finalized before the cut-over."
    top.refuse("MANIFEST_ABI", message, f'Write abi_version = "{ABI}".', key="abi_version")
    return None


def _competition(context: Context, top: Table) -> Competition | None:
    value = top.value.get("competition")
    if value is None:
        return None
    if not isinstance(value, dict):
        top.refuse("MANIFEST_TYPE", "competition is not a table.", "Write [competition].", key="competition")
        return None
    table = Table(context, value, "competition")
    _closed(table, _COMPETITION_KEYS)
    target = table.identifier("target", required=True)
    mode = table.text("mode", required=True)
    if mode is not None and mode not in MODES:
        table.refuse("MANIFEST_VALUE", f"mode {clip(mode)} is unknown.", f"Use one of: {', '.join(MODES)}.", key="mode")
    return Competition(target, mode) if target is not None and mode is not None else None


def _ops(context: Context, top: Table) -> tuple[Op, ...]:
    value = top.value.get("ops")
    if value is None:
        top.refuse("MANIFEST_MISSING_KEY", "the manifest has no [[ops]] row.", "Add one [[ops]] table per slot.")
        return ()
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        top.refuse("MANIFEST_TYPE", "ops is not an array of tables.", "Write [[ops]], not [ops].", key="ops")
        return ()
    if not 1 <= len(value) <= context.limits.op_rows:
        top.refuse("MANIFEST_VALUE", f"ops has {len(value)} rows, not 1..{context.limits.op_rows}.", key="ops")
        return ()
    rows = [Table(context, row, "ops", index) for index, row in enumerate(value)]
    finder = line_finder(context.lines, top.value)
    ops = tuple(op for row in rows if (op := _op(context, row, finder)) is not None)
    _check_variants(rows)
    return ops


def _op(context: Context, row: Table, finder: LineFinder) -> Op | None:
    slot = row.identifier("slot", required=True)
    source = row.path("source", required=True)
    entry = row.callable("entry", required=True)
    base_kernel = row.identifier("base_kernel")
    override_point = row.identifier("override_point")
    if override_point is not None and base_kernel is None:
        hint = "Name the base kernel whose hole this row fills."
        row.refuse("MANIFEST_MISSING_KEY", "override_point needs base_kernel.", hint, key="override_point")
    variant = row.identifier("variant")
    prepare, setup = row.callable("prepare"), row.callable("setup")
    dtypes, architectures = row.texts("dtypes"), row.texts("architectures")
    metadata = row.path("metadata")
    cuda_sources = _cuda_sources(row)
    if slot is None or source is None or entry is None:
        return None
    variant = variant or DEFAULT_VARIANT
    return Op(
        slot=slot,
        source=source,
        entry=entry,
        variant=variant,
        prepare=prepare,
        setup=setup,
        dtypes=dtypes,
        architectures=architectures,
        metadata=metadata,
        base_kernel=base_kernel,
        override_point=override_point,
        cuda_sources=cuda_sources,
        direct=_direct(context, row, finder, slot, variant, metadata) if is_direct(row.value) else None,
        extra={key: item for key, item in row.value.items() if key not in _OP_KEYS},
        line=row.line,
    )


def _direct(
    context: Context, row: Table, finder: LineFinder, slot: str, variant: str, metadata: str | None
) -> DirectRow | None:
    """Parse the direct-artifact declarations of a row; its metadata proves what they specialize on."""

    def take(error: IntakeError) -> None:
        context.clean = False
        context.findings.take(error)

    try:
        raw = {} if metadata is None else capabilities_of(read_direct_metadata(bytes(context.files[metadata])))
    except IntakeError as error:
        # The metadata's fault, not the manifest's: whoever reads the routing domain finds it again.
        place = SourceLocation(metadata or MANIFEST)
        context.findings.take(IntakeError(error.code, error.message, hint=error.hint, location=place))
        raw = {}
    where = row_place(row.index, finder)
    return read_direct_row(row.value, take, slot=slot, variant=variant, metadata_capabilities=raw, where=where)


def _cuda_sources(row: Table) -> tuple[str, ...]:
    paths = row.texts("cuda_sources")
    for path in paths:
        if suffix_of(path) not in _CUDA_SUFFIXES:
            message = f"cuda_sources names {clip(path)}, which is not a .cu or .cuh file."
            row.refuse("MANIFEST_PATH", message, key="cuda_sources")
        else:
            row.is_file(path, "cuda_sources")
    return paths


def _check_variants(rows: list[Table]) -> None:
    slots = [row.value.get("slot") for row in rows]
    named: set[tuple[str, str]] = set()
    hint = "Give every row of one slot its own variant name."
    for row in rows:
        slot, variant = row.value.get("slot"), row.value.get("variant")
        if not isinstance(slot, str) or slots.count(slot) < 2:
            continue
        if not isinstance(variant, str):
            row.refuse("MANIFEST_VARIANTS", f"slot {clip(slot)} has several rows; this one has no variant.", hint)
        elif (slot, variant) in named:
            message = f"variant {clip(variant)} of {clip(slot)} stands twice."
            row.refuse("MANIFEST_VARIANTS", message, hint, key="variant")
        else:
            named.add((slot, variant))
