"""The `tma` table of a TMA descriptor parameter: what the validator asks the driver to encode.

Invariants
1. All ten keys stand; the lists agree with one rank of 1 to 5; strides are bytes, and dimension 0 has none.
2. What the driver refuses for every call is refused here: modes that do not fit the rank, the element type or each
   other, and constant sizes outside their range.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import msgspec

from config.limits import DIRECT
from intake.direct.bindings import Binding
from intake.direct.evaluate import Facts, evaluate
from intake.direct.expression import Expression, parse_expression
from intake.direct.reading import Table, shown
from intake.direct.where import Where

SIZE = 128  # bytes
ELEMENT_BYTES: Mapping[str, int] = MappingProxyType(
    {
        "u8": 1,
        "u16": 2,
        "u32": 4,
        "i32": 4,
        "i64": 8,
        "f16": 2,
        "f32": 4,
        "f64": 8,
        "bf16": 2,
        "tf32": 4,
        "tf32_32b": 4,
        "f8e4m3": 1,
        "f8e5m2": 1,
    }
)
INTERLEAVES = ("none", "interleave_16b", "interleave_32b")
SWIZZLE_SPANS: Mapping[str, int | None] = MappingProxyType(
    {
        "none": None,
        "swizzle_32b": 32,
        "swizzle_64b": 64,
        "swizzle_128b": 128,
        "swizzle_128b_atom_32b": 128,
    }
)  # bytes the innermost box dimension may cover
L2_PROMOTIONS = ("none", "l2_64b", "l2_128b", "l2_256b")
OOB_FILLS = ("none", "zero", "nan_request_zero_fma")
_FLOATS = frozenset(("f16", "f32", "f64", "bf16", "tf32", "tf32_32b"))
_KEYS = (
    "binding box_dims element_strides element_type global_dims global_strides interleave l2_promotion oob_fill swizzle"
)
_LISTS = ("global_dims", "global_strides", "box_dims", "element_strides")
_MOST = {
    "global_dims": DIRECT.tensor_map_dimension,
    "global_strides": DIRECT.tensor_map_stride - 1,
    "box_dims": DIRECT.tensor_map_box,
    "element_strides": DIRECT.tensor_map_element_stride,
}


class TensorMap(msgspec.Struct, frozen=True):
    """One tiled tensor map over the tensor binding `binding`. `global_strides` are in bytes."""

    binding: int
    element_type: str
    global_dims: tuple[Expression, ...]
    global_strides: tuple[Expression, ...]
    box_dims: tuple[Expression, ...]
    element_strides: tuple[Expression, ...]
    interleave: str
    swizzle: str
    l2_promotion: str
    oob_fill: str

    def document(self) -> dict[str, object]:
        """Return the identity form."""
        lists = {key: [item.document() for item in getattr(self, key)] for key in _LISTS}
        return {**{key: getattr(self, key) for key in _KEYS.split()}, **lists}


class TensorMapSizes(msgspec.Struct, frozen=True):
    """The sizes of one tensor map for one live call."""

    global_dims: tuple[int, ...]
    global_strides: tuple[int, ...]  # bytes
    box_dims: tuple[int, ...]
    element_strides: tuple[int, ...]


def parse_tensor_map(value: object, where: Where, bindings: Sequence[Binding]) -> TensorMap:
    """Parse one table. Raises as `parse_expression`, and DIRECT_PARAMETER."""
    table = Table(value, where, _KEYS)
    rank = len(table.items("global_dims", 1, DIRECT.tensor_map_rank))
    tensor_map = TensorMap(
        binding=tensor_binding(table, "binding", bindings),
        element_type=table.choice("element_type", ELEMENT_BYTES),
        global_dims=_sizes(table, "global_dims", rank, bindings),
        global_strides=_sizes(table, "global_strides", rank - 1, bindings),
        box_dims=_sizes(table, "box_dims", rank, bindings),
        element_strides=_sizes(table, "element_strides", rank, bindings),
        interleave=table.choice("interleave", INTERLEAVES),
        swizzle=table.choice("swizzle", SWIZZLE_SPANS),
        l2_promotion=table.choice("l2_promotion", L2_PROMOTIONS),
        oob_fill=table.choice("oob_fill", OOB_FILLS),
    )
    _check_modes(tensor_map, rank, table)
    return tensor_map


def tensor_binding(table: Table, key: str, bindings: Sequence[Binding]) -> int:
    """Return the index of a tensor binding. Raises DIRECT_PARAMETER."""
    index = table.integer(key, 0, DIRECT.bindings - 1)
    if index >= len(bindings) or bindings[index].kind != "tensor":
        raise table.at(key).refusal("DIRECT_PARAMETER", f"binding {index} is no tensor.")
    return index


def resolve_tensor_map(tensor_map: TensorMap, facts: Facts, where: Where) -> TensorMapSizes:
    """Return the sizes for one live call, checked as the driver checks them. Raises DIRECT_EVALUATION."""
    lists: dict[str, tuple[int, ...]] = {}
    for key in _LISTS:
        expressions: tuple[Expression, ...] = getattr(tensor_map, key)
        values = (int(evaluate(item, facts, where.at(key, index))) for index, item in enumerate(expressions))
        lists[key] = tuple(values)
        for index, size in enumerate(lists[key]):
            if not 1 <= size <= _MOST[key]:
                raise where.at(key, index).refusal("DIRECT_EVALUATION", f"{size} is outside 1..{_MOST[key]}.")
    sizes = TensorMapSizes(**lists)
    complaint = _complaint(tensor_map, sizes)
    if complaint:
        raise where.refusal("DIRECT_EVALUATION", f"{complaint} for this call.")
    return sizes


def address_alignment(tensor_map: TensorMap) -> int:
    """Return the alignment, in bytes, that the tensor's address and strides need."""
    return 32 if tensor_map.interleave == "interleave_32b" else 16


