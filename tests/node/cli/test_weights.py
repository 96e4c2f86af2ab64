"""`cacheon weights` and `cacheon ledger`: what an operator and a stranger see, against a real local chain."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from chain.abi import Call, Storage
from chain.ledger_pointer import pointer_arguments, read_commitment
from chain.wallet import signer_of_seed
from config.limits import RECEIPT_BYTES
from node.store.engine import Store
from node.store.layout import StateLayout
from tests.node.weights_world import ANN, SINK, VALIDATOR, World, weights_world

if TYPE_CHECKING:
    from tests.node.cli.conftest import Ran, RunCli

pytestmark = pytest.mark.timeout(600)  # each test runs commands as processes


@pytest.fixture(name="world")
async def _world(tmp_path: Path) -> AsyncIterator[World]:
    store = await Store.open(StateLayout.at(tmp_path / "state"))
    async with weights_world(store, tmp_path / "cache") as made:
        await store.bind(await made.client.genesis_hash(), 2)
        yield made
    await store.close()


async def ask(cli: RunCli, world: World, *arguments: str) -> Ran:
    """Run the command beside the devnet of this process."""
    chain = ("--network", "devnet", "--endpoint", world.node.url)
    settings = {"CACHEON_PUBLICATION__BURN_HOTKEY": SINK}
    return await asyncio.to_thread(cli, *arguments, *chain, env=settings, timeout=300)


def state_of(world: World) -> tuple[str, str]:
    """The flag that names the world's state folder."""
    return "--state", str(world.store.layout.root)


async def test_show_tells_who_gets_what_and_why(cli: RunCli, world: World) -> None:
    """The last vector with its derivation, the chain's row beside it, and each publication's fate."""
    await world.crown(1, ANN, "activation.silu_and_mul")
    await world.step(3)
    ran = await ask(cli, world, "weights", "show", *state_of(world), "--json")
    data = ran.document["data"]
    assert data["state"]["shares"][0]["hotkey"] == ANN
    assert data["state"]["shares"][0]["ppm"] == 1_000_000
    assert data["state"]["shares"][0]["why"] == ["crown of activation.silu_and_mul: 100.0 % of its credit left"]
    assert data["chain"]["differs"] is False
    assert [(one["epoch"], one["status"]) for one in data["state"]["publications"]] == [(0, "confirmed")]
    plain = await ask(cli, world, "weights", "show", *state_of(world))
    assert plain.code == 0
    assert ANN in plain.out
    assert "confirmed" in plain.out


async def test_show_tells_why_nothing_is_published(cli: RunCli, world: World) -> None:
    """The reason to wait, with what is needed and when it can work; offline, no chain is asked."""
    await world.ask("dev_setItem", "SubtensorModule", "ValidatorPermit", [2], [False] * 4)
    await world.step(2)
    ran = await ask(cli, world, "weights", "show", *state_of(world), "--offline", "--json")
    waiting = ran.document["data"]["state"]["waiting"]
    assert (waiting["code"], waiting["needed"], waiting["at_block"]) == ("NOT_PERMITTED", "validator permit", 10)
    assert ran.document["data"]["chain"] is None


async def test_plan_is_what_the_node_signs_next(cli: RunCli, world: World) -> None:
    """Without a wallet and without a trace: the planned row is the row that the node then publishes."""
    await world.step(3)
    await world.crown(1, ANN, "activation.silu_and_mul")
    world.block(10)
    before = await world.extrinsics()
    ran = await ask(cli, world, "weights", "plan", *state_of(world), "--hotkey", VALIDATOR, "--json")
    data = ran.document["data"]
    assert (data["next"], data["waiting"], data["epoch"]) == ("sign", None, 1)
    planned = {entry["uid"]: entry["wanted"] for entry in data["row"]["entries"] if entry["wanted"]}
    on_chain = {entry["hotkey"]: entry["on_chain"] for entry in data["row"]["entries"] if entry["on_chain"]}
    assert on_chain == {SINK: 65_535}
    assert await world.extrinsics() == before
    await world.step(2)
    assert await world.row() == planned


async def test_plan_names_what_is_in_the_way_and_shows_the_row_nevertheless(cli: RunCli, world: World) -> None:
    """A reason to wait does not hide the vector."""
    await world.ask("dev_setItem", "SubtensorModule", "WeightsSetRateLimit", [2], 100)
    await world.ask("dev_setItem", "SubtensorModule", "LastUpdate", [2], [2, 0, 0, 0])
    ran = await ask(cli, world, "weights", "plan", *state_of(world), "--hotkey", VALIDATOR, "--json")
    data = ran.document["data"]
    assert (data["next"], data["waiting"]["code"], data["waiting"]["at_block"]) == ("wait", "RATE_LIMITED", 102)
    assert data["shares"] == [
        {"hotkey": SINK, "ppm": 1_000_000, "why": ["burns everything while nothing is crowned"]}
    ]
    plain = await ask(cli, world, "weights", "plan", *state_of(world), "--hotkey", VALIDATOR)
    assert "block 102" in plain.out


@pytest.mark.parametrize("command", ["show", "plan"])
def test_a_folder_without_a_node_is_named(cli: RunCli, tmp_path: Path, command: str) -> None:
    """Nothing there: exit code 7 and the folder's name."""
    ran = cli("weights", command, "--state", str(tmp_path / "none"), "--network", "devnet", "--json")
    assert (ran.code, ran.document["error"]["code"]) == (7, "STATE_NOT_FOUND")


