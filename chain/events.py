"""Events of a block, and what they say about one extrinsic.

Invariants
1. An event's index is its position in the block's list; that position orders reveals.
2. An extrinsic without an outcome event has no known outcome; absence is never read as success.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from chain.abi import Event


class ChainEvent(msgspec.Struct, frozen=True):
    """One event; `extrinsic_index` is None for events of block initialisation and finalisation."""

    index: int
    extrinsic_index: int | None
    pallet: str
    name: str
    attributes: Any

    def is_a(self, event: Event) -> bool:
        """Say whether this is the named event."""
        return f"{self.pallet}.{self.name}" == event.value


class ExtrinsicOutcome(msgspec.Struct, frozen=True):
    """What became of an included extrinsic: True or False with the runtime's error name, None when unknown."""

    success: bool | None
    error: str = ""


def outcome_of(
    events: Sequence[ChainEvent], index: int, module_error: Callable[[int, int], dict[str, Any]]
) -> ExtrinsicOutcome:
    """Return the outcome of extrinsic `index`; `module_error` names a (pallet index, error index) pair."""
    for event in events:
        if event.extrinsic_index != index:
            continue
        if event.is_a(Event.EXTRINSIC_SUCCESS):
            return ExtrinsicOutcome(True)
        if event.is_a(Event.EXTRINSIC_FAILED):
            return ExtrinsicOutcome(False, _error_name(event.attributes, module_error))
    return ExtrinsicOutcome(None)


def _error_name(attributes: Any, module_error: Callable[[int, int], dict[str, Any]]) -> str:
    error = attributes.get("dispatch_error") if isinstance(attributes, dict) else attributes
    module = error.get("Module") if isinstance(error, dict) else None
    if not isinstance(module, dict):
        return str(error)
    raw = module["error"]
    number = raw[0] if isinstance(raw, bytes | list | tuple) else int(str(raw).removeprefix("0x")[:2], 16)
    return str(module_error(int(module["index"]), int(number))["name"])
