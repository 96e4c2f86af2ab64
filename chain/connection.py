"""One endpoint in use: its session, its codecs, and which blocks it is known to have on its chain.

Invariants
1. A connection is made only to an endpoint that names the genesis of this client's chain, and, where a finalized block
   is known already, the same hash at that height.
2. State is taken from an endpoint only for blocks that it holds on its own best chain: `require_canonical` asks it once
   per block, and everything that a canonical block descends from is canonical as well.
3. The SDK supplies codec and signing, nothing else; it is imported when first used, and its version is pinned by the
   distribution.
"""

from __future__ import annotations

import importlib
import re
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any

from chain.blocks import BlockRef
from chain.runtimes import Runtimes
from chain.session import Feed, Gate, RpcSession
from chain.transport_errors import ForeignChainError, SessionLostError, host_of
from config.errors import NetworkError

_HASH = re.compile("0x[0-9a-f]{64}")
_CANONICAL_KEPT = 16_384


class ChainPin:
    """What all endpoints of one client must agree on: the genesis, and the newest block known to be final."""

    def __init__(self, genesis: str = "", final: BlockRef | None = None) -> None:
        self.genesis = genesis
        self.final = final


class Connection:
    """One open connection; make one with `open`."""

    def __init__(self, session: RpcSession, runtimes: Runtimes) -> None:
        self.session = session
        self._runtimes = runtimes
        self._canonical: OrderedDict[str, None] = OrderedDict()
        self.names_by_hash = False  # whether this endpoint was seen to name a block by the hash of its header

    @classmethod
    async def open(
        cls, url: str, gate: Gate, runtimes: Runtimes, pin: ChainPin, *, seconds: float, may_lag: bool
    ) -> Connection:
        """Dial `url` and look at its chain.

        Raises `ForeignChainError`, `SessionLostError`, `ThrottledError`, and `NetworkError` (CHAIN_ENDPOINT_LAGS unless
        it `may_lag`, CHAIN_FORKED).
        """
        session = await RpcSession.open(url, gate, seconds)
        try:
            connection = cls(session, runtimes)
            await connection._check_chain(pin, may_lag)
        except BaseException:
            await session.abort()
            raise
        return connection

    @property
    def endpoint(self) -> str:
        """The endpoint's address."""
        return self.session.url

    async def request(self, method: str, params: Sequence[object] = ()) -> Any:
        """Send one JSON-RPC request and return its result; raises what `RpcSession.request` raises."""
        return await self.session.request(method, params)

    async def subscribe_finalized(self) -> Feed:
        """Start a subscription of finalized heads; the present one is announced at once."""
        return await self.session.subscribe("chain_subscribeFinalizedHeads", "chain_unsubscribeFinalizedHeads")

    async def codec(self, block_hash: str | None) -> Any:
        """Return the codec of the runtime that wrote `block_hash`, or (None) that will execute the next block."""
        if block_hash is None:
            return await self._runtimes.current(self)
        return await self._runtimes.at(self, block_hash)

    async def genesis_hash(self) -> str:
        """Return the hash of block 0."""
        return str(await self.request("chain_getBlockHash", [0]))

    async def hashes(self, numbers: Sequence[int]) -> list[str | None]:
        """Return the hashes at several heights of this endpoint's best chain; None where it has no block."""
        found = await self.request("chain_getBlockHash", [list(numbers)])
        if not isinstance(found, list) or len(found) != len(numbers):
            raise ValueError("an answer about block hashes has another length than the question")
        return [None if one is None else str(one) for one in found]

    def add_canonical(self, hashes: Iterable[str]) -> None:
        """Remember blocks that this endpoint holds on its best chain."""
        for name in hashes:
            self._canonical[name] = None
        while len(self._canonical) > _CANONICAL_KEPT:
            self._canonical.popitem(last=False)

    def add_parent(self, child: str, parent: str) -> None:
        """Remember a link between blocks."""
        if child in self._canonical:
            self.add_canonical([parent])

    def has_canonical(self, block: BlockRef) -> bool:
        """Say whether this endpoint is known to hold `block` on its best chain."""
        return block.hash in self._canonical

    async def require_canonical(self, block: BlockRef) -> None:
        """Check that this endpoint holds `block` on its best chain.

        Raises `NetworkError`: CHAIN_BLOCK_UNKNOWN when it has no block of that height yet, CHAIN_FORKED.
        """
        if block.hash in self._canonical:
            return
        found = await self.request("chain_getBlockHash", [block.number])
        if found is None:
            raise NetworkError("CHAIN_BLOCK_UNKNOWN", f"The endpoint has no block {block.number} yet.")
        if found != block.hash:
            raise forked(self.endpoint, block, str(found))
        self.add_canonical([block.hash])

    async def sign(
        self, call: Any, signer: Any, *, nonce: int, period: int, current: int, codec: Any = None
    ) -> tuple[bytes, str]:
        """Sign a composed call for the mortal era of `period` blocks that holds block `current`.

        `codec` is the one that composed it (default: that of the next block). Returns the extrinsic's bytes and 0x-hex
        hash. Nothing is submitted and no nonce is remembered.
        """
        codec = codec or await self.codec(None)
        extrinsics = importlib.import_module("bittensor._transport.extrinsics")
        era = {"period": period, "current": current}
        signed = await extrinsics.create_signed_extrinsic(
            codec, call, signer, era=era, nonce=nonce, genesis_hash=await self.genesis_hash(),
            era_block_hash=str(await self.request("chain_getBlockHash", [int(codec.era_birth(era, current))])),
        )
        return bytes(signed.data), str(signed.extrinsic_hash)

    async def close(self) -> None:
        """Close the connection politely; never raises and never waits long."""
        await self.session.close()

    async def _check_chain(self, pin: ChainPin, may_lag: bool) -> None:
        known = pin.final
        if known is None:
            genesis, final = await self.request("chain_getBlockHash", [0]), None
        else:
            genesis, final = await self.hashes([0, known.number])
        if not isinstance(genesis, str) or not _HASH.fullmatch(genesis):
            raise SessionLostError(f"{host_of(self.endpoint)} does not name its genesis block")
        if pin.genesis and genesis != pin.genesis:
            raise ForeignChainError(
                f"{host_of(self.endpoint)} has genesis {genesis}, and this process is bound to {pin.genesis}"
            )
        pin.genesis = genesis
        if known is None:
            return
        if final is None:
            if not may_lag:
                raise lags(self.endpoint, known)
        elif final != known.hash:
            raise forked(self.endpoint, known, final)
        else:
            self.add_canonical([final])


def forked(url: str, block: BlockRef, found: str) -> NetworkError:
    """Return the error for an endpoint that has another block at a height."""
    return NetworkError(
        "CHAIN_FORKED",
        f"{host_of(url)} has block {found} at height {block.number}, where {block.hash} was read before.",
        hint="The endpoint is on a fork: if it lasts, take it out of `chain.endpoints`. A local chain that was put back"
        " to an older state needs its own chain file again, or a fresh `state_dir`.",
    )


def lags(url: str, block: BlockRef) -> NetworkError:
    """Return the error for an endpoint that does not have a block which is final already."""
    return NetworkError(
        "CHAIN_ENDPOINT_LAGS",
        f"{host_of(url)} does not have block {block.number} yet, which is final already.",
        hint="The endpoint is still catching up; another one is used as long as there is one.",
    )
