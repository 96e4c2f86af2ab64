"""Starting and stopping the node: one error for each thing that is missing, and a stop that leaves nothing behind."""

from __future__ import annotations

import asyncio
import importlib.util
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chain.client import ChainClient
from chain.devnet.config import DevnetConfig
from chain.devnet.genesis_document import Genesis, NeuronSpec, OwnerSpec
from chain.devnet.server import Devnet
from chain.wallet import address_of_seed, create_wallet
from config.errors import CacheonError, ExitCode, HostError
from config.settings import ChainSettings, Settings
from node.daemon import run_node
from node.status import read_status
from node.store.chain_seen import read_chain_seen
from node.store.engine import Store
from node.store.layout import StateLayout
from node.store.lock import read_holder
from node.store.receipt_outbox import SealedReceipt, record_receipt
from node.store.submission_rows import Cursor, record_scan
from node.store.visit import visit
from qualify.intake_runner import IntakeRunner
from tests.node.support import until
from tests.ports import reserved_port

Changes = dict[str, Any]
pytestmark = pytest.mark.timeout(600)  # a node's start takes a minute on a machine that is busy with other things


def genesis() -> Genesis:
    """A subnet whose validator is registered."""
    neuron = NeuronSpec(address_of_seed("//validator"), address_of_seed("//validator//cold"), permit=True, stake=10)
    owner = OwnerSpec(address_of_seed("//owner"), address_of_seed("//owner//cold"))
    return Genesis(netuid=2, tempo=20, commit_reveal=False, owner=owner, neurons=(neuron,))


