"""The table of implemented runtime APIs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chain.devnet.chain import Chain
from chain.devnet.scale import Reader
from chain.devnet.storage import StorageView

ApiHandler = Callable[[Chain, StorageView, Reader], Any]
_HANDLERS: dict[tuple[str, str], ApiHandler] = {}


def api(name: str, method: str) -> Callable[[ApiHandler], ApiHandler]:
    """Register the decorated function `(chain, state, arguments) -> plain value`."""

    def register(handler: ApiHandler) -> ApiHandler:
        _HANDLERS[name, method] = handler
        return handler

    return register


def handler_of(name: str, method: str) -> ApiHandler | None:
    """Return the function that answers a runtime API, or None."""
    return _HANDLERS.get((name, method))
