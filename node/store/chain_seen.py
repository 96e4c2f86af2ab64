"""What the running node last knew of its chain, in small files for whoever asks from outside.

Invariants
1. They are views, not records: replaced whole, and lost without harm. That of the chain is written at every head and
   whenever the chain goes away or comes back, that of the reveals whenever reading them is held up or goes on. Nothing
   that the node decides is read from them.
2. A file that is missing or cannot be read is no view.
"""

from __future__ import annotations

import os
from typing import TypeVar

import msgspec

from node.store.layout import StateLayout

View = TypeVar("View", bound=msgspec.Struct)

_CHAIN, _REVEALS = "chain.json", "reveals.json"


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


class RevealsHeld(msgspec.Struct, frozen=True):
    """Why reveals cannot be read any further ("" while they can), since when in milliseconds since 1970."""

    code: str = ""
    reason: str = ""
    since_ms: int = 0


def write_chain_seen(layout: StateLayout, view: ChainSeen) -> None:
    """Replace the view of the chain. Raises `OSError`."""
    _write(layout, _CHAIN, view)


def read_chain_seen(layout: StateLayout) -> ChainSeen | None:
    """Return the view of the chain, or None when there is none that can be read."""
    return _read(layout, _CHAIN, ChainSeen)


def write_reveals_held(layout: StateLayout, view: RevealsHeld) -> None:
    """Replace the view of the reveals. Raises `OSError`."""
    _write(layout, _REVEALS, view)


def read_reveals_held(layout: StateLayout) -> RevealsHeld | None:
    """Return the view of the reveals, or None when there is none that can be read."""
    return _read(layout, _REVEALS, RevealsHeld)


def _write(layout: StateLayout, name: str, view: msgspec.Struct) -> None:
    path = layout.root / name
    temporary = path.with_name(f".write-test-{name}-{os.getpid()}")  # swept with the folder's other leftovers
    temporary.write_bytes(msgspec.json.encode(view))
    temporary.replace(path)


def _read(layout: StateLayout, name: str, kind: type[View]) -> View | None:
    try:
        return msgspec.json.decode((layout.root / name).read_bytes(), type=kind)
    except (OSError, msgspec.MsgspecError):
        return None
