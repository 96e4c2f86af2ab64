"""What a pallet's code gets to work with, and the table of callable functions.

Invariants
1. Handlers register themselves by pallet and call name; a call without handler fails with `System.CallFiltered`.
2. Events keep their order and carry the phase in which they were emitted.
3. Calls nest at most `_NESTING_LIMIT` deep.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chain.devnet.faults import DispatchError
from chain.devnet.scale import Reader, ScaleError
from chain.devnet.storage import Session

Phase = str | dict[str, int]
INITIALIZATION: Phase = "Initialization"
FINALIZATION: Phase = "Finalization"


def apply_phase(index: int) -> Phase:
    """Return the phase of events emitted while extrinsic `index` is applied."""
    return {"ApplyExtrinsic": index}


class Context:
    """State and events of the block being built."""

    def __init__(self, state: Session) -> None:
        self.state = state
        self.block = state.block
        self.phase: Phase = INITIALIZATION
        self.events: list[dict[str, Any]] = []
        self.depth = 0

    def emit(self, pallet: str, event: str, fields: Any = None) -> None:
        """Deposit an event; `fields` is a dict for named fields, a tuple for unnamed ones, None for none."""
        inner = event if fields is None else {event: fields}
        self.events.append({"phase": self.phase, "event": {pallet: inner}, "topics": []})

    def mark(self) -> int:
        """Return a position to which `rewind` can drop events."""
        return len(self.events)

    def rewind(self, mark: int) -> None:
        """Forget the events emitted after `mark`."""
        del self.events[mark:]


_NESTING_LIMIT = 32
Handler = Callable[[Context, bytes, Reader], None]
_HANDLERS: dict[tuple[str, str], Handler] = {}
_FREE: set[tuple[str, str]] = set()


def call(pallet: str, function: str, *, free: bool = False) -> Callable[[Handler], Handler]:
    """Register the decorated function `(context, signer, arguments)` for a call; `free` calls pay no fee."""

    def register(handler: Handler) -> Handler:
        _HANDLERS[pallet, function] = handler
        if free:
            _FREE.add((pallet, function))
        return handler

    return register


def is_free(pallet: str, function: str) -> bool:
    """Say whether a call pays no fee."""
    return (pallet, function) in _FREE


def dispatch(context: Context, signer: bytes, name: tuple[str, str], arguments: Reader) -> None:
    """Run one call; its writes and events vanish when it raises `DispatchError`."""
    handler = _HANDLERS.get(name)
    if handler is None or context.depth >= _NESTING_LIMIT:
        raise DispatchError("System", "CallFiltered")
    mark = context.mark()
    context.depth += 1
    try:
        with context.state.transaction():
            handler(context, signer, arguments)
    except (DispatchError, ScaleError):
        context.rewind(mark)
        raise
    finally:
        context.depth -= 1
