"""JSON-RPC 2.0: requests, batches and error answers.

Invariants
1. Every request gets exactly one answer with its id; a fault in a method becomes an error object. A request without
   an id is a notification: it is obeyed and not answered.
2. Methods register themselves by name in a table, so a name is defined once; `dev_*` names can be switched off.
3. An injected fault strikes where the method would run, so a faulted request in a batch spares the others.
4. The answer to a batch is bounded: requests beyond the limit are not carried out and say so.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from chain.devnet import faults
from chain.devnet.chain import Chain
from chain.devnet.fault_plan import FaultPlan, Kind
from chain.devnet.faults import RpcError, SeveredError
from chain.devnet.history import StateDiscardedError
from chain.devnet.scale import ScaleError
from chain.devnet.subscriptions import Hub, Send, Subscription
from config.errors import CacheonError


class Node(Protocol):
    """What RPC methods need of the running node."""

    chain: Chain
    hub: Hub
    faults: FaultPlan

    @property
    def dev_rpc(self) -> bool:
        """Whether the `dev_*` methods are offered."""

    def fail(self, error: CacheonError) -> None:
        """Hear that a block could not be made durable."""


class Call:
    """One request being answered: the node, the method, the parameters and the connection's queue."""

    __slots__ = ("chain", "hub", "name", "node", "params", "send")

    def __init__(self, node: Node, name: str, params: list[Any], send: Send) -> None:
        self.node = node
        self.name = name
        self.chain = node.chain
        self.hub = node.hub
        self.params = params
        self.send = send

    def open(self, notification: str) -> Subscription:
        """Start a subscription whose notifications carry this name; raises `RpcError` for one too many."""
        return self.hub.open(notification, self.send, opened_by=self.name)

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


class Answer(msgspec.Struct, frozen=True):
    """What one message is answered: JSON, or None when it held nothing but notifications.

    `delay`: seconds for which an injected fault holds it back.
    """

    text: str | None = None
    delay: float = 0.0


_BATCH_BYTES_LIMIT = 2**24
Method = Callable[[Call], Any]
_METHODS: dict[str, Method] = {}
_ENDINGS: tuple[Kind, ...] = ("drop", "drop_after", "half_open", "rpc_error", "discarded_state")


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


def answer(node: Node, message: str | bytes, send: Send) -> Answer:
    """Carry out one websocket message and return its answer; raises `SeveredError` by an injected fault."""
    try:
        request = json.loads(message, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return Answer(encode(_error(None, RpcError(faults.PARSE_ERROR, "Parse error"))))
    if not isinstance(request, list) or not request:
        reply = _answer_one(node, request, send)
        return Answer(None if reply is None else encode(reply), _delay(node, request))
    replies: list[str] = []
    size, delay = 0, 0.0
    for item in request:
        reply = _too_large(item) if size > _BATCH_BYTES_LIMIT else _answer_one(node, item, send)
        delay += _delay(node, item)
        if reply is not None:
            replies.append(encode(reply))
            size += len(replies[-1])
    return Answer(f"[{','.join(replies)}]" if replies else None, delay)


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
        result = _run(function, Call(node, name, params or [], send))
        return {"jsonrpc": "2.0", "id": identity, "result": result}
    except RpcError as error:
        return _error(identity, error)
    except CacheonError as error:
        node.fail(error)
        return _error(identity, RpcError(faults.SERVER_ERROR, str(error)))
    except StateDiscardedError as error:
        return _error(identity, discarded_state(error))
    except (ScaleError, ValueError, KeyError, TypeError, OverflowError) as error:
        # Malformed parameters surface as these from the codec; they are the caller's fault, not the node's.
        return _error(identity, RpcError(faults.INVALID_PARAMS, f"Invalid params: {error}"))


def discarded_state(block: object) -> RpcError:
    """Return the refusal to read the state of a block that was pruned."""
    return RpcError(faults.UNKNOWN_BLOCK, f"Client error: UnknownBlock: State already discarded for {block}")


def _run(function: Method, call: Call) -> Any:
    """Carry out a method, or fail it as an injected fault says."""
    strike = call.node.faults.strike(call.name, *_ENDINGS)
    if strike is None:
        return function(call)
    fault = strike.fault
    if fault.kind == "rpc_error":
        raise RpcError(fault.code, fault.message, {"retry_after": fault.seconds} if fault.seconds else None)
    if fault.kind == "discarded_state":
        raise discarded_state(next((text for text in reversed(call.params) if isinstance(text, str)), "the head"))
    if fault.kind == "drop_after":
        function(call)
    raise SeveredError(half_open=fault.kind == "half_open")


def _delay(node: Node, request: Any) -> float:
    strike = node.faults.strike(str(request.get("method") or "-"), "delay") if isinstance(request, dict) else None
    return 0.0 if strike is None else strike.fault.seconds


def _error(identity: Any, error: RpcError) -> dict[str, Any]:
    body: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.data is not None:
        body["data"] = error.data
    return {"jsonrpc": "2.0", "id": identity, "error": body}
