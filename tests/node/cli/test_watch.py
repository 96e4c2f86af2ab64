"""chain-status --watch against a real chain and the pages of a node, as a miner follows a submission."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from aiohttp import web

from chain.client import ChainClient
from chain.devnet.genesis_document import Genesis, NeuronSpec
from chain.wallet import address_of_seed, create_wallet
from config.canonical import sha256_hex
from config.errors import CacheonError
from config.settings import ChainSettings, HttpSettings
from node.cli.node_views import HttpNode
from node.cli.standings import Wanted
from node.http.listener import bind, url_of
from node.http.service import HttpService
from node.store.engine import Store
from node.store.layout import StateLayout
from node.store.schema import jobs
from node.store.submission_rows import Cursor, Submission, read_cursor, record_scan
from tests.node.cli.conftest import plain_environment

if TYPE_CHECKING:
    from tests.node.cli.conftest import RunCli

pytestmark = pytest.mark.timeout(600)  # many processes, one after the other

EXAMPLE = Path(__file__).parents[3] / "examples" / "silu_fast"
NETUID = 2


HOTKEYS = tuple(f"hotkey-{number}" for number in range(10))


@pytest.fixture(scope="module")
def wallets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One wallet with a hotkey for each test, because a hotkey may commit only so much in an epoch."""
    folder = tmp_path_factory.mktemp("wallets")
    for name in HOTKEYS:
        create_wallet(folder, f"wallet-{name}", name, seed=f"//{name}")
    return folder


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a local chain, in a process of its own, that knows these hotkeys."""
    neurons = tuple(NeuronSpec(address_of_seed(f"//{name}"), address_of_seed(f"//{name}//cold")) for name in HOTKEYS)
    file = tmp_path_factory.mktemp("chain") / "genesis.json"
    file.write_bytes(msgspec.json.encode(Genesis(netuid=NETUID, neurons=neurons)))
    command = [sys.executable, "-m", "node.cli.main", "devnet", "--port", "0", "--block-time", "0.1"]
    with subprocess.Popen(
        [*command, "--genesis", str(file)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as chain:
        assert chain.stdout is not None
        yield chain.stdout.readline().strip()
        chain.terminate()
        assert chain.wait(60) == 0


@pytest.fixture(scope="module")
def hotkeys() -> Iterator[str]:
    """The hotkeys that no test has used yet."""
    return iter(HOTKEYS)


@pytest.fixture
def flags(endpoint: str, wallets: Path, hotkeys: Iterator[str]) -> list[str]:
    """The flags that name chain and wallet, with a hotkey of the test's own."""
    name = next(hotkeys)
    named = {"--network": "devnet", "--endpoint": endpoint, "--netuid": str(NETUID), "--wallet-path": str(wallets)}
    named |= {"--wallet": f"wallet-{name}", "--hotkey": name}
    return [text for pair in named.items() for text in pair]


@dataclass
class Node:
    """A node as its pages show it: a store that the test moves along."""

    store: Store
    url: str = ""

    async def take(self, content_hash: str, hotkey: str, block: int) -> str:
        """Record the reveal as the node's own scan would, and return its id."""
        name = sha256_hex(content_hash.encode())
        found = Submission(
            submission_id=name,
            block=block,
            block_hash="0x" + "22" * 32,
            event_index=0,
            sub_index=0,
            hotkey=hotkey,
            registered_block=1,
            payload_hex="00",
            payload_digest=name,
            content_hash=content_hash,
            url="http://127.0.0.1:9/a.tar.gz",
        )
        await self.move_cursor(block, found)
        return name

    async def move_cursor(self, block: int, *found: Submission) -> None:
        """Say that the chain was read to `block`."""
        before = await self.store.read(read_cursor)
        await self.store.write(record_scan, before, Cursor(block, "0x" + "33" * 32), found)

    async def set(self, name: str, **values: object) -> None:
        """Let a job stand somewhere."""
        await self.store.write(
            lambda connection: connection.execute(jobs.update().where(jobs.c.submission_id == name).values(**values))
        )


