"""Whatever an endpoint sends, only errors of this project leave the client, and nothing is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve

from chain.abi import Storage
from chain.blocks import BlockRef
from chain.client import ChainClient
from config.errors import CacheonError

GENESIS = "0x" + "ab" * 32
BLOCK = BlockRef(7, "0x" + "cd" * 32)
ROOTS = dict.fromkeys(("parentHash", "stateRoot", "extrinsicsRoot"), GENESIS)
HEADER: dict[str, Any] = {"number": "0x7", "digest": {"logs": []}, **ROOTS}


class Babbler:
    """Answers as a seeded generator says: near misses of the protocol, wrong types, and noise."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    async def serve(self, connection: ServerConnection) -> None:
        """Answer until the client leaves."""
        async for message in connection:
            for frame in self.answers(json.loads(message)):
                await connection.send(frame)

    def answers(self, request: dict[str, Any]) -> list[str | bytes]:
        """Return what to send for one request; often an answer, often followed by something nobody asked for."""
        draw = self._random
        if request["method"] == "chain_getBlockHash" and draw.random() < 0.8:
            asked = request["params"][0]
            names = [BLOCK.hash if number else GENESIS for number in (asked if isinstance(asked, list) else [asked])]
            return [json.dumps({"id": request["id"], "result": names if isinstance(asked, list) else names[0]})]
        kind = draw.randrange(8)
        if kind == 0:
            return [draw.randbytes(draw.randrange(40))]
        if kind == 1:
            return [json.dumps(self._value(3))]
        if kind == 2:
            return [json.dumps({"id": request["id"], "error": self._value(2)})]
        if kind == 3:
            return [json.dumps({"id": self._value(1), "result": self._value(2), "method": self._value(1)})]
        if kind == 4:
            return [json.dumps({"params": {"subscription": self._value(1), "result": self._value(2)}}),
                    json.dumps({"id": request["id"], "result": self._value(3)})]
        if kind == 5:
            return [json.dumps([{"id": request["id"], "result": self._value(2)}, self._value(1)])]
        text = json.dumps({"id": request["id"], "result": self._value(3)})
        return [text] if kind == 6 else [text[: draw.randrange(len(text))]]

    def _value(self, depth: int) -> Any:
        draw = self._random
        kind = draw.randrange(12 if depth else 8)
        plain = (None, True, -1, 2**70, 1.5, "", "0x" + "00" * draw.randrange(40), "State already discarded for 0x0")
        if kind < len(plain):
            return plain[kind]
        if kind == 8:
            return [self._value(depth - 1) for _ in range(draw.randrange(4))]
        if kind == 9:
            return HEADER | {draw.choice(list(HEADER)): self._value(depth - 1)}
        keys = ("code", "message", "data", "changes", "block", "extrinsics", "specVersion", "transactionVersion", "x")
        return {draw.choice(keys): self._value(depth - 1) for _ in range(draw.randrange(5))}


async def ask_everything(client: ChainClient) -> set[str]:
    """Call every method that asks; return the codes of the errors that left."""
    codes = set()
    calls = (
        client.probe, client.finalized_head, client.head, client.next_finalized, client.block_seconds,
        lambda: client.block_hash(7), lambda: client.header(BLOCK.hash), lambda: client.spec_version(BLOCK),
        lambda: client.finalized_range(3, 5), lambda: client.linked_events(BLOCK), lambda: client.events(BLOCK),
        lambda: client.extrinsics(BLOCK), lambda: client.extrinsic_index(BLOCK, GENESIS),
        lambda: client.outcome(BLOCK, 0), lambda: client.read(BLOCK, [(Storage.TIMESTAMP, [])]),
        lambda: client.raw_map(BLOCK, Storage.NETWORKS_ADDED, []), lambda: client.read_map(BLOCK, Storage.UIDS, [2]),
        lambda: client.runtime_call(BLOCK, "Core", "version", []),
        lambda: client.next_nonce("5C4hrfjw9DjXZTzV3MwzrrAr9P1MJhSrvWGWqi1eSuyUpnhM"),
        lambda: client.submit(b"\x00\x01"), lambda: client.decode_extrinsic(BLOCK, b"\x00"),
    )
    for call in calls:
        try:
            await call()
        except CacheonError as error:
            codes.add(error.code if error.message.isprintable() else "UNPRINTABLE")
    return codes


@pytest.fixture(name="babbler")
async def _babbler() -> AsyncIterator[Any]:
    async with contextlib.AsyncExitStack() as stack:

        async def make(seed: int) -> str:
            async def handle(connection: ServerConnection) -> None:
                with contextlib.suppress(Exception):
                    await Babbler(seed).serve(connection)

            server = await stack.enter_async_context(serve(handle, "127.0.0.1", 0))
            return f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"

        yield make


@pytest.mark.parametrize("seed", range(25))
async def test_no_foreign_error_leaves_and_no_task_stays(babbler: Any, seed: int) -> None:
    """Random garbage costs errors with codes; after closing, no task of the client is left."""
    before = asyncio.all_tasks()
    client = ChainClient([await babbler(seed)], request_timeout=0.4, rpc_per_second=100_000, silence_seconds=0.1)
    codes = await ask_everything(client)
    assert codes, "the babbler was understood"
    assert all(code.startswith("CHAIN_") for code in codes)
    await client.close()
    left = {task.get_name() for task in asyncio.all_tasks() - before}
    assert not {name for name in left if name.startswith("chain-")}


async def test_real_metadata_with_garbage_after_it(world: Any, babbler: Any) -> None:
    """A client whose codec is loaded meets garbage where values should be: decoding errors are translated as well."""
    client = world.new_client()
    await client.probe()
    client.request_timeout = 0.4
    client._pin.genesis = GENESIS
    for seed in range(100, 105):
        client._endpoints[:] = [await babbler(seed)]
        await client._disconnect()
        assert await ask_everything(client)
