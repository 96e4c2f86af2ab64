"""Scalar types of the declaration language: families, widths, exact values.

Invariants
1. A value has exactly one family: bool, int or float; no value of one family stands for another's.
2. Integers are checked against their type's range, never truncated or wrapped. Floats are finite.
3. In an identity a float is its exact hexadecimal text, so that 1 and 1.0, and 0.0 and -0.0, stay different.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from intake.direct.reading import shown
from intake.direct.where import Where

Scalar = bool | int | float
Family = Literal["bool", "int", "float"]

SIGNED = ("i8", "i16", "i32", "i64")
UNSIGNED = ("u8", "u16", "u32", "u64")
FLOATS = ("f16", "bf16", "f32", "tf32", "f64")
SCALAR_TYPES = frozenset(("bool", *SIGNED, *UNSIGNED, *FLOATS))

INT64_LOW, INT64_HIGH = -(1 << 63), (1 << 63) - 1

# Scalars that can be packed into a kernel parameter: struct format and width in bytes.
PACK_FORMATS: Mapping[str, str] = MappingProxyType(
    dict(
        zip(
            ("bool", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "f16", "f32", "f64"),
            "?bBhHiIqQefd",
            strict=True,
        )
    )
)


def family_of(scalar_type: str) -> Family:
    """Return the family of a scalar type."""
    if scalar_type == "bool":
        return "bool"
    return "float" if scalar_type in FLOATS else "int"


def family_of_value(value: Scalar) -> Family:
    """Return the family of a value."""
    if isinstance(value, bool):
        return "bool"
    return "int" if isinstance(value, int) else "float"


def integer_range(scalar_type: str) -> tuple[int, int]:
    """Return the inclusive range of an integer type."""
    bits = int(scalar_type[1:])
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if scalar_type in SIGNED else (0, (1 << bits) - 1)


def width_of(scalar_type: str) -> int:
    """Return the packed width of a scalar parameter type, in bytes."""
    return struct.calcsize("<" + PACK_FORMATS[scalar_type])


def as_scalar(value: object, where: Where, scalar_type: str) -> Scalar:
    """Return `value` when it has exactly the type `scalar_type`. Raises DIRECT_TYPE, DIRECT_VALUE."""
    family = family_of(scalar_type)
    if not isinstance(value, bool | int | float) or family_of_value(value) != family:
        raise where.refusal("DIRECT_TYPE", f"{shown(value)} is not exactly a {family}, which {scalar_type} asks for.")
    if family == "int":
        low, high = integer_range(scalar_type)
        if not low <= value <= high:
            raise where.refusal("DIRECT_VALUE", f"{shown(value)} is outside {scalar_type}.")
    elif family == "float" and not math.isfinite(value):
        raise where.refusal("DIRECT_VALUE", "the number is not finite.")
    return value


def same_scalar(one: object, other: object) -> bool:
    """Say whether two values are the same: type by type and, for floats, bit by bit."""
    if type(one) is not type(other):
        return False
    return one.hex() == other.hex() if isinstance(one, float) and isinstance(other, float) else one == other


def scalar_document(value: Scalar | str) -> object:
    """Return the identity form of a scalar."""
    return {"hex": value.hex(), "type": "float"} if isinstance(value, float) else value


def pack_scalar(value: Scalar, scalar_type: str) -> bytes | None:
    """Return the little-endian bytes of `value`; None when it has another family or does not fit the type."""
    if family_of_value(value) != family_of(scalar_type):
        return None
    try:
        return struct.pack("<" + PACK_FORMATS[scalar_type], value)
    except (OverflowError, struct.error):
        return None
