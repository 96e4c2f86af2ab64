"""Kernel parameters: values that the validator constructs, byte by byte, from checked declarations.

Invariants
1. A parameter has exactly the keys of its kind, and the size its kind prescribes.
2. Fields of a packed struct lie inside it and never overlap; bytes no field covers are zero.
3. An address always comes from a binding; no declaration holds a number that becomes one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import msgspec

from config.limits import DIRECT
from intake.direct import fast_divmod, tensor_map
from intake.direct.bindings import Binding
from intake.direct.expression import Expression, parse_expression
from intake.direct.provider import GROUP_PROJECTIONS
from intake.direct.reading import Table, kind_of, shown
from intake.direct.scalars import PACK_FORMATS, family_of, pack_scalar, width_of
from intake.direct.tensor_map import TensorMap, parse_tensor_map, tensor_binding
from intake.direct.where import Where

ADDRESS_BYTES = 8
_HEX = re.compile(r"(?:[0-9a-f]{2})+")
_KEYS: Mapping[str, str] = MappingProxyType(
    {
        "pointer": "binding",
        "scalar": "scalar_type expression",
        "packed_struct": "fields",
        "tma_descriptor": "tma",
        **dict.fromkeys(fast_divmod.PACKERS, "expression"),
        "group_handle": "binding group_projection",
    }
)  # kind -> keys besides kind and size
_SIZES: Mapping[str, int] = MappingProxyType(
    {
        "pointer": ADDRESS_BYTES,
        "tma_descriptor": tensor_map.SIZE,
        **dict.fromkeys(fast_divmod.PACKERS, fast_divmod.SIZE),
        "group_handle": ADDRESS_BYTES,
    }
)
_POINTERS = frozenset(("tensor", "pointer", "opaque"))  # kinds of binding that have an address


class Field(msgspec.Struct, frozen=True):
    """One field of a packed struct: an expression, literal bytes (as hexadecimal text), or a tensor's address."""

    offset: int
    size: int
    scalar_type: str | None = None
    expression: Expression | None = None
    data_hex: str | None = None
    tensor_binding: int | None = None

    def document(self) -> dict[str, object]:
        """Return the identity form; keys of the other forms are left out."""
        if self.expression is not None:
            return {
                "offset": self.offset,
                "scalar_type": self.scalar_type,
                "expression": self.expression.document(),
            }
        if self.data_hex is not None:
            return {"offset": self.offset, "data_hex": self.data_hex}
        return {"offset": self.offset, "tensor_binding": self.tensor_binding}


class Parameter(msgspec.Struct, frozen=True):
    """One kernel parameter of `size` bytes; which members are set follows from `kind`."""

    kind: str
    size: int
    binding: int | None = None
    scalar_type: str | None = None
    expression: Expression | None = None
    fields: tuple[Field, ...] = ()
    tma: TensorMap | None = None
    group_projection: str | None = None

    def document(self) -> dict[str, object]:
        """Return the identity form: kind, size and the keys of the kind."""
        row: dict[str, object] = {"kind": self.kind, "size": self.size}
        for key in _KEYS[self.kind].split():
            value = getattr(self, key)
            if isinstance(value, tuple):
                row[key] = [field.document() for field in value]
            else:
                row[key] = value.document() if isinstance(value, Expression | TensorMap) else value
        return row


