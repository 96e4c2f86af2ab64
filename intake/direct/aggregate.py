"""Aggregate bindings: nested tuples of integers, as CuTe host signatures take them.

Invariants
1. Depth, children, leaves and dynamic leaves are bounded; a list is never empty.
2. A dynamic leaf is an integer of a live call, in the aggregate's one component type.
3. A device plan cannot read an aggregate; it only shapes the compile-time signature.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from config.limits import DIRECT
from config.slot_resources import SlotResource
from intake.direct.reading import Table, as_items
from intake.direct.scalars import INT64_HIGH, INT64_LOW, family_of
from intake.direct.scope import Scope
from intake.direct.where import Where

CASTS = frozenset(("Shape", "Coord", "Tile", "IntTuple", "Stride"))
COMPONENT_CASTS = frozenset(("i32", "i64"))
_KEYS = "kind cast component_cast components"
_PROJECTIONS = {"scalar": ("value",), "tensor": ("shape", "stride")}


class Leaf(msgspec.Struct, frozen=True):
    """One component: `static`, or a projection of a resource in the aggregate's component type."""

    static: int | None = None
    source: str = ""
    projection: str = ""
    cast: str = ""
    axis: int | None = None

    def document(self) -> dict[str, object]:
        """Return the identity form."""
        if self.static is not None:
            return {"static": self.static}
        row: dict[str, object] = {"source": self.source, "projection": self.projection, "cast": self.cast}
        return row if self.axis is None else {**row, "axis": self.axis}


Component = Leaf | tuple["Component", ...]


class AggregateBinding(msgspec.Struct, frozen=True):
    """One nested tuple."""

    cast: str
    component_cast: str
    components: tuple[Any, ...]  # of Component, which is recursive

    kind = "aggregate"
    projection = "tuple"

    @property
    def sources(self) -> tuple[str, ...]:
        """Every resource a leaf reads, in order."""
        return tuple(leaf.source for leaf in _leaves(self.components) if leaf.static is None)

    def writes(self, resource: SlotResource) -> bool:  # noqa: ARG002 - one signature for all bindings
        """A tuple of integers writes nothing."""
        return False

    def document(self) -> dict[str, object]:
        """Return the identity form."""
        return {
            "kind": self.kind,
            "projection": self.projection,
            "cast": self.cast,
            "component_cast": self.component_cast,
            "components": _documents(self.components),
        }


def parse_aggregate(value: object, where: Where, role: str, scope: Scope) -> AggregateBinding:
    """Parse one aggregate row. Raises as `parse_binding`."""
    table = Table(value, where, _KEYS, "projection")
    table.choice("projection", ("tuple",), "tuple")
    cast, component_cast = table.choice("cast", CASTS), table.choice("component_cast", COMPONENT_CASTS)
    components = _tuple(table.get("components"), table.at("components"), _Reader(role, scope, component_cast), 1)
    leaves = list(_leaves(components))
    if len(leaves) > DIRECT.aggregate_leaves:
        raise table.at("components").refusal("DIRECT_LIMIT", f"more than {DIRECT.aggregate_leaves} leaves.")
    if sum(leaf.static is None for leaf in leaves) > DIRECT.aggregate_dynamic:
        raise table.at("components").refusal("DIRECT_LIMIT", f"more than {DIRECT.aggregate_dynamic} dynamic leaves.")
    return AggregateBinding(cast, component_cast, components)


class _Reader(msgspec.Struct, frozen=True):
    role: str
    scope: Scope
    component_cast: str


def _tuple(value: object, where: Where, reader: _Reader, depth: int) -> tuple[Component, ...]:
    if depth > DIRECT.aggregate_depth:
        raise where.refusal("DIRECT_LIMIT", f"nested deeper than {DIRECT.aggregate_depth} lists.")
    items = as_items(value, where, 1, DIRECT.aggregate_children)
    return tuple(
        _tuple(item, at, reader, depth + 1) if isinstance(item, list) else _leaf(item, at, reader) for item, at in items
    )


def _leaf(value: object, where: Where, reader: _Reader) -> Leaf:
    if isinstance(value, Mapping) and value.get("static") is not None:
        return Leaf(static=Table(value, where, "static").integer("static", INT64_LOW, INT64_HIGH))
    table = Table(value, where, "source projection cast", "axis")
    resource = reader.scope.reach(table.text("source"), reader.role, table.at("source"))
    projection = table.text("projection")
    integral = resource.scalar_type is None or (resource.readable and family_of(resource.scalar_type) == "int")
    if projection not in _PROJECTIONS.get(resource.kind, ()) or not integral:
        raise table.at("projection").refusal("DIRECT_BINDING", f"{resource.name} has no such integer.")
    if table.text("cast") != reader.component_cast:
        raise table.at("cast").refusal("DIRECT_BINDING", "a leaf has the component_cast of its aggregate.")
    if (projection != "value") != table.has("axis"):
        raise where.refusal("DIRECT_BINDING", "axis is given exactly for the projections shape and stride.")
    axis = table.optional_integer("axis", 0, DIRECT.axis)
    return Leaf(source=resource.name, projection=projection, cast=reader.component_cast, axis=axis)


def _leaves(components: tuple[Component, ...]) -> list[Leaf]:
    found: list[Leaf] = []
    for item in components:
        found += [item] if isinstance(item, Leaf) else _leaves(item)
    return found


def _documents(components: tuple[Component, ...]) -> list[object]:
    return [item.document() if isinstance(item, Leaf) else _documents(item) for item in components]
