"""JSON-RPC 2.0: requests, batches and error answers.

Invariants
1. Every request gets exactly one answer with its id; a fault in a method becomes an error object. A request without
   an id is a notification: it is obeyed and not answered.
2. Methods register themselves by name in a table, so a name is defined once; `dev_*` names can be switched off.
3. The answer to a batch is bounded: requests beyond the limit are not carried out and say so.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Protocol

from chain.devnet import faults
from chain.devnet.chain import Chain
from chain.devnet.faults import RpcError
from chain.devnet.history import StateDiscardedError
from chain.devnet.scale import ScaleError
from chain.devnet.subscriptions import Hub, Send
from config.errors import CacheonError


class Node(Protocol):
    """What RPC methods need of the running node."""

    chain: Chain
    hub: Hub

    @property
    def dev_rpc(self) -> bool:
        """Whether the `dev_*` methods are offered."""

    def fail(self, error: CacheonError) -> None:
        """Hear that a block could not be made durable."""


class Call:
    """One request being answered: the node, the connection's queue and the parameters."""

    __slots__ = ("chain", "hub", "node", "params", "send")

    def __init__(self, node: Node, params: list[Any], send: Send) -> None:
        self.node = node
        self.chain = node.chain
        self.hub = node.hub
        self.params = params
        self.send = send

    def get(self, index: int) -> Any:
        """Return a parameter, or None when it was not given."""
        return self.params[index] if index < len(self.params) else None

    def text(self, index: int) -> str:
        """Return a parameter that must be text."""
        value = self.get(index)
        if not isinstance(value, str):
            raise RpcError(faults.INVALID_PARAMS, f"Invalid params: parameter {index} must be text")
        return value

    def number(self, index: int) -> int:
        """Return a parameter that must be a non-negative integer."""
        value = self.get(index)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise RpcError(faults.INVALID_PARAMS, f"Invalid params: parameter {index} must be a number")
        return value


_BATCH_BYTES_LIMIT = 2**24
Method = Callable[[Call], Any]
_METHODS: dict[str, Method] = {}


def method(*names: str) -> Callable[[Method], Method]:
    """Register the decorated function under these names."""

    def register(function: Method) -> Method:
        for name in names:
            _METHODS[name] = function
        return function

    return register


def method_names(*, dev: bool) -> list[str]:
    """Return the offered names."""
    return sorted(name for name in _METHODS if dev or not name.startswith("dev_"))


def answer(node: Node, message: str | bytes, send: Send) -> str | None:
    """Return the answer to one websocket message as JSON; None when it held nothing but notifications."""
    try:
        request = json.loads(message, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return encode(_error(None, RpcError(faults.PARSE_ERROR, "Parse error")))
    if not isinstance(request, list) or not request:
        reply = _answer_one(node, request, send)
        return None if reply is None else encode(reply)
    replies: list[str] = []
    size = 0
    for item in request:
        reply = _too_large(item) if size > _BATCH_BYTES_LIMIT else _answer_one(node, item, send)
        if reply is not None:
            replies.append(encode(reply))
            size += len(replies[-1])
    return f"[{','.join(replies)}]" if replies else None


def encode(message: dict[str, Any]) -> str:
    """Return a message as JSON text."""
    return json.dumps(message)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _too_large(request: Any) -> dict[str, Any] | None:
    if isinstance(request, dict) and "id" not in request:
        return None
    identity = request.get("id") if isinstance(request, dict) else None
    return _error(identity, RpcError(faults.BATCH_TOO_LARGE, "The batch response was too large"))


def _answer_one(node: Node, request: Any, send: Send) -> dict[str, Any] | None:
    if not isinstance(request, dict) or not isinstance(request.get("method"), str):
        return _error(None, RpcError(faults.INVALID_REQUEST, "Invalid request"))
    reply = _carry_out(node, request, send)
    return reply if "id" in request else None


def _carry_out(node: Node, request: dict[str, Any], send: Send) -> dict[str, Any]:
    identity, name = request.get("id"), request["method"]
    params = request.get("params")
    try:
        function = _METHODS.get(name)
        if function is None or (name.startswith("dev_") and not node.dev_rpc):
            raise RpcError(faults.METHOD_NOT_FOUND, f"Method not found: {name}")
        if params is not None and not isinstance(params, list):
            raise RpcError(faults.INVALID_PARAMS, "Invalid params: a list is needed")
        return {"jsonrpc": "2.0", "id": identity, "result": function(Call(node, params or [], send))}
    except RpcError as error:
        return _error(identity, error)
    except CacheonError as error:
        node.fail(error)
        return _error(identity, RpcError(faults.SERVER_ERROR, str(error)))
    except StateDiscardedError as error:
        discarded = RpcError(4003, f"Client error: UnknownBlock: State already discarded for {error}")
        return _error(identity, discarded)
    except (ScaleError, ValueError, KeyError, TypeError, OverflowError) as error:
        # Malformed parameters surface as these from the codec; they are the caller's fault, not the node's.
        return _error(identity, RpcError(faults.INVALID_PARAMS, f"Invalid params: {error}"))


def _error(identity: Any, error: RpcError) -> dict[str, Any]:
    body: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.data is not None:
        body["data"] = error.data
    return {"jsonrpc": "2.0", "id": identity, "error": body}
