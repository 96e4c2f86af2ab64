"""`cacheon receipt export`: a node's published documents, copied into one folder.

Invariants
1. Only what is public anyway is copied: receipts, ledgers, arena and target documents, and the attempt files that a
   verdict's receipt names. No key, no database, no bundle.
2. A file is complete under its name or not there; what is there already is kept, and nothing is ever removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from config.errors import HostError
from node.cli.output import Output, facts
from node.cli.resolve import resolve_state
from node.receipt_folder import Anchor, ReceiptFolder, open_folder
from node.store.layout import StateLayout, write_durably
from scoring.receipts import VerdictPredicate

if TYPE_CHECKING:
    from rich.console import Console


class Exported(msgspec.Struct, frozen=True):
    """The result as `--json` shows it; files by kind, and how many of all were new."""

    folder: str
    receipts: int
    ledgers: int
    attempts: int
    arenas: int
    targets: int
    new: int
    hotkey: str


def run(folder: str, config: str | None, state: str | None, *, with_attempts: bool, as_json: bool) -> None:
    """Export.

    Raises `HostError` (EXPORT_UNWRITABLE), and those of reading and verifying the node's own folder.
    """
    layout = StateLayout.at(resolve_state(config, state).state_dir)
    to = Path(folder).absolute()
    if to == layout.root or layout.root in to.parents:
        raise HostError("EXPORT_UNWRITABLE", f"{to} lies in the node's own state folder", hint="name another folder")
    source = open_folder(layout.root)
    anchor = source.anchor()
    counts = {
        "receipts": [path for path in source.paths.values() if path.parent == layout.receipts],
        "ledger": [path for path in source.paths.values() if path.parent == layout.ledger],
        "attempts": _attempts(source, anchor, layout) if with_attempts else [],
        "arenas": sorted(layout.arenas.glob("*.toml")),
        "targets": sorted(layout.targets.glob("*.json")),
    }
    try:
        read = {path: source.envelopes[digest] for digest, path in source.paths.items()}
        new = sum(_copy(paths, to / name, read) for name, paths in counts.items())
    except OSError as error:
        raise HostError("EXPORT_UNWRITABLE", f"{to} cannot be written: {error.strerror or error}") from error
    result = Exported(
        str(to), len(counts["receipts"]), len(counts["ledger"]), len(counts["attempts"]), len(counts["arenas"]),
        len(counts["targets"]), new, anchor.hotkey,
    )
    Output("receipt export", as_json=as_json).result(result, lambda console: _show(console, result))


def _attempts(source: ReceiptFolder, anchor: Anchor, layout: StateLayout) -> list[Path]:
    """Return the attempt files that verdicts name and that are still here."""
    named = {
        receipt.predicate.attempt_digest
        for receipt in source.receipts(anchor) if isinstance(receipt.predicate, VerdictPredicate)
    }
    return [path for path in sorted(layout.attempts.glob("*/*.json.gz")) if path.name.removesuffix(".json.gz") in named]


def _copy(paths: list[Path], folder: Path, read: Mapping[Path, bytes]) -> int:
    """Write copies of those that are not in `folder`; what was `read` may have been removed by the node since."""
    folder.mkdir(parents=True, exist_ok=True)
    new = 0
    for path in paths:
        target = folder / path.name
        if not target.exists():
            write_durably(target, read[path] if path in read else path.read_bytes(), mode=0o644)
            new += 1
    return new


def _show(console: Console, result: Exported) -> None:
    facts(console, [
        ("folder", result.folder),
        ("receipts", f"{result.receipts}, and {result.ledgers} ledgers"),
        ("behind them", f"{result.attempts} attempt files, {result.arenas} arenas, {result.targets} targets"),
        ("new", str(result.new)),
        ("validator", result.hotkey or "no hotkey vouches for the receipt key yet; give observers the key as well"),
        ("check", f"cacheon weights recompute {result.folder}" + (f" --hotkey {result.hotkey}" * bool(result.hotkey))),
    ])
