"""The bytes of one kernel parameter for one live call, from declarations, facts and addresses alone.

Invariants
1. Every byte is decided here: fields at their offsets, zero everywhere else, little-endian.
2. A value that does not fit its type is an error, never truncated. Tensor maps and group handles are not made here:
   the first need the driver, the second a handle that this validator may not have.
"""

from __future__ import annotations

from collections.abc import Mapping

from intake.direct.evaluate import Facts, evaluate
from intake.direct.expression import Expression
from intake.direct.fast_divmod import PACKERS, pack_fast_divmod
from intake.direct.parameters import ADDRESS_BYTES, Field, Parameter
from intake.direct.reading import shown
from intake.direct.scalars import pack_scalar
from intake.direct.where import Where

Addresses = Mapping[int, int]  # device address by index of the binding


def pack_parameter(parameter: Parameter, facts: Facts, addresses: Addresses, where: Where) -> bytes:
    """Return the `parameter.size` bytes of a pointer, scalar, packed struct or fast division.

    Raises `IntakeError` (DIRECT_EVALUATION) for a value that cannot be made for this call, or another kind.
    """
    if parameter.kind == "pointer" and parameter.binding is not None:
        return _address(parameter.binding, addresses, where)
    if parameter.kind == "packed_struct":
        return _struct(parameter, facts, addresses, where)
    if parameter.expression is None:
        raise where.refusal("DIRECT_EVALUATION", f"a {parameter.kind} is not made of declared values alone.")
    place = where.at("expression")
    if parameter.kind in PACKERS:
        return pack_fast_divmod(parameter.kind, evaluate(parameter.expression, facts, place), place)
    return _scalar(parameter.expression, parameter.scalar_type or "", facts, place)


def _struct(parameter: Parameter, facts: Facts, addresses: Addresses, where: Where) -> bytes:
    packed = bytearray(parameter.size)
    for index, field in enumerate(parameter.fields):
        packed[field.offset : field.offset + field.size] = _field(field, facts, addresses, where.at("fields", index))
    return bytes(packed)


def _field(field: Field, facts: Facts, addresses: Addresses, where: Where) -> bytes:
    if field.data_hex is not None:
        return bytes.fromhex(field.data_hex)
    if field.expression is not None:
        return _scalar(field.expression, field.scalar_type or "", facts, where.at("expression"))
    return _address(-1 if field.tensor_binding is None else field.tensor_binding, addresses, where)


def _scalar(expression: Expression, scalar_type: str, facts: Facts, where: Where) -> bytes:
    value = evaluate(expression, facts, where)
    packed = pack_scalar(value, scalar_type)
    if packed is None:
        raise where.refusal("DIRECT_EVALUATION", f"{shown(value)} does not fit {scalar_type} for this call.")
    return packed


def _address(binding: int, addresses: Addresses, where: Where) -> bytes:
    address = addresses.get(binding)
    if address is None or not 0 <= address < 1 << (8 * ADDRESS_BYTES):
        raise where.refusal("DIRECT_EVALUATION", f"binding {binding} has no address for this call.")
    return address.to_bytes(ADDRESS_BYTES, "little")
