"""Subscriptions of one connection: heads, finalized heads and the fate of watched extrinsics.

Invariants
1. A subscription dies with its connection.
2. A watched extrinsic is told `ready` (or `future`), then `inBlock`, then `finalized` when the finality lag has
   passed, and nothing after a terminal status.
3. Messages of one connection leave in the order in which things happened, and after the answer that names the
   subscription.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from chain.devnet.block import Block
from chain.devnet.extrinsics import Extrinsic

Send = Callable[[dict[str, Any]], None]
NEW_HEAD = "chain_newHead"
ALL_HEAD = "chain_allHead"
FINALIZED_HEAD = "chain_finalizedHead"
RUNTIME_VERSION = "state_runtimeVersion"
EXTRINSIC_UPDATE = "author_extrinsicUpdate"


class Subscription:
    """One server-side subscription; `send` queues a message on its connection."""

    __slots__ = ("identity", "method", "send")

    def __init__(self, identity: str, method: str, send: Send) -> None:
        self.identity = identity
        self.method = method
        self.send = send

    def push(self, result: Any) -> None:
        """Queue one notification."""
        params = {"subscription": self.identity, "result": result}
        self.send({"jsonrpc": "2.0", "method": self.method, "params": params})


class Hub:
    """All subscriptions of the node, and the observer that feeds them."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._open: dict[str, Subscription] = {}
        self._watched: dict[bytes, list[Subscription]] = {}
        self._unfinal: dict[bytes, list[Subscription]] = {}

    def open(self, method: str, send: Send) -> Subscription:
        """Start a subscription whose notifications carry `method`."""
        subscription = Subscription(f"devnet{next(self._numbers)}", method, send)
        self._open[subscription.identity] = subscription
        return subscription

    def watch(self, extrinsic_hash: bytes, send: Send) -> Subscription:
        """Start following an extrinsic."""
        subscription = self.open(EXTRINSIC_UPDATE, send)
        self._watched.setdefault(extrinsic_hash, []).append(subscription)
        return subscription

    def close(self, identity: str) -> bool:
        """End a subscription and say whether it was open."""
        return self._open.pop(identity, None) is not None

    def drop(self, send: Send) -> None:
        """End all subscriptions of a connection."""
        self._open = {name: item for name, item in self._open.items() if item.send is not send}
        for table in (self._watched, self._unfinal):
            for key, items in list(table.items()):
                left = [item for item in items if item.send is not send]
                if left:
                    table[key] = left
                else:
                    del table[key]

    def on_block(self, block: Block) -> None:
        """Announce a new head."""
        self._announce((NEW_HEAD, ALL_HEAD), block)

    def on_finalized(self, block: Block) -> None:
        """Announce a final block and the extrinsics it makes final."""
        self._announce((FINALIZED_HEAD,), block)
        for subscription in self._unfinal.pop(block.hash, ()):
            self._tell(subscription, {"finalized": block.hash_hex})
            self.close(subscription.identity)

    def on_included(self, extrinsic: Extrinsic, block: Block) -> None:
        """Tell watchers that their extrinsic is in a block."""
        for subscription in self._watched.pop(extrinsic.hash, ()):
            self._tell(subscription, {"inBlock": block.hash_hex})
            self._unfinal.setdefault(block.hash, []).append(subscription)

    def on_dropped(self, extrinsic: Extrinsic, status: str) -> None:
        """Tell watchers that their extrinsic will not be included."""
        for subscription in self._watched.pop(extrinsic.hash, ()):
            self._tell(subscription, {status: None} if status == "usurped" else status)
            self.close(subscription.identity)

    def _announce(self, methods: tuple[str, ...], block: Block) -> None:
        for subscription in list(self._open.values()):
            if subscription.method in methods:
                subscription.push(block.header.to_json())

    def _tell(self, subscription: Subscription, status: Any) -> None:
        if subscription.identity in self._open:
            subscription.push(status)
