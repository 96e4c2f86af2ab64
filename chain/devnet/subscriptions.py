"""Subscriptions of one connection: heads, finalized heads and the fate of watched extrinsics.

Invariants
1. A subscription dies with its connection, belongs to it alone, and is one of at most `LIMIT` of it.
2. A watched extrinsic is told `ready` (or `future`), then `inBlock`, then `finalized` when the finality lag has
   passed, and nothing after a terminal status. A fork may take `inBlock` back with `retracted`.
3. New heads are those that lengthen the chain; blocks of a branch that is not longer yet are for `allHeads` only.
4. Messages of one connection leave in the order in which things happened, and after the answer that names the
   subscription.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from chain.devnet import faults
from chain.devnet.block import Block
from chain.devnet.extrinsics import Extrinsic
from chain.devnet.fault_plan import FaultPlan
from chain.devnet.faults import RpcError

Send = Callable[[dict[str, Any]], None]
NEW_HEAD = "chain_newHead"
ALL_HEAD = "chain_allHead"
FINALIZED_HEAD = "chain_finalizedHead"
LIMIT = 1_024
RUNTIME_VERSION = "state_runtimeVersion"
EXTRINSIC_UPDATE = "author_extrinsicUpdate"


class Subscription:
    """One server-side subscription; `send` queues a message on its connection.

    An injected fault may lose it at any notification: that one and all later ones are swallowed, and nobody is told.
    """

    __slots__ = ("_faults", "_lost", "_opened_by", "identity", "method", "send")

    def __init__(self, identity: str, method: str, send: Send, faults: FaultPlan, opened_by: str) -> None:
        self.identity = identity
        self.method = method
        self.send = send
        self._faults = faults
        self._opened_by = opened_by
        self._lost = False

    def push(self, result: Any) -> None:
        """Queue one notification."""
        self._lost = self._lost or self._faults.strike(self._opened_by, "lose_subscription") is not None
        if not self._lost:
            params = {"subscription": self.identity, "result": result}
            self.send({"jsonrpc": "2.0", "method": self.method, "params": params})


class Hub:
    """All subscriptions of the node, and the observer that feeds them."""

    def __init__(self, plan: FaultPlan) -> None:
        self._plan = plan
        self._numbers = itertools.count(1)
        self._open: dict[str, Subscription] = {}
        self._counts: dict[Send, int] = {}
        self._watched: dict[bytes, list[Subscription]] = {}
        self._unfinal: dict[bytes, list[Subscription]] = {}
        self._included: dict[Subscription, bytes] = {}

    def open(self, method: str, send: Send, *, opened_by: str) -> Subscription:
        """Start a subscription whose notifications carry `method`; raises `RpcError` for one too many.

        `opened_by` is the method that asked for it.
        """
        self.require_room(send)
        self._counts[send] = self._counts.get(send, 0) + 1
        subscription = Subscription(f"devnet{next(self._numbers)}", method, send, self._plan, opened_by)
        self._open[subscription.identity] = subscription
        return subscription

    def require_room(self, send: Send) -> None:
        """Raise `RpcError` when a connection has as many subscriptions as it may have."""
        if self._counts.get(send, 0) >= LIMIT:
            raise RpcError(faults.TOO_MANY_SUBSCRIPTIONS, f"Too many subscriptions: at most {LIMIT} per connection")

    def watch(self, extrinsic_hash: bytes, send: Send, *, opened_by: str) -> Subscription:
        """Start following an extrinsic."""
        subscription = self.open(EXTRINSIC_UPDATE, send, opened_by=opened_by)
        self._watched.setdefault(extrinsic_hash, []).append(subscription)
        return subscription

    def close(self, identity: str, send: Send) -> bool:
        """End a subscription of a connection and say whether it was open."""
        found = self._open.get(identity)
        if found is None or found.send is not send:
            return False
        del self._open[identity]
        self._counts[send] -= 1
        self._included.pop(found, None)
        for table in (self._watched, self._unfinal) if found.method == EXTRINSIC_UPDATE else ():
            _remove(table, lambda item: item is found)
        return True

    def drop(self, send: Send) -> None:
        """End all subscriptions of a connection."""
        self._open = {name: item for name, item in self._open.items() if item.send is not send}
        self._counts.pop(send, None)
        self._included = {item: name for item, name in self._included.items() if item.send is not send}
        for table in (self._watched, self._unfinal):
            _remove(table, lambda item: item.send is send)

    def on_block(self, block: Block) -> None:
        """Announce a new head."""
        self._announce((NEW_HEAD, ALL_HEAD), block)

    def on_runtime(self, version: dict[str, Any]) -> None:
        """Announce the runtime version that the head now has."""
        for subscription in list(self._open.values()):
            if subscription.method == RUNTIME_VERSION:
                subscription.push(version)

    def on_finalized(self, block: Block) -> None:
        """Announce a final block and the extrinsics it makes final."""
        self._announce((FINALIZED_HEAD,), block)
        for subscription in self._unfinal.pop(block.hash, ()):
            self._included.pop(subscription, None)
            self._tell(subscription, {"finalized": block.hash_hex})
            self.close(subscription.identity, subscription.send)

    def on_side_block(self, block: Block) -> None:
        """Announce a block that is not the head to those who want to hear of all."""
        self._announce((ALL_HEAD,), block)

    def on_retracted(self, block: Block) -> None:
        """Tell the watchers of a block's extrinsics that they wait again."""
        for subscription in self._unfinal.pop(block.hash, ()):
            self._watched.setdefault(self._included.pop(subscription), []).append(subscription)
            self._tell(subscription, {"retracted": block.hash_hex})

    def on_included(self, extrinsic: Extrinsic, block: Block) -> None:
        """Tell watchers that their extrinsic is in a block."""
        for subscription in self._watched.pop(extrinsic.hash, ()):
            self._tell(subscription, {"inBlock": block.hash_hex})
            self._unfinal.setdefault(block.hash, []).append(subscription)
            self._included[subscription] = extrinsic.hash

    def on_dropped(self, extrinsic: Extrinsic, status: str) -> None:
        """Tell watchers that their extrinsic will not be included."""
        for subscription in self._watched.pop(extrinsic.hash, ()):
            self._tell(subscription, {status: None} if status == "usurped" else status)
            self.close(subscription.identity, subscription.send)

    def _announce(self, methods: tuple[str, ...], block: Block) -> None:
        for subscription in list(self._open.values()):
            if subscription.method in methods:
                subscription.push(block.header.to_json())

    def _tell(self, subscription: Subscription, status: Any) -> None:
        if subscription.identity in self._open:
            subscription.push(status)


def _remove(table: dict[bytes, list[Subscription]], gone: Callable[[Subscription], bool]) -> None:
    for key, items in list(table.items()):
        left = [item for item in items if not gone(item)]
        if left:
            table[key] = left
        else:
            del table[key]
