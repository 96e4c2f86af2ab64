"""The signer process: what it signs, what it refuses, what hostile clients cannot do. Real processes and sockets."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chain.abi import Call
from chain.client import ChainClient
from chain.codec import NestedCall, compose_call
from chain.devnet.config import DevnetConfig
from chain.devnet.server import Devnet
from chain.hyperparameters import read_hyperparameters
from chain.key_binding import binding_of, sign_binding, verify_binding
from chain.publication import PublicationOptions, step
from chain.signer_client import SocketSigner
from chain.signer_frames import (
    FRAME_BYTES,
    HEADER,
    BindKey,
    Hello,
    Identity,
    Refusal,
    SignCall,
    length_of,
    pack,
    read_answer,
)
from chain.signer_server import ChainRuntime, SignerServer, bind
from chain.wallet import address_of_seed, create_wallet, signer_of_seed
from config.errors import HostError, NetworkError, WalletError
from tests.chain.conftest import MemoryJournal, genesis_of
from tests.chain.publisher import target_of

pytestmark = pytest.mark.timeout(600)  # processes that import the SDK, on a machine that may be busy
NETUID = 2
SEED = "//Validator"


class Process:
    """`cacheon signer run` in a process of its own."""

    def __init__(self, folder: Path, url: str) -> None:
        create_wallet(folder / "wallets", "validator", "default", seed=SEED)
        self.path = folder / "signer.sock"
        self._folder = folder
        self._url = url
        self._process: subprocess.Popen[str] | None = None
        self.lines: list[dict[str, Any]] = []

    def start(self, *more: str, netuid: int = NETUID) -> None:
        """Start it and wait until it listens."""
        command = [
            sys.executable,
            "-m",
            "node.cli.main",
            "signer",
            "run",
            "--socket",
            str(self.path),
            "--network",
            "devnet",
            "--endpoint",
            self._url,
            "--netuid",
            str(netuid),
            "--wallet-path",
            str(self._folder / "wallets"),
            "--wallet",
            "validator",
            *more,
        ]
        environment = os.environ | {"CACHEON_LOG__FORMAT": "json"}
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, env=environment, text=True)
        threading.Thread(target=self._read, args=(self._process,), daemon=True).start()
        while not self.events("signer.listening", self._process.pid):
            assert self._process.poll() is None, self.lines
            threading.Event().wait(0.05)

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        with process.stderr:
            for line in process.stderr:
                try:
                    self.lines.append(json.loads(line) | {"pid": process.pid})
                except ValueError:
                    self.lines.append({"text": line, "pid": process.pid})

    def events(self, name: str, pid: int | None = None) -> list[dict[str, Any]]:
        """The log lines of an event."""
        return [line for line in self.lines if line.get("event") == name and pid in (None, line["pid"])]

    async def logged(self, name: str, count: int) -> list[dict[str, Any]]:
        """The log lines of an event, as soon as there are `count`: they come through a pipe, after the answer."""
        async with asyncio.timeout(120):
            while len(found := self.events(name)) < count:
                await asyncio.to_thread(threading.Event().wait, 0.05)
        return found

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and return the exit code."""
        assert self._process is not None
        self._process.send_signal(number)
        return self._process.wait(60)

    def close(self) -> None:
        """End it, however it stands."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(60)


@dataclass
class Stage:
    """A devnet, a client of it, and a signer process."""

    node: Devnet
    client: ChainClient
    process: Process

    def call(self, codec: Any, call: Call = Call.SET_WEIGHTS, **changes: object) -> bytes:
        """The bytes of an ordinary call, or of another one."""
        arguments: dict[str, object] = {
            Call.SET_WEIGHTS: {"netuid": NETUID, "mecid": 0, "dests": [1], "weights": [65535], "version_key": 0},
            Call.COMMIT_WEIGHTS: {
                "netuid": NETUID,
                "mecid": 0,
                "commit": b"x" * 300,
                "reveal_round": 5,
                "commit_reveal_version": 4,
            },
            Call.SET_COMMITMENT: {
                "netuid": NETUID,
                "info": {"fields": [[{"TimelockEncrypted": {"encrypted": b"z" * 90, "reveal_round": 7}}]]},
            },
            Call.TRANSFER: {"dest": address_of_seed("//Thief"), "value": 5},
            Call.REMARK: {"remark": b"hello"},
        }[call]
        return bytes(compose_call(codec, call, arguments | changes).data)

    async def request(self, **changes: Any) -> SignCall:
        """An ordinary request, or one with something wrong."""
        codec = await self.client.signing_codec()
        head = await self.client.finalized_head()
        fields = {
            "call": self.call(codec),
            "spec_version": int(codec.spec_version),
            "transaction_version": int(codec.transaction_version),
            "genesis_hash": await self.client.genesis_hash(),
            "nonce": 0,
            "era_period": 64,
            "era_block": head.number,
            "era_block_hash": head.hash,
        }
        return SignCall(**(fields | changes))


@pytest.fixture
async def chain(runtime_cache: Path) -> AsyncIterator[tuple[Devnet, ChainClient]]:
    """A manual devnet with one block, and a client."""
    genesis = genesis_of(tempo=12, commit_reveal=False, weights_rate_limit=1)
    async with Devnet(DevnetConfig(port=0, manual=True, genesis=genesis)) as node:
        node.produce_block()
        async with ChainClient([node.url], rpc_per_second=100_000, runtime_cache_dir=runtime_cache) as client:
            yield node, client


@pytest.fixture
async def stage(chain: tuple[Devnet, ChainClient], tmp_path: Path) -> AsyncIterator[Stage]:
    """A running signer process."""
    node, client = chain
    process = Process(tmp_path, node.url)
    try:
        await asyncio.to_thread(process.start)
        yield Stage(node, client, process)
    finally:
        await asyncio.to_thread(process.close)


def send(path: Path, data: bytes) -> bytes:
    """Send bytes, then nothing more, and return everything that comes back."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(120)
        link.connect(str(path))
        try:
            link.sendall(data)
            link.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it hung up already; what it said can still be read
        received = b""
        try:
            while part := link.recv(65536):
                received += part
        except ConnectionResetError:
            pass
        return received


