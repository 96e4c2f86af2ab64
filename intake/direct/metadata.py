"""Metadata of direct rows: the one place where a bundle's JSON may hold a float.

Invariants
1. The JSON is strict: UTF-8, no duplicate keys, no NaN or infinity, a size bound. Floats are finite and exact.
2. Only the scalars that a slot's call ABI offers for specialization may be floats or bools under `capabilities`;
   every other field keeps the types of the routing vocabulary, which its own parser enforces.
"""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from config.errors import IntakeError
from config.limits import INTAKE
from intake.direct.reading import shown


def read_direct_metadata(data: bytes) -> dict[str, Any]:
    """Return the metadata object of a direct row. Raises `IntakeError` (DIRECT_METADATA)."""
    if len(data) > INTAKE.metadata_bytes:
        raise _malformed(f"larger than {INTAKE.metadata_bytes} bytes")
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_unique, parse_float=_finite, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise _malformed("not strict JSON") from error
    if not isinstance(value, dict):
        raise _malformed("not an object")
    return value


def capabilities_of(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return the raw `capabilities` object; {} when there is none. Raises `IntakeError` (DIRECT_METADATA)."""
    capabilities = metadata.get("capabilities")
    if capabilities is not None and not isinstance(capabilities, dict):
        raise _malformed("without a table of capabilities")
    return capabilities or {}


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise _malformed("an object with a key that stands twice")
    return result


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        _refuse(text)
    return number


def _refuse(text: str) -> NoReturn:
    raise _malformed(f"holding {shown(text)}, which is no finite number")


def _malformed(what: str) -> IntakeError:
    return IntakeError("DIRECT_METADATA", f"the metadata of the direct row is {what}.")