@pytest.fixture
async def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Settings]:
    """Settings of a node that could start: a devnet with its validator, a wallet, a state folder."""
    monkeypatch.setenv("BITTENSOR_RUNTIME_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("validator", "stranger"):
        create_wallet(str(tmp_path / "wallets"), name, "default", seed=f"//{name}")
    async with Devnet(DevnetConfig(port=0, block_time=0.2, genesis=genesis())) as chain:
        yield Settings(
            profile="devnet", state_dir=str(tmp_path / "state"),
            chain=ChainSettings(
                endpoints=(chain.url,), netuid=2, wallet_path=str(tmp_path / "wallets"), wallet="validator",
                start_block=1, poll_seconds=0.05, request_timeout_seconds=5.0,
            ),
        )


def changed(settings: Settings, section: str = "", **changes: Any) -> Settings:
    """Return settings with some values of one section replaced."""
    if not section:
        return msgspec.structs.replace(settings, **changes)
    inner = msgspec.structs.replace(getattr(settings, section), **changes)
    return msgspec.structs.replace(settings, **{section: inner})



@pytest.mark.parametrize(
    ("change", "code", "exit_code"),
    [
        (lambda s: changed(s, state_dir=""), "STATE_DIR_MISSING", ExitCode.USAGE),
        (lambda s: changed(s, state_dir="/proc/none"), "STATE_UNWRITABLE", ExitCode.HOST),
        (lambda s: changed(s, "qualify", arena="no-such"), "ARENA_NOT_FOUND", ExitCode.USAGE),
        (lambda s: changed(s, "chain", wallet="nobody"), "WALLET_NOT_FOUND", ExitCode.CHAIN),
        (lambda s: changed(s, "chain", hotkey="nobody"), "HOTKEY_NOT_FOUND", ExitCode.CHAIN),
        (lambda s: changed(s, "chain", wallet="stranger"), "HOTKEY_NOT_REGISTERED", ExitCode.CHAIN),
        (lambda s: changed(s, "chain", netuid=77), "SUBNET_NOT_FOUND", ExitCode.CHAIN),
        (lambda s: changed(s, "chain", endpoints=()), "CHAIN_UNREACHABLE", ExitCode.NETWORK),
    ],
    ids=["no folder set", "folder", "arena", "wallet", "hotkey", "registration", "netuid", "endpoint"],
)
async def test_each_missing_thing_is_one_error(
    settings: Settings, change: Callable[[Settings], Settings], code: str, exit_code: ExitCode
) -> None:
    """The node refuses to start with the code and exit status of what is missing, and gives the state folder back."""
    asked = change(settings)
    with pytest.raises(CacheonError) as caught:
        await run_node(asked)
    assert (caught.value.code, caught.value.exit_code) == (code, exit_code)
    assert read_holder(StateLayout.at(settings.state_dir).lock) is None


async def test_torch_is_looked_for_before_anything_is_opened(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without torch the node says so and creates nothing."""
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torch" else find(name))
    with pytest.raises(HostError) as caught:
        await run_node(settings)
    assert caught.value.code == "TORCH_MISSING"
    assert not Path(settings.state_dir).exists()


async def test_sandbox_is_tried_before_serving(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sandbox that cannot run keeps the node from starting."""

    def refuse(*_: object) -> None:
        raise HostError("SANDBOX_LAYER_MISSING", "no user namespaces")

    monkeypatch.setattr(IntakeRunner, "run", refuse)
    with pytest.raises(HostError) as caught:
        await run_node(settings)
    assert caught.value.code == "SANDBOX_LAYER_MISSING"


async def test_second_node_is_refused(settings: Settings) -> None:
    """A state folder in use is refused and the first node goes on."""
    store = await Store.open(StateLayout.at(settings.state_dir))
    with pytest.raises(HostError) as caught:
        await run_node(settings)
    assert caught.value.code == "STORE_LOCKED"
    await store.close()


async def test_another_chain_is_refused(settings: Settings) -> None:
    """A state folder of another chain is refused."""
    store = await Store.open(StateLayout.at(settings.state_dir))
    await store.bind("0x" + "00" * 32, 2)
    await store.close()
    with pytest.raises(CacheonError) as caught:
        await run_node(settings)
    assert caught.value.code == "STORE_FOREIGN_CHAIN"


async def test_an_endpoint_of_another_branch_is_waited_out(settings: Settings) -> None:
    """A chain that has another block where this folder stands is not followed; the status says what was read before."""
    layout, stop = StateLayout.at(settings.state_dir), asyncio.Event()
    client = ChainClient(settings.chain.endpoints)
    store = await Store.open(layout)
    await store.bind(await client.genesis_hash(), 2)
    await store.write(record_scan, None, Cursor(1, "0x" + "ee" * 32), [])
    await store.close()
    await client.close()
    node = asyncio.create_task(run_node(settings, stop=stop))

    def told() -> bool:
        if node.done():
            node.result()
        view = read_chain_seen(layout)
        return view is not None and view.away_code == "CHAIN_FORKED"

    await until(told)
    (reason,) = read_status(settings.state_dir).reasons
    assert reason.name == "chain_away"
    assert "was read before" in reason.sentence
    stop.set()
    await node


async def test_stop_while_starting(settings: Settings) -> None:
    """A stop during start-up ends the node without an error."""
    stop = asyncio.Event()
    node = asyncio.create_task(run_node(settings, stop=stop))
    await asyncio.sleep(0.05)
    stop.set()
    await node
    assert read_holder(StateLayout.at(settings.state_dir).lock) is None


async def served(node: asyncio.Task[None], ready: asyncio.Event) -> None:
    """Wait until `node` serves; raises what ended it instead."""
    waiting = asyncio.create_task(ready.wait())
    await asyncio.wait({node, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if node.done():
        node.result()


async def test_serves_until_stopped_and_again(settings: Settings) -> None:
    """A started node follows the chain, is visible in its status, stops when told and starts again on its state.

    At its start it writes the file of a receipt whose row is there, and moves away one that no row names.
    """
    blocks = []
    receipt, layout = SealedReceipt("verdict.v1", b"{}"), StateLayout.at(settings.state_dir)
    for again in range(2):
        if again:
            visit(settings.state_dir, record_receipt, receipt, "subject")
            (layout.receipts / f"{'0' * 64}.json").write_bytes(b"{}")
        stop, ready = asyncio.Event(), asyncio.Event()
        node = asyncio.create_task(run_node(settings, stop=stop, ready=ready))
        await served(node, ready)
        seen = blocks[-1] if blocks else 0
        await until(lambda seen=seen: read_status(settings.state_dir).cursor_block > seen)
        status = read_status(settings.state_dir)
        assert status.running_pid
        assert status.arena == "cpu-small"
        blocks.append(status.cursor_block)
        stop.set()
        await node
        assert read_status(settings.state_dir).running_pid == 0
    assert (layout.receipts / f"{receipt.digest}.json").read_bytes() == receipt.envelope
    assert [path.name for path in layout.unlisted.iterdir()] == [f"{'0' * 64}.json"]


async def test_a_node_started_before_its_chain_waits_and_goes_on(settings: Settings) -> None:
    """With nothing at the endpoint the node stays up and says why; once the chain is there it serves."""
    port = reserved_port()
    settings = changed(settings, "chain", endpoints=(f"ws://127.0.0.1:{port}",))
    layout, stop, ready = StateLayout.at(settings.state_dir), asyncio.Event(), asyncio.Event()
    node = asyncio.create_task(run_node(settings, stop=stop, ready=ready))

    def seen(away: bool) -> bool:
        if node.done():
            node.result()
        view = read_chain_seen(layout)
        return view is not None and bool(view.away_code) is away and (away or view.block > 0)

    await until(lambda: seen(away=True))
    status = read_status(settings.state_dir)
    assert status.running_pid
    assert [reason.name for reason in status.reasons] == ["chain_away"]
    assert not ready.is_set()
    async with Devnet(DevnetConfig(port=port, block_time=0.2, genesis=genesis())):
        await served(node, ready)
        await until(lambda: seen(away=False))
        assert read_status(settings.state_dir).block_age_seconds is not None
        stop.set()
        await node


RUNNER = """
import asyncio, sys
from pathlib import Path
import msgspec
from config.settings import Settings
from node import logs
from node.daemon import run_node
settings = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Settings)
logs.configure(settings.log)
asyncio.run(run_node(settings))
assert "torch" not in sys.modules
print("stopped", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_signals_stop_a_serving_node(settings: Settings, tmp_path: Path, number: signal.Signals) -> None:
    """SIGTERM and SIGINT end a serving node cleanly, with torch never imported."""
    document = tmp_path / "settings.json"
    document.write_bytes(msgspec.json.encode(settings))
    node = await asyncio.create_subprocess_exec(
        sys.executable, "-c", RUNNER, str(document), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    layout = StateLayout.at(settings.state_dir)
    await until(lambda: layout.database.exists() and _started(layout))
    node.send_signal(number)
    output, errors = await node.communicate()
    assert node.returncode == 0, errors.decode()
    assert output == b"stopped\n"


def _started(layout: StateLayout) -> bool:
    try:
        return read_status(layout.root).arena != ""
    except HostError:
        return False  # the schema is being made


def test_status_and_daemon_import_neither_torch_nor_the_chain_sdk() -> None:
    """Importing the daemon brings in no torch; importing the status view neither torch nor the chain SDK."""
    script = (
        "import sys\nimport node.status\n"
        "assert not {'torch', 'bittensor', 'bittensor_core'} & set(sys.modules), 'status'\n"
        "import node.daemon\nassert 'torch' not in sys.modules, 'daemon'\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