async def ask(path: Path, document: Hello | SignCall | BindKey) -> Any:
    """Send one request and return the answer."""
    data = await asyncio.to_thread(send, path, pack(document))
    assert len(data) == HEADER.size + length_of(data[: HEADER.size])
    return read_answer(data[HEADER.size :])


async def code_of(stage: Stage, request: SignCall | BindKey) -> str:
    """The code with which a request is refused; "" when it is signed."""
    answer = await ask(stage.process.path, request)
    return answer.code if isinstance(answer, Refusal) else ""


async def test_its_extrinsics_are_the_files(stage: Stage) -> None:
    """Short and long payloads are accepted by the chain, exactly as with the key in this process."""
    signer = await asyncio.to_thread(SocketSigner.connect, stage.process.path, NETUID)
    key = signer_of_seed(SEED)
    assert (signer.ss58_address, signer.public_key, signer.crypto_type) == (
        key.ss58_address,
        bytes(key.public_key),
        key.crypto_type,
    )
    at = await stage.client.finalized_head()
    arguments: dict[str, object] = {
        "netuid": NETUID,
        "info": {"fields": [[{"Raw128": b"x" * 128}]]},
    }
    nonce = await stage.client.next_nonce(signer.ss58_address)
    signed = await stage.client.sign(Call.SET_COMMITMENT, arguments, signer, nonce=nonce, at=at, period=64)
    assert (await stage.client.submit(signed.data)).fate == "accepted"
    stage.node.produce_block()
    assert await stage.client.next_nonce(signer.ss58_address) == nonce + 1
    (line,) = await stage.process.logged("signer.signed", 1)
    assert (line["call"], line["netuid"], line["nonce"]) == ("Commitments.set_commitment", NETUID, nonce)


async def test_what_is_signed_and_what_is_not(stage: Stage) -> None:
    """The three calls of a validator for its own subnet, and nothing else, not even inside of another call."""
    codec = await stage.client.signing_codec()
    for call in (Call.SET_WEIGHTS, Call.COMMIT_WEIGHTS, Call.SET_COMMITMENT):
        assert await code_of(stage, await stage.request(call=stage.call(codec, call))) == ""
        other = stage.call(codec, call, netuid=NETUID + 1)
        assert await code_of(stage, await stage.request(call=other)) == "SIGNER_SUBNET_REFUSED"
    nested = compose_call(
        codec, Call.BATCH_ALL, {"calls": [NestedCall(Call.TRANSFER, {"dest": address_of_seed("//Thief"), "value": 1})]}
    )
    for data in (stage.call(codec, Call.TRANSFER), stage.call(codec, Call.REMARK), bytes(nested.data)):
        assert await code_of(stage, await stage.request(call=data)) == "SIGNER_CALL_REFUSED"
    assert len(await stage.process.logged("signer.refused", 6)) == 6
    assert len(await stage.process.logged("signer.signed", 3)) == 3