@asynccontextmanager
async def pages(node: Node, listen: str = "127.0.0.1:0") -> AsyncIterator[str]:
    """Serve the node's pages until the block ends."""
    listening = bind(listen)
    node.url = url_of(listening)
    running = asyncio.create_task(HttpService(node.store.layout, HttpSettings(), listening).run())
    try:
        yield node.url
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        listening.close()


@pytest.fixture
async def node(tmp_path: Path, endpoint: str) -> AsyncIterator[Node]:
    """A node of the local chain."""
    async with ChainClient.from_settings(ChainSettings(endpoints=(endpoint,), netuid=NETUID)) as client:
        genesis = await client.genesis_hash()
    store = await Store.open(StateLayout.at(tmp_path / "state"))
    await store.bind(genesis, NETUID)
    yield Node(store)
    await store.close()


def submit(cli: RunCli, flags: list[str], tmp_path: Path, name: str) -> dict[str, Any]:
    """Commit a bundle of its own and return what chain-submit said."""
    bundle = tmp_path / name
    shutil.copytree(EXAMPLE, bundle, ignore=shutil.ignore_patterns("__pycache__"))
    with (bundle / "README.md").open("a", encoding="utf-8") as readme:
        readme.write(f"\n{name}\n")
    ran = cli("chain-submit", str(bundle), "--url", "http://127.0.0.1:9/a.tar.gz", *flags, "--json")
    assert ran.code == 0, ran.out + ran.err
    data: dict[str, Any] = ran.document["data"]
    return data


_STARTED: list[asyncio.subprocess.Process] = []


@pytest.fixture(autouse=True)
async def no_process_stays() -> AsyncIterator[None]:
    """Whatever a test did, the processes that it started end with it."""
    yield
    while _STARTED:
        process = _STARTED.pop()
        if process.returncode is None:
            process.kill()
            await process.wait()


class Watch:
    """A running `chain-status --watch --json`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[dict[str, Any]] = []

    @classmethod
    async def start(cls, *arguments: str) -> Watch:
        """Start it."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "node.cli.main",
            "chain-status",
            *arguments,
            "--watch",
            "--json",
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            stdin=asyncio.subprocess.DEVNULL,
            env=plain_environment(CACHEON_CHAIN__POLL_SECONDS="0.2"),
        )
        _STARTED.append(process)
        return cls(process)

    async def until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Read lines until one is as wanted, and return it."""
        assert self.process.stdout is not None
        while True:
            line = await asyncio.wait_for(self.process.stdout.readline(), 300)
            assert line, f"ended before: {self.lines}"
            self.lines.append(json.loads(line))
            if wanted(self.lines[-1]):
                return self.lines[-1]

    async def stage(self, name: str) -> dict[str, Any]:
        """Read until a change to that stage is told, and return its row."""
        found = await self.until(lambda line: _stage(line) == name)
        row: dict[str, Any] = found["data"]
        return row

    async def end(self) -> int:
        """Read to the end and return the exit code."""
        out, _ = await asyncio.wait_for(self.process.communicate(), 300)
        self.lines += [json.loads(line) for line in out.splitlines()]
        assert self.process.returncode is not None
        return self.process.returncode


def _stage(line: dict[str, Any]) -> str:
    return str(line["data"]["stage"]) if line["schema"] == "cacheon.chain-status-event.v1" else ""


async def test_from_sealed_to_a_crown(cli: RunCli, flags: list[str], node: Node, tmp_path: Path) -> None:
    """Every change is one line, the result is the last one, and a crown is exit code 0."""
    submitted = await asyncio.to_thread(submit, cli, flags, tmp_path, "crowned")
    async with pages(node) as url:
        watch = await Watch.start(submitted["id"], "--node", url, *flags)
        revealed = await watch.stage("revealed")
        assert revealed["final"] is False
        name = await node.take(submitted["content_hash"], submitted["hotkey"], revealed["block"])
        for state in ("reserved", "fetching", "screening", "queued", "measuring", "passed_once", "passed_twice"):
            await node.set(name, state=state)
            await watch.stage(state)
        await node.set(name, state="settled")
        assert await watch.end() == 0
    result = watch.lines[-1]
    assert (result["schema"], result["ok"]) == ("cacheon.chain-status.v1", True)
    assert [(row["id"], row["stage"], row["final"]) for row in result["data"]] == [(submitted["id"], "settled", True)]


async def test_a_rejection_is_exit_code_3(cli: RunCli, flags: list[str], node: Node, tmp_path: Path) -> None:
    """The verdict's code and words are in the result, and for people on standard output."""
    submitted = await asyncio.to_thread(submit, cli, flags, tmp_path, "rejected")
    async with pages(node) as url:
        watch = await Watch.start(submitted["id"], "--node", url, *flags)
        revealed = await watch.stage("revealed")
        name = await node.take(submitted["content_hash"], submitted["hotkey"], revealed["block"])
        await node.set(name, state="failed", code="WRONG_OUTPUT", blame="miner", detail="row=68 column=1184")
        assert await watch.end() == 3
        (row,) = watch.lines[-1]["data"]
        assert (row["code"], row["blame"], row["detail"]) == ("WRONG_OUTPUT", "miner", "row=68 column=1184")
        told = await asyncio.to_thread(cli, "chain-status", submitted["id"], "--node", url, "--watch", *flags)
    assert told.code == 3
    assert "WRONG_OUTPUT" in told.out
    assert "row=68 column=1184" in told.out
    assert "failed" in told.err


