"""The pool of extrinsics that wait for a block.

Invariants
1. An account's extrinsics leave in nonce order; those after a gap wait until the gap is filled.
2. For one account and nonce only the extrinsic with the highest tip stays.
3. The pool is memory only: a restart loses it, as the protocol allows.
4. Bytes that were found invalid or were included are banned for a while: they are refused unread when they come again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator

from chain.devnet.extrinsics import Extrinsic
from chain.devnet.faults import POOL_ALREADY_IMPORTED, POOL_BANNED, POOL_DROPPED, POOL_LOW_PRIORITY, PoolError

_BANS_LIMIT = 4_096
NonceOf = Callable[[bytes], int]


class Pool:
    """Waiting extrinsics by account and nonce; `limit` bounds their number."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._by_account: dict[bytes, dict[int, Extrinsic]] = {}
        self._hashes: set[bytes] = set()
        self._deaths: dict[bytes, int] = {}
        self._bans: OrderedDict[bytes, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._hashes)

    def __iter__(self) -> Iterator[Extrinsic]:
        for waiting in self._by_account.values():
            yield from waiting.values()

    def ban(self, hashes: Iterable[bytes], until_ms: int) -> None:
        """Refuse these extrinsics until a time, in milliseconds since the Unix epoch."""
        for name in hashes:
            self._bans[name] = until_ms
            self._bans.move_to_end(name)
        while len(self._bans) > _BANS_LIMIT:
            self._bans.popitem(last=False)

    def check_known(self, extrinsic_hash: bytes, now_ms: int) -> None:
        """Raise `PoolError` for bytes that are banned or in the pool; called before anything else is looked at."""
        if self._bans.get(extrinsic_hash, now_ms) > now_ms:
            raise PoolError(POOL_BANNED, "Transaction is temporarily banned")
        if extrinsic_hash in self._hashes:
            raise PoolError(POOL_ALREADY_IMPORTED, "Transaction Already Imported")

    def check(self, extrinsic: Extrinsic) -> Extrinsic | None:
        """Raise `PoolError` if `extrinsic` cannot enter; return the one it would replace."""
        rival = self._by_account.get(extrinsic.signer, {}).get(extrinsic.nonce)
        if rival is not None and rival.tip >= extrinsic.tip:
            raise PoolError(
                POOL_LOW_PRIORITY,
                f"Priority is too low: ({rival.tip} vs {extrinsic.tip})",
                "The transaction has too low priority to replace another transaction already in the pool.",
            )
        if rival is None and len(self._hashes) >= self._limit:
            raise PoolError(
                POOL_DROPPED, "Immediately Dropped", "The transaction couldn't enter the pool because of the limit"
            )
        return rival

    def add(self, extrinsic: Extrinsic, death: int | None) -> None:
        """Take a checked extrinsic; from block `death` on it is too old."""
        waiting = self._by_account.setdefault(extrinsic.signer, {})
        rival = waiting.pop(extrinsic.nonce, None)
        if rival is not None:
            self._forget(rival)
        waiting[extrinsic.nonce] = extrinsic
        self._hashes.add(extrinsic.hash)
        if death is not None:
            self._deaths[extrinsic.hash] = death

    def remove(self, extrinsic: Extrinsic) -> None:
        """Forget an extrinsic that was included or became invalid."""
        waiting = self._by_account.get(extrinsic.signer, {})
        if waiting.get(extrinsic.nonce) is extrinsic:
            del waiting[extrinsic.nonce]
            self._forget(extrinsic)
            if not waiting:
                del self._by_account[extrinsic.signer]

    def expired(self, block: int) -> list[Extrinsic]:
        """Return the extrinsics that are too old for `block`."""
        if not self._deaths:
            return []
        return [extrinsic for extrinsic in self if self._deaths.get(extrinsic.hash, block + 1) <= block]

    def _forget(self, extrinsic: Extrinsic) -> None:
        self._hashes.discard(extrinsic.hash)
        self._deaths.pop(extrinsic.hash, None)

    def next_nonce(self, account: bytes, stored: int) -> int:
        """Return the first nonce not taken, given the account's stored one."""
        waiting = self._by_account.get(account, {})
        while stored in waiting:
            stored += 1
        return stored

    def ready(self, nonce_of: NonceOf) -> list[Extrinsic]:
        """Return the extrinsics that can be included now, each account's in nonce order."""
        found: list[Extrinsic] = []
        for account, waiting in self._by_account.items():
            nonce = nonce_of(account)
            while nonce in waiting:
                found.append(waiting[nonce])
                nonce += 1
        return found