async def test_it_vouches_for_a_receipt_key_and_for_nothing_that_looks_like_one(stage: Stage) -> None:
    """The one statement besides extrinsics: for the signer's own address, subnet and chain, over 32 bytes of a key."""
    genesis = await stage.client.genesis_hash()
    signer = await asyncio.to_thread(SocketSigner.connect, stage.process.path, NETUID)
    binding = binding_of(signer, bytes(range(32)), genesis, NETUID)
    assert verify_binding(await sign_binding(signer, binding)) == binding
    assert binding.hotkey == address_of_seed(SEED)
    for request, code in (
        (BindKey(bytes(31), genesis), "SIGNER_KEY_REFUSED"),
        (BindKey(b"x" * 300, genesis), "SIGNER_KEY_REFUSED"),
        (BindKey(bytes(32), "0x" + "11" * 32), "SIGNER_CHAIN_DIFFERS"),
    ):
        assert await code_of(stage, request) == code
    with pytest.raises(WalletError) as foreign:  # what is signed names the signer's subnet, whatever was asked for
        await sign_binding(signer, msgspec.structs.replace(binding, netuid=NETUID + 1))
    assert foreign.value.code == "SIGNER_KEY_CHANGED"
    line = (await stage.process.logged("signer.signed", 1))[0]
    assert (line["call"], line["receipt_key"]) == ("key binding", bytes(range(32)).hex())


async def test_requests_that_would_frame_it_otherwise(stage: Stage) -> None:
    """Bytes beside the call, loose hashes, immortal or endless eras, other chains and other runtimes are refused."""
    good = await stage.request()
    for changes, code in (
        ({"call": good.call + b"\0"}, "SIGNER_CALL_UNREADABLE"),
        ({"call": good.call[:-1]}, "SIGNER_CALL_UNREADABLE"),
        ({"call": b""}, "SIGNER_CALL_UNREADABLE"),
        ({"call": bytes(32)}, "SIGNER_CALL_REFUSED"),
        ({"call": b"\xff" * 32}, "SIGNER_CALL_UNREADABLE"),
        ({"call": b"\x07" * 20_000}, "SIGNER_CALL_UNREADABLE"),
        ({"era_period": 0}, "SIGNER_ERA_REFUSED"),
        ({"era_period": 512}, "SIGNER_ERA_REFUSED"),
        ({"era_period": 63}, "SIGNER_ERA_REFUSED"),
        ({"era_block": -1}, "SIGNER_ERA_REFUSED"),
        ({"nonce": 2**63}, "SIGNER_ERA_REFUSED"),
        ({"era_block_hash": "0x00"}, "SIGNER_ERA_REFUSED"),
        ({"genesis_hash": "0x" + "11" * 32}, "SIGNER_CHAIN_DIFFERS"),
        ({"spec_version": 1}, "SIGNER_RUNTIME_UNKNOWN"),
        ({"transaction_version": 77}, "SIGNER_RUNTIME_UNKNOWN"),
    ):
        found = await code_of(stage, msgspec.structs.replace(good, **changes))
        if changes.get("call") == bytes(32):  # which call these bytes are depends on the runtime; signed they are not
            assert found in (code, "SIGNER_CALL_UNREADABLE")
        else:
            assert found == code, changes
    assert stage.process.events("signer.signed") == []
    assert await code_of(stage, good) == ""


GARBAGE = {
    "http": b"GET / HTTP/1.1\r\n\r\n",
    "empty": HEADER.pack(0),
    "too long": HEADER.pack(FRAME_BYTES + 1) + b"x" * 100,
    "endless": HEADER.pack(2**32 - 1),
    "no document": HEADER.pack(2) + b"{}",
    "no text": HEADER.pack(4) + b"\xff\xfe\x00\x01",
    "nested": HEADER.pack(FRAME_BYTES) + b"[" * FRAME_BYTES,
    "unknown": HEADER.pack(28) + b'{"type":"sign","message":1}\n',
    "more keys": HEADER.pack(28) + b'{"type":"hello","more":true}',
}


