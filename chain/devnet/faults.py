"""Refusals that travel inside the node and leave it as protocol answers.

Invariants
1. A `DispatchError` fails one call: it is included in a block and undone.
2. An `InvalidTransactionError` or `PoolError` refuses an extrinsic at the door, or drops it before inclusion.
3. An `RpcError` becomes the `error` object of one JSON-RPC answer; it never ends a connection.
4. A `SeveredError` ends a connection without an answer; only an injected fault raises it.
"""

from __future__ import annotations

from enum import StrEnum

METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
INVALID_REQUEST = -32600
PARSE_ERROR = -32700
SERVER_ERROR = -32000
TOO_MANY_SUBSCRIPTIONS = -32006
BATCH_TOO_LARGE = -32011
TOO_MANY_KEYS = 4002
UNKNOWN_BLOCK = 4003
POOL_INVALID = 1010
POOL_BANNED = 1012
POOL_ALREADY_IMPORTED = 1013
POOL_LOW_PRIORITY = 1014
POOL_DROPPED = 1016
UNDECODABLE_EXTRINSIC = 1002


class DispatchError(Exception):
    """A module error: the name of a pallet and of one of its errors in the metadata."""

    def __init__(self, pallet: str, name: str) -> None:
        super().__init__(f"{pallet}.{name}")
        self.pallet = pallet
        self.name = name


class RpcError(Exception):
    """One JSON-RPC error answer."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class SeveredError(Exception):
    """An injected fault ends this connection; `half_open` leaves its socket open and dead."""

    def __init__(self, *, half_open: bool) -> None:
        super().__init__("the connection is severed")
        self.half_open = half_open


class PoolError(RpcError):
    """An extrinsic the pool does not take."""


class Invalidity(StrEnum):
    """Why a transaction is invalid, in the words of the protocol."""

    STALE = "Transaction is outdated"
    FUTURE = "Transaction will be valid in the future"
    BAD_PROOF = "Transaction has a bad signature"
    ANCIENT_BIRTH_BLOCK = "Transaction has an ancient birth block"
    PAYMENT = "Inability to pay some fees (e.g. account balance too low)"
    CALL = "Transaction call is not expected"


class InvalidTransactionError(PoolError):
    """A transaction that cannot be included as it is."""

    def __init__(self, reason: Invalidity) -> None:
        super().__init__(POOL_INVALID, "Invalid Transaction", reason.value)
        self.reason = reason
