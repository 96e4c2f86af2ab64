"""Keeps the documents of the targets that this node judges, so that a verdict's target digest can be looked up later.

Invariant: a document lies under its own digest, is canonical JSON, and is kept when the catalog moves on.
"""

from __future__ import annotations

from pathlib import Path

from config.canonical import canonical_json
from config.target_catalog import TargetCatalog
from node.store.layout import write_durably


def keep_targets(catalog: TargetCatalog, folder: Path) -> None:
    """Write what is not in `folder` yet. Raises `HostError` (STATE_UNWRITABLE)."""
    for target in catalog.targets.values():
        path = folder / f"{target.digest}.json"
        document = canonical_json(target.document())
        if not path.is_file() or path.read_bytes() != document:
            write_durably(path, document, mode=0o644)