async def test_garbage_is_refused_and_harms_nobody(stage: Stage) -> None:
    """One refusal, the end of the connection, and the next client is answered, by the same process all the time."""
    for name, data in GARBAGE.items():
        answer = await asyncio.to_thread(send, stage.process.path, data)
        refusal = read_answer(answer[HEADER.size :])
        assert isinstance(refusal, Refusal), name
        assert refusal.code == "SIGNER_FRAME_INVALID", name
        assert isinstance(await ask(stage.process.path, Hello()), Identity), name


async def test_silent_clients_hold_nobody_up(stage: Stage) -> None:
    """Clients that send half a frame take up connections, and only so many; others are answered or told to wait."""
    held = []
    for _ in range(12):
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        link.connect(str(stage.process.path))
        link.sendall(HEADER.pack(1000) + b"{")
        held.append(link)
    try:
        assert isinstance(await ask(stage.process.path, Hello()), Identity)
        for _ in range(20):
            link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            link.setblocking(False)
            try:
                link.connect(str(stage.process.path))
            except BlockingIOError:  # the queue of waiting connections is full
                link.close()
                break
            held.append(link)
        link.close()
    finally:
        for link in held:
            link.close()
    await asyncio.to_thread(_wait_for_answer, stage.process.path)


def _wait_for_answer(path: Path) -> None:
    while not isinstance(read_answer(send(path, pack(Hello()))[HEADER.size :]), Identity):
        threading.Event().wait(0.05)


async def test_other_users_are_refused(chain: tuple[Devnet, ChainClient], tmp_path: Path) -> None:
    """Who may ask is decided by what the kernel says of the other end."""
    _, client = chain
    seen: list[tuple[str, dict[str, object]]] = []
    ready = asyncio.Event()
    server = SignerServer(
        signer_of_seed(SEED),
        NETUID,
        ChainRuntime(client),
        frozenset({os.geteuid() + 1}),
        lambda event, **keys: seen.append((event, keys)),
    )
    path = tmp_path / "s.sock"
    serving = asyncio.create_task(server.serve(path, ready.set))
    await ready.wait()
    with pytest.raises(WalletError) as caught:
        await asyncio.to_thread(SocketSigner.connect, path, NETUID)
    assert caught.value.code == "SIGNER_PEER_REFUSED"
    assert seen == [("signer.peer_refused", {"uid": os.geteuid()})]
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    assert not path.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")
async def test_a_process_of_another_user(stage: Stage, tmp_path: Path) -> None:
    """A stranger cannot even connect; one that is named can, and is answered."""
    for folder in (tmp_path, *tmp_path.parents):
        folder.chmod(folder.stat().st_mode | 0o055)
    program = (
        "import os, socket, sys; os.setgroups([]); os.setgid(65534); os.setuid(65534); "
        "s = socket.socket(socket.AF_UNIX); s.settimeout(60); s.connect(sys.argv[1]); "
        "s.sendall(bytes.fromhex(sys.argv[2])); print(s.recv(9999).hex())"
    )

    def stranger() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", program, str(stage.process.path), pack(Hello()).hex()]
        return subprocess.run(command, capture_output=True, text=True, timeout=120)

    denied = await asyncio.to_thread(stranger)
    assert "PermissionError" in denied.stderr
    await asyncio.to_thread(stage.process.stop)
    await asyncio.to_thread(stage.process.start, "--allow-uid", "65534")
    allowed = await asyncio.to_thread(stranger)
    answer = read_answer(bytes.fromhex(allowed.stdout.strip())[HEADER.size :])
    assert isinstance(answer, Identity)


async def test_a_signer_for_another_subnet_is_refused_at_once(stage: Stage) -> None:
    """The node says so when it starts, not at the first publication."""
    with pytest.raises(WalletError) as caught:
        await asyncio.to_thread(SocketSigner.connect, stage.process.path, NETUID + 1)
    assert caught.value.code == "SIGNER_SUBNET_REFUSED"


async def test_killed_and_restarted_while_weights_are_published(stage: Stage) -> None:
    """While the signer is gone nothing is published and nothing is lost; afterwards one extrinsic per epoch."""
    signer = await asyncio.to_thread(SocketSigner.connect, stage.process.path, NETUID)
    journal = MemoryJournal()
    options = PublicationOptions(netuid=NETUID, profile="devnet", era_blocks=16)
    nonce = await stage.client.next_nonce(signer.ss58_address)

    async def advance() -> None:
        block = await stage.client.finalized_head()
        epoch = (await read_hyperparameters(stage.client, NETUID, block)).epoch
        await step(stage.client, signer, journal, target_of(epoch), options)

    await asyncio.to_thread(stage.process.stop, signal.SIGKILL)
    assert stage.process.path.exists()  # nobody tidied up
    missed: list[str] = []
    while len(missed) < 3:
        try:
            await advance()
        except NetworkError as error:
            missed.append(error.code)
        assert await journal.records() == ()
        stage.node.produce_block()
    assert set(missed) == {"SIGNER_UNREACHABLE"}
    await asyncio.to_thread(stage.process.start)
    while (head := await journal.head()) is None or head.is_open:
        await advance()
        stage.node.produce_block()
    assert head.status == "confirmed", head
    assert await stage.client.next_nonce(signer.ss58_address) == nonce + 1
    assert len([record for record in await journal.records() if record.status == "intent"]) == 1


