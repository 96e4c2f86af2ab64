"""`cacheon targets`: the reward units, and which arenas judge them on what."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from config.arena import known_arenas, load_arena
from config.target_catalog import load_catalog
from node.cli.output import Output, table

if TYPE_CHECKING:
    from rich.console import Console


class ArenaRow(msgspec.Struct, frozen=True):
    """One arena's view of a target. `margin_ppm` is the gain that must be exceeded, in ppm."""

    arena: str
    dtype: str
    shapes: tuple[dict[str, int], ...]
    margin_ppm: int


class TargetRow(msgspec.Struct, frozen=True):
    """One target as `--json` shows it."""

    id: str
    kind: str
    members: tuple[str, ...]
    allowed_features: tuple[str, ...]
    digest: str
    arenas: tuple[ArenaRow, ...]


class Listing(msgspec.Struct, frozen=True):
    """The whole catalog with its digest."""

    catalog_digest: str
    targets: tuple[TargetRow, ...]


def run(*, as_json: bool) -> None:
    """List all targets."""
    catalog = load_catalog()
    arenas = [load_arena(name) for name in known_arenas()]
    rows = []
    for name in sorted(catalog.targets):
        target = catalog.targets[name]
        judged = [(arena, load) for arena in arenas if (load := arena.workload(name)) is not None]
        views = tuple(ArenaRow(arena.id, load.dtype, load.shapes, arena.margin_ppm) for arena, load in judged)
        rows.append(TargetRow(target.id, target.kind, target.members, target.allowed_features, target.digest, views))
    listing = Listing(catalog.digest, tuple(rows))
    Output("targets", as_json=as_json).result(listing, lambda console: _show(console, listing))


def _show(console: Console, listing: Listing) -> None:
    rows = [(row.id, row.kind, _arena_text(view)) for row in listing.targets for view in row.arenas] + [
        (row.id, row.kind, "no arena yet") for row in listing.targets if not row.arenas
    ]
    console.print(table(("target", "kind", "judged by"), rows, whole=("target",)))


def _arena_text(view: ArenaRow) -> str:
    shapes = "; ".join(" ".join(f"{name}={size}" for name, size in shape.items()) for shape in view.shapes)
    margin = f"{view.margin_ppm / 10_000:g}\N{NO-BREAK SPACE}%"
    calls = f"{view.dtype} {shapes}" if view.shapes else "what its members are measured on"
    return f"{view.arena}: {calls}, must gain more than {margin}"
