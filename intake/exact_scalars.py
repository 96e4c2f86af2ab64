"""Exact scalars in the routing domain of a direct row: values that its compiled code was built for.

Invariants
1. Only scalars that the row's slot offers for specialization and that are no fact of the routing vocabulary stand here.
2. Values are compared type by type and, for floats, bit by bit: 1 is not 1.0 and 0.0 is not -0.0. There are no ranges.
3. The rendering is exact and reads back to the same values; a miner's metadata cannot hold it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from config.errors import IntakeError
from config.limits import INTAKE
from config.slot_resources import ScalarType, load_slot_resources
from intake.capabilities import FIELDS
from intake.direct.scalars import Scalar, family_of, family_of_value, pack_scalar, scalar_document
from intake.refusal import clip

RENDERED = "exact_scalars"  # key of a rendered domain, never of a metadata file


class ExactScalar(msgspec.Struct, frozen=True):
    """The values one scalar of a call may have; never empty, in the order of their tokens."""

    field: str
    allowed: tuple[Scalar, ...]


def offered_scalars(slot: str) -> dict[str, ScalarType]:
    """Return the types of the scalars a direct row of `slot` may fix beyond the routing vocabulary, by field."""
    abi = load_slot_resources().get(slot)
    found: dict[str, ScalarType] = {}
    for resource in abi.resources if abi is not None else ():
        field = resource.capability_field
        if field is not None and resource.scalar_type is not None and field not in FIELDS:
            found[field] = resource.scalar_type
    return found


def parse_scalars(raw: Mapping[str, object], types: Mapping[str, ScalarType]) -> tuple[ExactScalar, ...]:
    """Parse the raw predicates of fields in `types`, sorted by field.

    Raises `IntakeError` (CAPABILITY_PREDICATE, CAPABILITY_VALUE).
    """
    return tuple(ExactScalar(field, _allowed(field, raw[field], types[field])) for field in sorted(raw))


def token(value: object) -> str:
    """Return the exact text of a scalar, for comparing. Raises `IntakeError` (CAPABILITY_VALUE)."""
    if not isinstance(value, bool | int | float) or (isinstance(value, float) and not math.isfinite(value)):
        raise IntakeError("CAPABILITY_VALUE", "a value of an exact scalar is not a bool or finite number.")
    text = value.hex() if isinstance(value, float) else str(value)
    return f"{family_of_value(value)}:{text}"


def render_scalars(scalars: tuple[ExactScalar, ...]) -> dict[str, list[object]]:
    """Return the JSON form, by field."""
    return {item.field: [scalar_document(value) for value in item.allowed] for item in scalars}


def read_scalars(rendered: Mapping[str, Any]) -> tuple[ExactScalar, ...]:
    """Read back what `render_scalars` made."""
    return tuple(ExactScalar(field, tuple(map(_value, rendered[field]))) for field in sorted(rendered))


def _value(document: Any) -> Scalar:
    value: Scalar = float.fromhex(document["hex"]) if isinstance(document, dict) else document
    return value


def _allowed(field: str, predicate: object, scalar_type: ScalarType) -> tuple[Scalar, ...]:
    if isinstance(predicate, dict) and set(predicate) == {"exact"}:
        values: object = [predicate["exact"]]
    elif isinstance(predicate, dict):
        values = predicate["one_of"] if set(predicate) == {"one_of"} else None
    else:
        values = predicate if isinstance(predicate, list) else [predicate]
    if not isinstance(values, list) or not 1 <= len(values) <= INTAKE.list_entries:
        message = f"the constraint on {clip(field)} is not exactly one of exact and one_of."
        raise IntakeError("CAPABILITY_PREDICATE", message, hint='Write for instance {"exact": 0.000001}.')
    unique: dict[str, Scalar] = {}
    for value in values:
        unique[token(value)] = value
        if family_of_value(value) != family_of(scalar_type) or pack_scalar(value, scalar_type) is None:
            raise IntakeError("CAPABILITY_VALUE", f"a value of {clip(field)} is not exactly a {scalar_type}.")
    return tuple(unique[name] for name in sorted(unique))
