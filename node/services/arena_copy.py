"""Keeps the arena document that this node judges by, so that attempts and later readers use exactly that one.

Invariants
1. The copy is named by the arena's digest and reads back as the same arena; the file it came from may change or vanish
   while the node runs. A damaged copy is written anew.
"""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from config.arena import Arena, parse_arena
from config.errors import InternalError
from node.store.layout import write_durably


def keep_arena(arena: Arena, folder: Path) -> Path:
    """Write `arena` into `folder` and return the path. Raises `InternalError` (ARENA_COPY_DIFFERS)."""
    path = folder / f"{arena.digest}.toml"
    document = _document(arena)
    if parse_arena(document, str(path)).digest != arena.digest:
        raise InternalError("ARENA_COPY_DIFFERS", f"arena {arena.id} does not survive being written down")
    if not path.is_file() or path.read_bytes() != document:
        write_durably(path, document, mode=0o644)
    return path


def _document(arena: Arena) -> bytes:
    lines = []
    for name, value in msgspec.to_builtins(arena).items():
        if name != "workloads":
            lines.append(f"{name} = {json.dumps(value)}")  # JSON scalars are TOML scalars
    for load in arena.workloads:
        lines += ["", "[[workloads]]"]
        for name, value in msgspec.to_builtins(load).items():
            text = f"[{', '.join(map(_shape, value))}]" if name == "shapes" else json.dumps(value)
            lines.append(f"{name} = {text}")
    return ("\n".join(lines) + "\n").encode()


def _shape(shape: dict[str, int]) -> str:
    return "{ " + ", ".join(f"{json.dumps(name)} = {extent}" for name, extent in shape.items()) + " }"