@pytest.mark.usefixtures("listens")
async def test_watching_is_taken_up_again(cli: RunCli, flags: list[str], node: Node, tmp_path: Path) -> None:
    """Ctrl-C ends it with 130 and changes nothing; the same id finds the place again."""
    submitted = await asyncio.to_thread(submit, cli, flags, tmp_path, "resumed")
    async with pages(node) as url:
        first = await Watch.start(submitted["id"], "--node", url, *flags)
        revealed = await first.stage("revealed")
        first.process.send_signal(signal.SIGINT)
        assert await first.end() == 130
        name = await node.take(submitted["content_hash"], submitted["hotkey"], revealed["block"])
        again = await Watch.start(submitted["id"], "--node", url, *flags)
        await again.stage("reserved")
        await node.set(name, state="settled")
        assert await again.end() == 0


async def test_a_node_that_goes_away_is_waited_for(cli: RunCli, flags: list[str], node: Node, tmp_path: Path) -> None:
    """A stopped node ends nothing: when it answers again, the watch goes on to the verdict."""
    submitted = await asyncio.to_thread(submit, cli, flags, tmp_path, "patient")
    async with pages(node) as url:
        watch = await Watch.start(submitted["id"], "--node", url, *flags)
        revealed = await watch.stage("revealed")
    name = await node.take(submitted["content_hash"], submitted["hotkey"], revealed["block"])
    await node.set(name, state="settled")
    async with pages(node, url.removeprefix("http://")):
        assert await watch.end() == 0
    assert watch.lines[-1]["data"][0]["stage"] == "settled"


async def test_time_ends_with_exit_code_7(cli: RunCli, flags: list[str], node: Node, tmp_path: Path) -> None:
    """--timeout shows what is known then; pending is 7."""
    submitted = await asyncio.to_thread(submit, cli, flags, tmp_path, "late")
    async with pages(node) as url:
        watch = await Watch.start(submitted["id"], "--node", url, "--timeout", "0", *flags)
        assert await watch.end() == 7
    assert watch.lines[-1]["data"][0]["final"] is False


async def test_a_node_of_another_chain_is_refused(cli: RunCli, flags: list[str], tmp_path: Path) -> None:
    """Blocks of two chains are not mixed."""
    store = await Store.open(StateLayout.at(tmp_path / "foreign"))
    await store.bind("0x" + "99" * 32, NETUID)
    try:
        async with pages(Node(store)) as url:
            ran = await asyncio.to_thread(cli, "chain-status", "--node", url, "--json", *flags)
    finally:
        await store.close()
    assert ran.code == 2
    assert ran.document["error"]["code"] == "NODE_FOREIGN_CHAIN"