def _sizes(table: Table, key: str, count: int, bindings: Sequence[Binding]) -> tuple[Expression, ...]:
    items = table.items(key, 0, DIRECT.tensor_map_rank)
    if len(items) != count:
        raise table.at(key).refusal("DIRECT_PARAMETER", f"{len(items)} entries do not fit the rank; {count} do.")
    expressions = tuple(parse_expression(item, place, bindings, "int") for item, place in items)
    for expression, (_, place) in zip(expressions, items, strict=True):
        constant = expression.constant
        if constant is not None and not 1 <= constant <= _MOST[key]:
            raise place.refusal("DIRECT_PARAMETER", f"{shown(constant)} is outside 1..{_MOST[key]}.")
    return expressions


def _check_modes(tensor_map: TensorMap, rank: int, table: Table) -> None:
    if tensor_map.interleave != "none" and rank < 3:
        raise table.at("interleave").refusal("DIRECT_PARAMETER", "interleaving needs a rank of at least 3.")
    if tensor_map.interleave == "interleave_32b" and tensor_map.swizzle != "swizzle_32b":
        raise table.at("swizzle").refusal("DIRECT_PARAMETER", "interleave_32b needs swizzle_32b.")
    if tensor_map.oob_fill == "nan_request_zero_fma" and tensor_map.element_type not in _FLOATS:
        raise table.at("oob_fill").refusal("DIRECT_PARAMETER", "a NaN fill needs a float element type.")


def _complaint(tensor_map: TensorMap, sizes: TensorMapSizes) -> str:
    width = ELEMENT_BYTES[tensor_map.element_type]
    alignment = address_alignment(tensor_map)
    if any(stride % alignment for stride in sizes.global_strides):
        return f"a global stride is not a multiple of {alignment} bytes"
    least = sizes.global_dims[0] * width
    for index, stride in enumerate(sizes.global_strides):
        if stride < least:
            return f"global stride {index} is less than the {least} bytes it steps over"
        least = stride * sizes.global_dims[index + 1]
    inner = sizes.box_dims[0] * width
    span = SWIZZLE_SPANS[tensor_map.swizzle]
    if tensor_map.interleave == "none" and (inner % 16 or inner > (math.inf if span is None else span)):
        return f"the innermost box dimension covers {inner} bytes, which the swizzle does not allow"
    return ""
