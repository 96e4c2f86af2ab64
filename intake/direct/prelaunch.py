"""Fills that the validator runs before a step: the only data a plan can write without a kernel.

Invariants
1. The one operation is `fill`; its target is a tensor that the step may write.
2. A value is a bool, a 64-bit integer, a finite float, or one of three words for what TOML would write as a number
   that is not finite.
"""

from __future__ import annotations

import math

import msgspec

from intake.direct.reading import Table, as_integer, shown
from intake.direct.scalars import INT64_LOW, Scalar, scalar_document
from intake.direct.scope import Scope
from intake.direct.where import Where

WORDS = ("-inf", "+inf", "nan")
_UINT64_HIGH = (1 << 64) - 1


class Fill(msgspec.Struct, frozen=True):
    """Fill the tensor `target` with `value`."""

    target: str
    value: Scalar | str

    op = "fill"

    def document(self) -> dict[str, object]:
        """Return the identity form."""
        return {"op": self.op, "target": self.target, "value": scalar_document(self.value)}


def parse_fill(value: object, where: Where, role: str, scope: Scope) -> Fill:
    """Parse one row of a step of `role`. Raises DIRECT_TYPE, DIRECT_VALUE, DIRECT_SOURCE, DIRECT_PRELAUNCH."""
    table = Table(value, where, "op target value")
    table.choice("op", (Fill.op,))
    resource = scope.reach(table.text("target"), role, table.at("target"))
    if resource.kind != "tensor" or not resource.writable:
        raise table.at("target").refusal("DIRECT_PRELAUNCH", f"{resource.name} is no tensor that can be written.")
    return Fill(resource.name, _value(table.get("value"), table.at("value")))


def _value(value: object, where: Where) -> Scalar | str:
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return as_integer(value, where, INT64_LOW, _UINT64_HIGH)
    if (isinstance(value, float) and math.isfinite(value)) or (isinstance(value, str) and value in WORDS):
        return value
    hint = f"Use a number, true, false, or one of the texts {', '.join(WORDS)}."
    raise where.refusal("DIRECT_PRELAUNCH", f"{shown(value)} cannot be filled in.", hint)