async def test_a_reveal_before_the_node_began_is_told(
    cli: RunCli, flags: list[str], node: Node, tmp_path: Path
) -> None:
    """The watch does not wait for what this node will never have."""
    submitted = await asyncio.to_thread(submit, cli, flags, tmp_path, "early")
    alone = await Watch.start(submitted["id"], *flags)
    assert await alone.end() == 0
    block = alone.lines[-1]["data"][0]["block"]
    await node.move_cursor(block + 5)
    async with pages(node) as url:
        watch = await Watch.start(submitted["id"], "--node", url, *flags)
        assert await watch.end() == 7
    assert watch.lines[-1]["data"][0]["stage"] == "not_taken"


def test_two_nodes_are_refused(cli: RunCli, flags: list[str]) -> None:
    """One of the two ways to name a node."""
    ran = cli("chain-status", "--node", "http://127.0.0.1:9", "--node-state", ".", "--json", *flags)
    assert (ran.code, ran.document["error"]["code"]) == (2, "NODE_NAMED_TWICE")


def test_a_node_that_never_answers_is_a_network_error(cli: RunCli, flags: list[str]) -> None:
    """At the first question the address may be wrong, so nothing is waited for."""
    ran = cli("chain-status", "--watch", "--node", "http://127.0.0.1:9", "--json", *flags)
    assert (ran.code, ran.document["error"]["code"]) == (5, "NODE_UNREACHABLE")


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:9980", "ftp://a", "http://", "http://a:x", "http://u:p@a", "http://a?b=c"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    """The form is named."""
    with pytest.raises(CacheonError) as caught:
        HttpNode(url)
    assert caught.value.code == "NODE_URL_INVALID"


def _page(**changes: object) -> bytes:
    page = {"genesis_hash": "", "netuid": 2, "cursor_block": 1, "submissions": [], "next": ""} | changes
    return msgspec.json.encode({"schema": "s", "ok": True, "data": page})


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (200, b"<html>hello</html>", "NODE_ANSWER_INVALID"),
        (200, b"", "NODE_ANSWER_INVALID"),
        (200, b"[" * 100_000, "NODE_ANSWER_INVALID"),
        (200, b"\xff\xfe", "NODE_ANSWER_INVALID"),
        (200, _page(netuid="2"), "NODE_ANSWER_INVALID"),
        (200, _page(submissions=[{"hotkey": 5}]), "NODE_ANSWER_INVALID"),
        (200, b'{"ok":true}', "NODE_ANSWER_INVALID"),
        (200, b" " * 5_000_000, "NODE_ANSWER_INVALID"),
        (302, b"", "NODE_ANSWER_INVALID"),
        (400, b'{"ok":false,"error":{"code":"HTTP_PARAMETER_INVALID","message":"m"}}', "NODE_ANSWER_INVALID"),
        (503, b'{"ok":false,"error":{"code":"HTTP_BUSY","message":"m"}}', "NODE_UNREACHABLE"),
    ],
)
async def test_strange_answers_are_one_error(status: int, body: bytes, code: str) -> None:
    """Whatever answers at the address: a code, bounded work, no traceback."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, body=body, headers={"Location": "http://127.0.0.1:9/"})

    async with _host(answer) as url:
        node = HttpNode(url)
        try:
            with pytest.raises(CacheonError) as caught:
                await node.view(Wanted("h", ""))
        finally:
            await node.close()
    assert caught.value.code == code


async def test_endless_pages_end() -> None:
    """A node that always names another page is not followed for ever."""
    asked = 0

    async def answer(_: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return web.Response(body=_page(next="a" * 64))

    async with _host(answer) as url:
        node = HttpNode(url)
        await node.view(Wanted("h", ""))
        await node.close()
    assert asked <= 20


@asynccontextmanager
async def _host(answer: Callable[[web.Request], Any]) -> AsyncIterator[str]:
    application = web.Application()
    application.router.add_get("/{tail:.*}", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
