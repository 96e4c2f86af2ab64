"""`[[ops.artifact_resources]]`: storage between or inside calls, which the validator allocates.

Invariants
1. The name's first part fixes the lifetime: workspace lives for a call, prepared until the weights change, state as
   long as the engine entry. A resource never is a stream, group, input, output or address.
2. Every extent is `ceil(product of factors / divisor)`; each dynamic factor has a declared bound, and all size limits
   are proved on the bounds, before anything is allocated.
3. Dynamic factors read the slot's own call, never another artifact resource.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

import msgspec

from config.limits import DIRECT
from config.slot_resources import SlotAbi, SlotResource
from intake.direct.reading import Table, shown
from intake.direct.scalars import family_of
from intake.direct.where import Where

DTYPE_BYTES: Mapping[str, int] = MappingProxyType(
    dict.fromkeys(("bool", "i8", "u8", "f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz"), 1)
    | dict.fromkeys(("i16", "u16", "f16", "bf16"), 2)
    | dict.fromkeys(("i32", "u32", "f32"), 4)
    | dict.fromkeys(("i64", "u64", "f64"), 8)
)
LIFETIMES: Mapping[str, str] = MappingProxyType({"workspace": "call", "prepared": "prepared", "state": "engine"})
SCOPES = ("rank_local", "group_ipc")

_NAME = re.compile(r"(workspace|prepared|state)(\.[a-z][a-z0-9_]{0,63}){1,3}")
_PROJECTIONS = {"tensor": ("shape", "numel", "rank"), "scalar": ("value",), "group": ("size",)}
_ALL_PROJECTIONS = ("shape", "numel", "rank", "value", "size")


class Factor(msgspec.Struct, frozen=True):
    """One factor of an extent: `static`, or a projection of a slot resource with its declared upper bound."""

    static: int | None = None
    source: str = ""
    projection: str = ""
    upper_bound: int = 0
    axis: int | None = None

    @property
    def largest(self) -> int:
        """The largest value this factor may take."""
        return self.upper_bound if self.static is None else self.static

    def document(self) -> dict[str, object]:
        """Return the identity form."""
        if self.static is not None:
            return {"static": self.static}
        row: dict[str, object] = {
            "source": self.source,
            "projection": self.projection,
            "upper_bound": self.upper_bound,
        }
        return row if self.axis is None else {**row, "axis": self.axis}


class Extent(msgspec.Struct, frozen=True):
    """One dimension: `ceil(product of factors / divisor)`."""

    factors: tuple[Factor, ...]
    divisor: int = 1

    @property
    def largest(self) -> int:
        """The largest value this extent may take."""
        return -(-math.prod(factor.largest for factor in self.factors) // self.divisor)

    def document(self) -> dict[str, object]:
        """Return the identity form; a divisor of 1 is left out."""
        row: dict[str, object] = {"factors": [factor.document() for factor in self.factors]}
        return row if self.divisor == 1 else {**row, "divisor": self.divisor}


class ArtifactResource(msgspec.Struct, frozen=True):
    """One declared resource: a contiguous tensor, readable and writable. `alignment` is in bytes."""

    name: str
    dtype: str
    alignment: int
    lifetime: str
    shape: tuple[Extent, ...]
    scope: str = "rank_local"

    @property
    def largest_bytes(self) -> int:
        """The largest size in bytes."""
        return math.prod(extent.largest for extent in self.shape) * DTYPE_BYTES[self.dtype]

    def document(self) -> dict[str, object]:
        """Return the identity form; the default scope is left out."""
        row: dict[str, object] = {
            "name": self.name,
            "dtype": self.dtype,
            "alignment": self.alignment,
            "lifetime": self.lifetime,
            "shape": [extent.document() for extent in self.shape],
        }
        return row if self.scope == "rank_local" else {**row, "scope": self.scope}

    def as_slot_resource(self) -> SlotResource:
        """Return what a binding sees of it."""
        return SlotResource(self.name, "tensor", "readwrite")


def parse_resource(value: object, where: Where, abi: SlotAbi) -> ArtifactResource:
    """Parse one row. Raises DIRECT_TYPE, DIRECT_VALUE, DIRECT_LIMIT, DIRECT_*_KEY, DIRECT_RESOURCE, DIRECT_SOURCE."""
    table = Table(value, where, "name dtype alignment lifetime shape", "scope")
    name = table.matching("name", _NAME, "workspace., prepared. or state. with one to three lower-case parts")
    dtype = table.choice("dtype", DTYPE_BYTES)
    alignment = table.alignment("alignment", DIRECT.resource_alignment) or 1
    lifetime = table.choice("lifetime", sorted(LIFETIMES.values()))
    scope = table.choice("scope", SCOPES, "rank_local")
    if lifetime != LIFETIMES[name.partition(".")[0]]:
        hint = f'Write lifetime = "{LIFETIMES[name.partition(".")[0]]}".'
        raise table.at("lifetime").refusal("DIRECT_RESOURCE", f"{name} cannot live that long or short.", hint)
    if alignment < DTYPE_BYTES[dtype]:
        raise table.at("alignment").refusal("DIRECT_RESOURCE", f"{alignment} is less than one {dtype} element.")
    if scope == "group_ipc" and lifetime == "call":
        raise table.at("scope").refusal("DIRECT_RESOURCE", "a call-local resource cannot be shared with the group.")
    if name in abi.by_name:
        raise table.at("name").refusal("DIRECT_RESOURCE", f"{name} is a resource of the slot already.")
    extents = table.items("shape", 1, DIRECT.resource_rank)
    shape = tuple(_extent(item, place, abi, lifetime) for item, place in extents)
    resource = ArtifactResource(name, dtype, alignment, lifetime, shape, scope)
    _check_size(resource, table.at("shape"))
    return resource


def check_total(resources: tuple[ArtifactResource, ...], where: Where) -> None:
    """Refuse doubled names and a row whose resources together are too large. Raises DIRECT_RESOURCE, DIRECT_LIMIT."""
    seen: set[str] = set()
    for resource in resources:
        if resource.name in seen:
            raise where.refusal("DIRECT_RESOURCE", f"{resource.name} is declared twice.")
        seen.add(resource.name)
    total = sum(resource.largest_bytes for resource in resources)
    if total > DIRECT.resource_total_bytes:
        raise where.refusal("DIRECT_LIMIT", f"{total} bytes in total are more than {DIRECT.resource_total_bytes}.")


def concrete_shape(resource: ArtifactResource, read: Callable[[Factor], int], where: Where) -> tuple[int, ...]:
    """Return the shape for one live call, whose dynamic factors `read` returns.

    Raises DIRECT_EVALUATION for a factor above its bound or an extent that is not positive.
    """
    return tuple(_concrete(extent, read, where.at("shape", index)) for index, extent in enumerate(resource.shape))


def _concrete(extent: Extent, read: Callable[[Factor], int], where: Where) -> int:
    product = 1
    for index, factor in enumerate(extent.factors):
        value = factor.static if factor.static is not None else read(factor)
        if not 0 <= value <= factor.largest:
            message = f"{shown(value)} is outside 0..{factor.largest}."
            raise where.at("factors", index).refusal("DIRECT_EVALUATION", message)
        product *= value
    size = -(-product // extent.divisor)
    if size < 1:
        raise where.refusal("DIRECT_EVALUATION", "the extent is empty for this call.")
    return size


def _extent(value: object, where: Where, abi: SlotAbi, lifetime: str) -> Extent:
    table = Table(value, where, "factors", "divisor")
    items = table.items("factors", 1, DIRECT.resource_factors)
    factors = tuple(_factor(item, place, abi, lifetime) for item, place in items)
    extent = Extent(factors, table.optional_integer("divisor", 1, DIRECT.resource_extent) or 1)
    if math.prod(factor.largest for factor in factors) > DIRECT.resource_product:
        raise where.refusal("DIRECT_LIMIT", "the product of the factors does not fit 63 bits.")
    if extent.largest > DIRECT.resource_extent:
        raise where.refusal("DIRECT_LIMIT", f"an extent of up to {extent.largest} is too large.")
    return extent


def _factor(value: object, where: Where, abi: SlotAbi, lifetime: str) -> Factor:
    if isinstance(value, Mapping) and value.get("static") is not None:
        return Factor(static=Table(value, where, "static").integer("static", 1, DIRECT.resource_extent))
    table = Table(value, where, "source projection upper_bound", "axis")
    source, projection = table.text("source"), table.choice("projection", _ALL_PROJECTIONS)
    resource = abi.by_name.get(source)
    if resource is None:
        message = f"{shown(source)} is no resource of {abi.slot}."
        raise table.at("source").refusal("DIRECT_SOURCE", message, "A shape reads the slot's own call only.")
    if projection not in _PROJECTIONS.get(resource.kind, ()) or not _is_integral(resource):
        raise table.at("projection").refusal("DIRECT_RESOURCE", f"{source} has no integer {projection}.")
    _check_known_in_time(resource, abi, lifetime, table.at("source"))
    if (projection == "shape") != table.has("axis"):
        raise where.refusal("DIRECT_RESOURCE", "axis is given exactly for the projection shape.")
    return Factor(
        source=source,
        projection=projection,
        upper_bound=table.integer("upper_bound", 1, DIRECT.resource_extent),
        axis=table.optional_integer("axis", 0, DIRECT.axis),
    )


def _is_integral(resource: SlotResource) -> bool:
    if resource.scalar_type is None:
        return True
    return resource.readable and family_of(resource.scalar_type) == "int"


def _check_known_in_time(resource: SlotResource, abi: SlotAbi, lifetime: str, where: Where) -> None:
    """A prepared resource is allocated by the load-time half, which sees only its own arguments."""
    if lifetime != "prepared":
        return
    known = abi.prepare_args if abi.prepare_result is not None else abi.call_args
    if resource.name not in known:
        message = f"{resource.name} is not known when a prepared resource is allocated."
        raise where.refusal("DIRECT_RESOURCE", message, f"Use one of: {', '.join(known)}.")


def _check_size(resource: ArtifactResource, where: Where) -> None:
    elements = math.prod(extent.largest for extent in resource.shape)
    if elements > DIRECT.resource_elements:
        message = f"up to {shown(elements)} elements are more than {DIRECT.resource_elements}."
        raise where.refusal("DIRECT_LIMIT", message)
    if resource.largest_bytes > DIRECT.resource_bytes:
        message = f"up to {resource.largest_bytes} bytes are more than {DIRECT.resource_bytes}."
        raise where.refusal("DIRECT_LIMIT", message)