async def test_another_key_after_a_restart_is_noticed(stage: Stage) -> None:
    """A signature is believed only under the key that was named at the start."""
    signer = await asyncio.to_thread(SocketSigner.connect, stage.process.path, NETUID)
    await asyncio.to_thread(stage.process.stop)
    create_wallet(stage.process.path.parent / "wallets", "other", "default", seed="//Other")
    await asyncio.to_thread(stage.process.start, "--wallet", "other")
    at = await stage.client.finalized_head()
    arguments: dict[str, object] = {"netuid": NETUID, "info": {"fields": [[{"Raw4": b"abcd"}]]}}
    with pytest.raises(WalletError) as caught:
        await stage.client.sign(Call.SET_COMMITMENT, arguments, signer, nonce=0, at=at, period=64)
    assert caught.value.code == "SIGNER_KEY_CHANGED"


async def test_loose_bytes_are_never_signed(stage: Stage) -> None:
    """The plain `sign` of the protocol is refused before anything is sent."""
    signer = await asyncio.to_thread(SocketSigner.connect, stage.process.path, NETUID)
    with pytest.raises(WalletError) as caught:
        signer.sign(b"anything")
    assert caught.value.code == "SIGNER_CALL_UNREADABLE"


async def test_one_socket_has_one_signer(stage: Stage, tmp_path: Path) -> None:
    """A second signer is refused, and so is a path where a file lies; SIGTERM removes the socket and is success."""
    server = SignerServer(
        signer_of_seed(SEED), NETUID, ChainRuntime(stage.client), frozenset({os.geteuid()}), lambda *_, **__: None
    )
    file = tmp_path / "file"
    file.write_bytes(b"")
    for path in (stage.process.path, file, tmp_path / "missing" / "s", tmp_path / ("x" * 200)):
        with pytest.raises(HostError) as caught:
            await server.serve(path)
        assert caught.value.code == "SIGNER_SOCKET_UNUSABLE"
    assert file.exists()
    assert await asyncio.to_thread(stage.process.stop) == 0
    assert not stage.process.path.exists()


def test_a_socket_that_others_could_replace_is_not_made(tmp_path: Path) -> None:
    """A folder open to every user is refused unless it is sticky, and a link is no place for a socket."""
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    link = tmp_path / "link"
    link.symlink_to(folder / "elsewhere")
    for path in (folder / "s", link):
        with pytest.raises(HostError) as caught:
            bind(path, others=False)
        assert caught.value.code == "SIGNER_SOCKET_UNUSABLE"
    assert list(folder.iterdir()) == []
    for mode in (0o1777, 0o770, 0o755):
        folder.chmod(mode)
        bind(folder / f"{mode:o}", others=False).close()


@pytest.fixture
def stranger(tmp_path: Path) -> Iterator[Path]:
    """Something that answers at a socket, and is no signer."""
    path = tmp_path / "strange.sock"
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(str(path))
    listening.listen()

    def answer() -> None:
        while True:
            try:
                link, _ = listening.accept()
            except OSError:
                return
            with link:
                link.recv(100)
                link.sendall(HEADER.pack(5) + b"hello")

    thread = threading.Thread(target=answer)
    thread.start()
    yield path
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()
    thread.join()


def test_what_is_no_signer_is_named(stranger: Path, tmp_path: Path) -> None:
    """An odd answer is one error, and nobody there is another that may heal."""
    with pytest.raises(WalletError) as odd:
        SocketSigner.connect(stranger, NETUID)
    assert odd.value.code == "SIGNER_ANSWER_INVALID"
    with pytest.raises(NetworkError) as nobody:
        SocketSigner.connect(tmp_path / "nobody.sock", NETUID)
    assert nobody.value.code == "SIGNER_UNREACHABLE"