def parse_parameter(value: object, where: Where, bindings: Sequence[Binding]) -> Parameter:
    """Parse one parameter of an export with `bindings`. Raises as `parse_expression`, and DIRECT_PARAMETER."""
    kind = kind_of(value, where, _KEYS)
    table = Table(value, where, f"kind size {_KEYS[kind]}")
    size = table.integer("size", 1, DIRECT.parameter_bytes)
    if kind in _SIZES and size != _SIZES[kind]:
        raise table.at("size").refusal("DIRECT_PARAMETER", f"a {kind} has {_SIZES[kind]} bytes, not {size}.")
    match kind:
        case "pointer":
            return Parameter(kind, size, binding=_bound(table, bindings, _POINTERS))
        case "group_handle":
            projection = table.choice("group_projection", GROUP_PROJECTIONS)
            bound = _bound(table, bindings, frozenset(("group",)))
            return Parameter(kind, size, binding=bound, group_projection=projection)
        case "scalar":
            scalar_type, expression = _typed(table, bindings)
            if size != width_of(scalar_type):
                message = f"{scalar_type} has {width_of(scalar_type)} bytes, not {size}."
                raise table.at("size").refusal("DIRECT_PARAMETER", message)
            return Parameter(kind, size, scalar_type=scalar_type, expression=expression)
        case "packed_struct":
            return Parameter(kind, size, fields=_fields(table, size, bindings))
        case "tma_descriptor":
            return Parameter(kind, size, tma=parse_tensor_map(table.get("tma"), table.at("tma"), bindings))
        case _:
            return Parameter(kind, size, expression=_divisor(table, bindings))


def _bound(table: Table, bindings: Sequence[Binding], kinds: frozenset[str]) -> int:
    index = table.integer("binding", 0, DIRECT.bindings - 1)
    if index >= len(bindings) or bindings[index].kind not in kinds:
        message = f"binding {index} is none of: {', '.join(sorted(kinds))}."
        raise table.at("binding").refusal("DIRECT_PARAMETER", message)
    return index


def _typed(table: Table, bindings: Sequence[Binding]) -> tuple[str, Expression]:
    scalar_type, place = table.choice("scalar_type", PACK_FORMATS), table.at("expression")
    expression = parse_expression(table.get("expression"), place, bindings, family_of(scalar_type))
    if expression.constant is not None and pack_scalar(expression.constant, scalar_type) is None:
        raise place.refusal("DIRECT_PARAMETER", f"{shown(expression.constant)} does not fit {scalar_type}.")
    return scalar_type, expression


def _divisor(table: Table, bindings: Sequence[Binding]) -> Expression:
    expression = parse_expression(table.get("expression"), table.at("expression"), bindings, "int")
    if expression.constant is not None and not 1 <= expression.constant <= DIRECT.divisor:
        raise table.at("expression").refusal("DIRECT_PARAMETER", f"the divisor is outside 1..{DIRECT.divisor}.")
    return expression


def _fields(table: Table, size: int, bindings: Sequence[Binding]) -> tuple[Field, ...]:
    items = table.items("fields", 1, DIRECT.struct_fields)
    fields = tuple(_field(item, place, size, bindings) for item, place in items)
    end = 0
    for field, (_, place) in sorted(zip(fields, items, strict=True), key=lambda pair: pair[0].offset):
        if field.offset < end:
            raise place.refusal("DIRECT_PARAMETER", "the field overlaps the one before it.")
        end = field.offset + field.size
        if end > size:
            raise place.refusal("DIRECT_PARAMETER", f"the field ends at byte {end} of {size}.")
    return fields


def _field(value: object, where: Where, size: int, bindings: Sequence[Binding]) -> Field:
    table = Table(value, where, "offset", "scalar_type expression data_hex tensor_binding")
    offset = table.integer("offset", 0, size - 1)
    match sorted(set(table) - {"offset"}):
        case ["expression", "scalar_type"]:
            scalar_type, expression = _typed(table, bindings)
            return Field(offset, width_of(scalar_type), scalar_type=scalar_type, expression=expression)
        case ["data_hex"]:
            text = table.matching("data_hex", _HEX, "lower-case hexadecimal text of whole bytes")
            if len(text) > 2 * DIRECT.parameter_bytes:
                raise table.at("data_hex").refusal("DIRECT_LIMIT", f"more than {DIRECT.parameter_bytes} bytes.")
            return Field(offset, len(text) // 2, data_hex=text)
        case ["tensor_binding"]:
            return Field(offset, ADDRESS_BYTES, tensor_binding=tensor_binding(table, "tensor_binding", bindings))
        case _:
            hint = "Give scalar_type and expression, or data_hex, or tensor_binding."
            raise where.refusal("DIRECT_PARAMETER", "a field has exactly one of three forms.", hint)