@pytest.fixture(name="published")
async def _published(world: World) -> AsyncIterator[dict[str, Any]]:
    """A served ledger folder that the chain names; yields the documents that are served, by digest."""
    served: dict[str, bytes] = {}

    async def document(request: web.Request) -> web.Response:
        body = served.get(request.match_info["digest"])
        if body is not None and body.startswith(b"http"):
            raise web.HTTPFound(body.decode())
        return web.Response(body=body) if body is not None else web.Response(status=404)

    application = web.Application()
    application.router.add_get("/ledger/{digest}", document)
    runner = web.AppRunner(application)
    await runner.setup()
    listener = socket.create_server(("127.0.0.1", 0))
    await web.SockSite(runner, listener).start()
    world.configure(ledger_url=f"http://127.0.0.1:{listener.getsockname()[1]}/ledger")
    await world.crown(1, ANN, "activation.silu_and_mul")
    await world.step(6)
    served |= {path.name: path.read_bytes() for path in world.store.layout.ledger.iterdir()}
    yield served
    await runner.cleanup()


async def verify(cli: RunCli, world: World, *arguments: str) -> Ran:
    """Run `ledger verify`."""
    return await ask(cli, world, "ledger", "verify", *arguments, "--netuid", "2")


async def test_a_stranger_checks_a_ledger_from_the_chain_alone(
    cli: RunCli, world: World, published: dict[str, bytes]
) -> None:
    """Commitment, document, signature and events: all good, and what that proves is said."""
    ran = await verify(cli, world, "--hotkey", VALIDATOR, "--json")
    data = ran.document["data"]
    assert (data["digest"] in published, data["hotkey"], data["events"]) == (True, VALIDATOR, 1)
    assert [crown["hotkey"] for crown in data["crowns"]] == [ANN]
    assert f"hotkey {VALIDATOR} committed this document" in data["proves"][0]
    assert data["does_not_prove"]
    plain = await verify(cli, world, "--hotkey", VALIDATOR)
    assert plain.out.startswith("ledger good")


async def test_a_document_that_was_changed_is_refused(cli: RunCli, world: World, published: dict[str, bytes]) -> None:
    """One byte more, and it is not what was committed."""
    for name in published:
        published[name] += b"\n"
    ran = await verify(cli, world, "--hotkey", VALIDATOR, "--json")
    assert (ran.code, ran.document["error"]["code"]) == (3, "LEDGER_DIGEST_DIFFERS")


async def test_what_a_ledgers_server_can_do_is_named(cli: RunCli, world: World, published: dict[str, bytes]) -> None:
    """Half a document, none, one too large, or a way to somewhere else: an error of its own each, and no answer."""
    (name,) = published
    whole = published[name]

    async def code() -> str:
        ran = await verify(cli, world, "--hotkey", VALIDATOR, "--json")
        assert ran.code != 0
        return str(ran.document["error"]["code"])

    published[name] = whole[: len(whole) // 2]
    assert await code() == "LEDGER_DIGEST_DIFFERS"
    published[name] = b"{" * (RECEIPT_BYTES + 1)
    assert await code() == "ARCHIVE_TOO_LARGE"
    published[name] = b"http://169.254.169.254/latest"
    assert await code() == "REDIRECT_REFUSED"
    del published[name]
    assert await code() == "FETCH_STATUS"


async def test_another_validators_ledger_is_not_ones_own(
    cli: RunCli, world: World, published: dict[str, bytes]
) -> None:
    """A hotkey that commits the pointer of another one, with the right digest and key, is named."""
    (raw,) = await world.client.read_raw(await world.client.head(), [(Storage.COMMITMENT_OF, [2, VALIDATOR])])
    pointer = read_commitment(raw).pointer
    assert pointer is not None
    assert pointer.digest in published
    client, signer = world.client, signer_of_seed("//Ann")
    signed = await client.sign(
        Call.SET_COMMITMENT, pointer_arguments(2, pointer), signer, nonce=0, at=await client.head(), period=64
    )
    assert (await client.submit(signed.data)).fate == "accepted"
    world.block()
    ran = await verify(cli, world, "--hotkey", ANN, "--json")
    assert (ran.code, ran.document["error"]["code"]) == (3, "LEDGER_FOREIGN")
    assert VALIDATOR in ran.document["error"]["message"]


async def test_a_file_is_checked_against_a_key_or_the_chain(
    cli: RunCli, world: World, published: dict[str, bytes], tmp_path: Path
) -> None:
    """Offline with the right key, not with another; with --hotkey the chain names digest and key."""
    (body,) = published.values()
    (tmp_path / "ledger.json").write_bytes(body)
    key = world.receipts.public_key.hex()
    good = await verify(cli, world, "ledger.json", "--key", key, "--json")
    assert good.document["data"]["committed_block"] == 0
    other = await verify(cli, world, "ledger.json", "--key", "00" * 32, "--json")
    assert (other.code, other.document["error"]["code"]) == (3, "RECEIPT_UNTRUSTED")
    chained = await verify(cli, world, "ledger.json", "--hotkey", VALIDATOR, "--json")
    assert chained.document["data"]["committed_block"] > 0
    nothing = await verify(cli, world, "ledger.json", "--json")
    assert (nothing.code, nothing.document["error"]["code"]) == (2, "LEDGER_KEY_MISSING")


async def test_a_hotkey_without_a_ledger_is_named_for_what_it_has(
    cli: RunCli, world: World, published: dict[str, bytes]
) -> None:
    """No commitment: exit code 7 and a sentence that says so."""
    assert published
    ran = await verify(cli, world, "--hotkey", ANN, "--json")
    assert (ran.code, ran.document["error"]["code"]) == (7, "LEDGER_NOT_COMMITTED")
    assert "committed nothing" in ran.document["error"]["message"]
