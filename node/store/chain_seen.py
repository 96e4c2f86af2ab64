"""What the running node last knew of its chain, in one small file for whoever asks from outside.

Invariants
1. It is a view, not a record: written at every head and whenever the chain goes away or comes back, replaced whole, and
   lost without harm. Nothing that the node decides is read from it.
2. A file that is missing or cannot be read is no view.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from node.store.layout import StateLayout

_FILE = "chain.json"


class ChainSeen(msgspec.Struct, frozen=True):
    """The newest finalized block (0 and "" before the first) and why the chain is away ("" while it is not).

    Times are milliseconds since 1970: `block_ms` by the block's own clock, `away_ms` when it went away by ours.
    """

    block: int = 0
    block_hash: str = ""
    block_ms: int = 0
    spec_version: int = 0
    away_code: str = ""
    away_reason: str = ""
    away_ms: int = 0


def write_chain_seen(layout: StateLayout, view: ChainSeen) -> None:
    """Replace the file. Raises `OSError`."""
    path = _path(layout)
    temporary = path.with_name(f".write-test-{path.name}-{os.getpid()}")  # swept with the folder's other leftovers
    temporary.write_bytes(msgspec.json.encode(view))
    temporary.replace(path)


def read_chain_seen(layout: StateLayout) -> ChainSeen | None:
    """Return the view, or None when there is none that can be read."""
    try:
        return msgspec.json.decode(_path(layout).read_bytes(), type=ChainSeen)
    except (OSError, msgspec.MsgspecError):
        return None


def _path(layout: StateLayout) -> Path:
    return layout.root / _FILE
