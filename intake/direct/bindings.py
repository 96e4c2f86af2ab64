"""Binding rows: the ordered arguments of one export, each a projection of a named resource.

Invariants
1. Which kinds and projections a resource has is a closed table; a projection needs exactly its own options.
2. A scalar's cast stays in the family of its source; what is derived from a tensor or group is an integer.
3. A binding writes storage only as a tensor or as an address, and only where the resource may be written.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from config.limits import DIRECT
from config.slot_resources import SlotResource
from intake.direct.aggregate import AggregateBinding, parse_aggregate
from intake.direct.provider import GROUP_PROJECTIONS
from intake.direct.reading import Table, as_integer, kind_of, one_of
from intake.direct.scalars import SCALAR_TYPES, family_of
from intake.direct.scope import Scope
from intake.direct.where import Where

_DERIVED = frozenset(("shape", "stride", "numel", "rank", "storage_offset", "size"))
_WITH_AXIS = frozenset(("shape", "stride"))
# Kind of the source -> (kind of the binding, projections).
_PERMITTED: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "tensor": {
        "tensor": ("descriptor",),
        "pointer": ("device_ptr",),
        "scalar": ("shape", "stride", "numel", "rank", "storage_offset"),
    },
    "scalar": {"scalar": ("value",)},
    "pointer": {"pointer": ("identity",)},
    "stream": {"stream": ("identity",)},
    "group": {"group": ("identity",), "scalar": ("rank", "size"), "pointer": tuple(GROUP_PROJECTIONS)},
    "opaque": {"opaque": ("identity",)},
}
_DEFAULTS = {
    "tensor": "descriptor",
    "scalar": "value",
    "pointer": "identity",
    "stream": "identity",
    "group": "identity",
    "opaque": "identity",
}
_OPTIONS = {
    "tensor": "unsqueeze assumed_align leading_dim",
    "scalar": "axis cast",
    "pointer": "assumed_align peer_resource",
    "stream": "",
    "group": "",
    "opaque": "",
}
KINDS = frozenset((*_DEFAULTS, "aggregate"))


class ValueBinding(msgspec.Struct, frozen=True):
    """One projection of one resource. Options are None, or empty, when not given."""

    kind: str
    source: str
    projection: str
    cast: str | None = None
    axis: int | None = None
    unsqueeze: tuple[int, ...] = ()
    assumed_align: int | None = None
    leading_dim: int | None = None
    peer_resource: str | None = None

    @property
    def sources(self) -> tuple[str, ...]:
        """Every resource this binding exposes."""
        return (self.source,) if self.peer_resource is None else (self.source, self.peer_resource)

    def writes(self, resource: SlotResource) -> bool:
        """Say whether a kernel may write `resource` through this binding."""
        as_storage = (self.kind, self.projection) in (
            ("tensor", "descriptor"),
            ("pointer", "device_ptr"),
            ("pointer", "identity"),
        )
        return as_storage and self.source == resource.name and resource.writable

    def document(self) -> dict[str, object]:
        """Return the identity form: options that are not given are left out, the projection never is."""
        row = {key: value for key, value in msgspec.structs.asdict(self).items() if value is not None and value != ()}
        return {**row, "unsqueeze": list(self.unsqueeze)} if self.unsqueeze else row


Binding = ValueBinding | AggregateBinding


def parse_binding(value: object, where: Where, role: str, scope: Scope) -> Binding:
    """Parse one row of an export of `role`.

    Raises DIRECT_TYPE, DIRECT_VALUE, DIRECT_LIMIT, DIRECT_*_KEY, DIRECT_SOURCE, DIRECT_BINDING.
    """
    kind = kind_of(value, where, KINDS)
    if kind == "aggregate":
        return parse_aggregate(value, where, role, scope)
    table = Table(value, where, "kind source", f"projection {_OPTIONS[kind]}")
    resource = scope.reach(table.text("source"), role, table.at("source"))
    if role == "run" and resource.name == scope.abi.prepare_result:
        hint = "Declare prepared.* tensors in artifact_resources and bind those."
        raise table.at("source").refusal("DIRECT_SOURCE", f"a run step cannot bind {resource.name} itself.", hint)
    projection = _projection(table, kind, resource)
    binding = ValueBinding(
        kind=kind,
        source=resource.name,
        projection=projection,
        cast=_cast(table, resource, projection) if kind == "scalar" else None,
        axis=_axis(table, projection),
        unsqueeze=_unsqueeze(table),
        assumed_align=table.alignment("assumed_align", DIRECT.assumed_alignment),
        leading_dim=table.optional_integer("leading_dim", 0, DIRECT.leading_dim),
        peer_resource=table.text("peer_resource") if table.has("peer_resource") else None,
    )
    _check_peer(table, binding, scope, role)
    return binding


def _projection(table: Table, kind: str, resource: SlotResource) -> str:
    permitted = _PERMITTED[resource.kind].get(kind)
    if permitted is None:
        hint = one_of(_PERMITTED[resource.kind])
        message = f"the {resource.kind} {resource.name} cannot be bound as a {kind}."
        raise table.at("kind").refusal("DIRECT_BINDING", message, hint)
    projection = table.text("projection") if table.has("projection") else _DEFAULTS[kind]
    if projection not in permitted:
        message = f"the {resource.kind} {resource.name} has no such projection as a {kind}."
        raise table.at("projection").refusal("DIRECT_BINDING", message, one_of(permitted))
    if projection == "value" and not resource.readable:
        raise table.at("source").refusal("DIRECT_BINDING", f"{resource.name} cannot be read.")
    return projection


def _cast(table: Table, resource: SlotResource, projection: str) -> str:
    if not table.has("cast"):
        raise table.where.refusal("DIRECT_BINDING", "a scalar binding needs a cast.", 'Add for instance cast = "i32".')
    cast = table.choice("cast", SCALAR_TYPES)
    source = "i64" if projection in _DERIVED or resource.scalar_type is None else resource.scalar_type
    if family_of(source) != family_of(cast):
        message = f"{family_of(source)} of {resource.name} cannot be cast to {cast}."
        raise table.at("cast").refusal("DIRECT_BINDING", message, "A cast stays within bool, integers or floats.")
    return cast


def _axis(table: Table, projection: str) -> int | None:
    if (projection in _WITH_AXIS) != table.has("axis"):
        raise table.where.refusal("DIRECT_BINDING", "axis is given exactly for the projections shape and stride.")
    return table.optional_integer("axis", 0, DIRECT.axis)


def _unsqueeze(table: Table) -> tuple[int, ...]:
    reach = DIRECT.unsqueeze_reach
    return tuple(as_integer(item, at, -reach, reach) for item, at in table.items("unsqueeze", 0, DIRECT.unsqueeze))


def _check_peer(table: Table, binding: ValueBinding, scope: Scope, role: str) -> None:
    if (binding.projection == "peer_ptr_table") != (binding.peer_resource is not None):
        raise table.where.refusal("DIRECT_BINDING", "peer_resource is given exactly for peer_ptr_table.")
    if binding.peer_resource is None:
        return
    place = table.at("peer_resource")
    peer = scope.declared.get(binding.peer_resource)
    if peer is None or peer.scope != "group_ipc":
        hint = 'Declare it in artifact_resources with scope = "group_ipc".'
        raise place.refusal("DIRECT_BINDING", "a peer resource is a declared resource of the group.", hint)
    scope.reach(peer.name, role, place)
