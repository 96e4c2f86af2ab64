"""A devnet whose blocks the test makes, with the publication service of a node on it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec

from chain.abi import Storage
from chain.blocks import BlockRef
from chain.client import ChainClient
from chain.devnet.config import DevnetConfig
from chain.devnet.genesis_document import Genesis, NeuronSpec, OwnerSpec
from chain.devnet.server import Devnet
from chain.publication_record import PublicationRecord
from chain.wallet import address_of_seed, signer_of_seed
from config.settings import ChainSettings, PublicationSettings, Settings
from config.target_catalog import load_catalog
from node.services.context import NodeContext
from node.services.heads import HeadWatch
from node.services.publication import PublicationService
from node.services.receipts import ReceiptBook
from node.store.crown_rows import crown_state, record_settlement
from node.store.engine import Store
from scoring.settle import Candidate, FinalizedOrder, incumbents, plan
from tests.node.support import record, submission
from tests.scoring.support import make_arena

VALIDATOR, ANN, BOB, SINK = (address_of_seed(f"//{name}") for name in ("Validator", "Ann", "Bob", "Sink"))
UIDS = {VALIDATOR: 0, ANN: 1, BOB: 2, SINK: 3}


class World:
    """A devnet whose blocks the test makes, and the publication service on a store."""

    def __init__(self, store: Store, node: Devnet, client: ChainClient) -> None:
        settings = Settings(
            profile="devnet", chain=ChainSettings(netuid=2), publication=PublicationSettings(burn_hotkey=SINK)
        )
        self.store, self.node, self.client = store, node, client
        self.context = NodeContext(
            settings, store.layout, store, make_arena(), load_catalog(), "worker", Path("/arena.toml")
        )
        self.receipts = ReceiptBook.open(store.layout)
        self.service = self.restarted()

    def restarted(self) -> PublicationService:
        """Return the service as a new process would have it."""
        return PublicationService(self.context, self.client, signer_of_seed("//Validator"), HeadWatch(), self.receipts)

    def block(self, count: int = 1) -> BlockRef:
        """Make blocks."""
        for _ in range(count):
            self.node.produce_block()
        head = self.node.chain.head
        return BlockRef(head.number, head.hash_hex)

    async def step(self, blocks: int = 1) -> PublicationRecord | None:
        """Make blocks, one step after each."""
        result = None
        for _ in range(blocks):
            result = await self.service.step_once(self.block())
        return result

    async def crown(self, number: int, hotkey: str, target: str) -> None:
        """Crown the `number`-th submission."""
        one = submission(number, hotkey=hotkey)
        one = msgspec.structs.replace(one, block=0)
        await record(self.store, one)
        state = await self.store.read(crown_state)
        candidate = Candidate(
            submission_id=one.submission_id,
            order=FinalizedOrder(*one.order),
            target_id=target,
            members=(target,),
            tree_digest="",
            speedup_ppm=1_100_000,
            measured_against=incumbents(state, (target,)),
        )
        await self.store.write(record_settlement, plan(state, [candidate]).events, {one.submission_id: "00" * 32})

    async def row(self) -> dict[int, int]:
        """Return the validator's weights row on chain."""
        (row,) = await self.client.read(await self.client.head(), [(Storage.WEIGHTS, [2, 0])])
        return {int(uid): int(value) for uid, value in row}

    def configure(self, **publication: Any) -> None:
        """Change settings of the publication and restart the service."""
        changed = msgspec.structs.replace(self.context.settings.publication, **publication)
        object.__setattr__(
            self.context, "settings", msgspec.structs.replace(self.context.settings, publication=changed)
        )
        self.service = self.restarted()

    async def ask(self, method: str, *params: Any) -> Any:
        """Ask the devnet directly."""
        return await self.client._call("preparing a test", lambda connection: connection.request(method, params))

    async def extrinsics(self) -> int:
        """Return how many extrinsics of the validator the chain has included."""
        return await self.client.account_nonce(VALIDATOR, await self.client.head())


@contextlib.asynccontextmanager
async def weights_world(store: Store, cache: Path, **changes: Any) -> AsyncIterator[World]:
    """Open a world with plain weights and a tempo of 10 blocks, or with `changes` of the genesis."""
    neurons = tuple(
        NeuronSpec(hotkey, address_of_seed(f"//cold{uid}"), permit=uid == 0) for hotkey, uid in UIDS.items()
    )
    owner = OwnerSpec(address_of_seed("//Owner"), address_of_seed("//Owner//cold"))
    fields: dict[str, Any] = {"tempo": 10, "commit_reveal": False, "weights_rate_limit": 2, "fixed_permits": True}
    genesis = Genesis(netuid=2, owner=owner, neurons=neurons, **(fields | changes))
    async with contextlib.AsyncExitStack() as stack:
        node = await stack.enter_async_context(Devnet(DevnetConfig(port=0, manual=True, genesis=genesis)))
        client = ChainClient([node.url], rpc_per_second=100_000, runtime_cache_dir=cache)
        await stack.enter_async_context(client)
        made = World(store, node, client)
        made.block()
        yield made
