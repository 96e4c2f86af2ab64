"""A devnet in this process, a client of it, and a wire between them that can be cut."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from chain.blocks import BlockRef
from chain.client import ChainClient
from chain.devnet.config import DevnetConfig
from chain.devnet.genesis_document import Genesis, NeuronSpec, OwnerSpec
from chain.devnet.server import Devnet
from chain.publication import PublicationRecord, journal_moved, record_digest
from chain.signer import Signer
from chain.wallet import address_of_seed, signer_of_seed

NETUID = 2


class Crash(BaseException):
    """The process dies here; nothing but the test catches it."""


class MemoryJournal:
    """A publication journal in memory that can die before an append."""

    def __init__(self) -> None:
        self._records: list[PublicationRecord] = []
        self.crash_at: int | None = None  # die instead of appending the record of this index

    async def records(self) -> tuple[PublicationRecord, ...]:
        """See `PublicationJournal`."""
        return tuple(self._records)

    async def head(self) -> PublicationRecord | None:
        """See `PublicationJournal`."""
        return self._records[-1] if self._records else None

    async def append(self, record: PublicationRecord, expected_head: str | None) -> None:
        """See `PublicationJournal`."""
        head = await self.head()
        if (record_digest(head) if head else None) != expected_head:
            raise journal_moved()
        if self.crash_at == len(self._records):
            self.crash_at = None
            raise Crash
        self._records.append(record)

    @property
    def statuses(self) -> list[str]:
        """The statuses so far, without repetitions."""
        found = [record.status for record in self._records]
        return [status for index, status in enumerate(found) if index == 0 or found[index - 1] != status]


class Wire:
    """A TCP relay in front of the node: cut connections, or let requests through and swallow the answers."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._port = 0
        self.swallow_answers = False

    async def start(self) -> str:
        """Listen, on the same port as before if there was one, and return the endpoint."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]
        return f"ws://127.0.0.1:{self._port}"

    def cut(self) -> None:
        """Drop every connection now."""
        for writer in self._open:
            writer.transport.abort()

    async def stop(self) -> None:
        """Close everything."""
        if self._server is not None:
            self._server.close()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection(*self._target)
        self._open |= {writer, up_writer}
        for source, sink, is_answer in ((reader, up_writer, False), (up_reader, writer, True)):
            task = asyncio.create_task(self._pump(source, sink, is_answer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, is_answer: bool) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                if not (is_answer and self.swallow_answers):
                    sink.write(data)
                    await sink.drain()
        self._open.discard(sink)
        sink.transport.abort()


class World:
    """A manual devnet: blocks come when the test says so, and finality trails by nothing."""

    def __init__(self, node: Devnet, client: ChainClient, new_client: Callable[..., ChainClient]) -> None:
        self.node = node
        self.client = client
        self.new_client = new_client
        self.netuid = NETUID
        self.validator: Signer = signer_of_seed("//Validator")
        self.journal = MemoryJournal()

    def hotkey(self, name: str) -> str:
        """The address of the key `//name`."""
        return address_of_seed(f"//{name}")

    def signer(self, name: str) -> Signer:
        """The key `//name`."""
        return signer_of_seed(f"//{name}")

    def blocks(self, count: int = 1) -> BlockRef:
        """Make blocks and return the head."""
        for _ in range(count):
            self.node.produce_block()
        head = self.node.chain.head
        return BlockRef(head.number, head.hash_hex)

    def blocks_until(self, height: int) -> BlockRef:
        """Make blocks up to and with `height`."""
        return self.blocks(height - self.node.chain.head.number)

    async def rpc(self, method: str, *params: Any) -> Any:
        """Ask the node directly."""
        return await (await self.client._connected()).request(method, params)

    async def set_item(self, name: str, keys: list[Any], value: Any) -> None:
        """Write one storage item, in a block of its own."""
        pallet, item = name.split(".")
        await self.rpc("dev_setItem", pallet, item, keys, value)

    async def extrinsics_of(self, signer: Signer) -> int:
        """How many extrinsics of `signer` the chain includes so far."""
        return await self.client.account_nonce(signer.ss58_address, await self.client.head())


def genesis_of(**changes: Any) -> Genesis:
    """A subnet with one validator (uid 0) and three miners (uids 1..3)."""
    neurons = tuple(
        NeuronSpec(address_of_seed(f"//{name}"), address_of_seed(f"//{name}//cold"), permit=name == "Validator")
        for name in ("Validator", "Ann", "Bob", "Cid")
    )
    owner = OwnerSpec(address_of_seed("//Owner"), address_of_seed("//Owner//cold"))
    fields: dict[str, Any] = {"netuid": NETUID, "tempo": 20, "commit_reveal": False, "weights_rate_limit": 2}
    fields["fixed_permits"] = True
    return Genesis(**(fields | {"owner": owner, "neurons": neurons} | changes))


@pytest.fixture(name="runtime_cache", scope="session")
def _runtime_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runtime-cache")


@pytest.fixture(name="make_world")
async def _make_world(runtime_cache: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[..., Any]]:
    monkeypatch.setenv("BITTENSOR_RUNTIME_CACHE_DIR", str(runtime_cache))
    async with contextlib.AsyncExitStack() as stack:

        async def make(*, finality_lag: int = 0, **changes: Any) -> World:
            genesis = genesis_of(**changes)
            config = DevnetConfig(port=0, manual=True, genesis=genesis, finality_lag=finality_lag)
            node = await stack.enter_async_context(Devnet(config))

            def new_client(endpoint: str | None = None, **options: Any) -> ChainClient:
                defaults: dict[str, Any] = {"rpc_per_second": 100_000, "runtime_cache_dir": runtime_cache}
                client = ChainClient([endpoint or node.url], **(defaults | options))
                stack.push_async_callback(client.close)
                return client

            world = World(node, new_client(), new_client)
            world.blocks()
            return world

        yield make


@pytest.fixture(name="world")
async def _world(make_world: Callable[..., Any]) -> World:
    made: World = await make_world()
    return made


@pytest.fixture(name="make_wire")
async def _make_wire() -> AsyncIterator[Callable[[str], Any]]:
    wires: list[Wire] = []

    async def make(url: str) -> tuple[Wire, str]:
        host, port = url.removeprefix("ws://").split(":")
        wire = Wire(host, int(port))
        wires.append(wire)
        return wire, await wire.start()

    yield make
    for wire in wires:
        await wire.stop()


@pytest.fixture(name="crash")
def _crash() -> type[BaseException]:
    return Crash
