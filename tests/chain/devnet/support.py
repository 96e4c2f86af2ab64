"""Keys, a genesis and a driver that signs extrinsics without the SDK's client."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, field
from typing import Any

import bittensor_core
from websockets.asyncio.client import ClientConnection

from chain.devnet.block import Block
from chain.devnet.chain import Chain
from chain.devnet.codec import codec, codec_of
from chain.devnet.extrinsics import Extrinsic
from chain.devnet.faults import PoolError
from chain.devnet.genesis_document import Genesis, NeuronSpec, OwnerSpec
from chain.devnet.pallets import system
from chain.devnet.runtime_spec import RuntimeSpec
from chain.devnet.scale import byte_vector, compact, u16, u64

NETUID = 2
VALIDATOR, MINER, OTHER, OWNER = "//Bob", "//Charlie", "//Dave", "//Alice"


@functools.cache
def keypair(uri: str) -> Any:
    """Return the development key of a uri."""
    return bittensor_core.Keypair.create_from_uri(uri)


def address(uri: str) -> str:
    """Return the ss58 address of a development key."""
    return str(keypair(uri).ss58_address)


def public(uri: str) -> bytes:
    """Return the public key of a development key."""
    return bytes(keypair(uri).public_key)


def hot(person: str) -> str:
    """Return the uri of a person's hotkey."""
    return person + "//hot"


def genesis(**changes: Any) -> Genesis:
    """Return a small subnet: a permitted validator, a miner without permit, and one funded outsider."""
    fields: dict[str, Any] = {
        "netuid": NETUID,
        "tempo": 10,
        "commit_reveal": False,
        "weights_rate_limit": 3,
        "owner": OwnerSpec(address(hot(OWNER)), address(OWNER)),
        "neurons": (
            NeuronSpec(address(hot(VALIDATOR)), address(VALIDATOR), permit=True, stake=1_000),
            NeuronSpec(address(hot(MINER)), address(MINER)),
        ),
        "balances": dict.fromkeys(map(address, (VALIDATOR, MINER, OTHER, OWNER)), 1_000)
        | dict.fromkeys(map(address, (hot(VALIDATOR), hot(MINER))), 1),
    }
    return Genesis(**(fields | changes))


@dataclass
class Wallet:
    """What the SDK needs of a wallet."""

    person: str
    coldkey: Any = field(init=False)
    coldkeypub: Any = field(init=False)
    hotkey: Any = field(init=False)
    name: str = field(init=False)
    hotkey_str: str = field(init=False, default="hot")

    def __post_init__(self) -> None:
        self.name = self.person
        self.coldkey = self.coldkeypub = keypair(self.person)
        self.hotkey = keypair(hot(self.person))


@dataclass
class Signing:
    """How an extrinsic is signed; None takes the right value."""

    nonce: int | None = None
    tip: int = 0
    era: Any = "00"
    birth: int = 0
    genesis: bytes | None = None
    flip_signature: bool = False
    spec: RuntimeSpec | None = None


def sign(chain: Chain, uri: str, call: bytes, how: Signing | None = None) -> bytes:
    """Return a signed extrinsic."""
    how = how or Signing()
    key = keypair(uri)
    runtime = (codec_of(how.spec) if how.spec else chain.codec)._runtime
    nonce = chain.next_nonce(public(uri)) if how.nonce is None else how.nonce
    payload = runtime.signature_payload(
        call,
        era=how.era,
        nonce=nonce,
        tip=how.tip,
        tip_asset_id=None,
        genesis_hash=how.genesis or chain.genesis_hash,
        era_block_hash=chain.blocks[how.birth].hash,
    )
    signature = bytearray(key.sign(bytes(payload)))
    if how.flip_signature:
        signature[5] ^= 1
    raw, _ = runtime.encode_signed_extrinsic(
        call,
        public_key=key.public_key,
        signature=bytes(signature),
        signature_version=1,
        era=how.era,
        nonce=nonce,
        tip=how.tip,
        tip_asset_id=None,
    )
    return bytes(raw)


def compose(pallet: str, function: str, **params: Any) -> bytes:
    """Return the encoding of a call."""
    return codec().compose_call(pallet, function, params)


class Driver:
    """Signs, submits and seals on a chain in memory, and reads what happened."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain

    def submit(self, uri: str, call: bytes, how: Signing | None = None) -> Extrinsic:
        """Put a signed call into the pool."""
        return self.chain.submit(sign(self.chain, uri, call, how))

    def send(self, uri: str, call: bytes) -> str:
        """Submit a call, make a block, and return the name of its error, "" for success, or why the pool refused it."""
        try:
            sent = self.submit(uri, call)
        except PoolError as error:
            self.chain.build()
            return f"{error.code} {error.data}"
        block = self.chain.build()
        return self.outcome(block, block.extrinsics.index(sent.raw))

    def outcome(self, block: Block, index: int) -> str:
        """Return the error name of an extrinsic in a block, or ""."""
        for event in self.events(block):
            if event["extrinsic_idx"] == index and event["event_id"] == "ExtrinsicFailed":
                error = event["attributes"]["dispatch_error"]
                if not isinstance(error, dict):
                    return str(error)
                module = error["Module"]
                return str(
                    self.chain.codec._runtime.module_error(module["index"], bytes.fromhex(module["error"][2:])[0])[0]
                )
        return ""

    def events(self, block: Block | None = None) -> list[dict[str, Any]]:
        """Return the decoded events of a block."""
        found: list[dict[str, Any]] = self.chain.view(block).get("System", "Events")
        return found

    def named(self, *names: str, block: Block | None = None) -> list[tuple[str, Any]]:
        """Return (name, fields) of the events with these names, in order."""
        return [(e["event_id"], e["attributes"]) for e in self.events(block) if e["event_id"] in names]

    def blocks(self, count: int) -> Block:
        """Make blocks and return the last."""
        for _ in range(count):
            block = self.chain.build()
        return block

    def get(self, item: str, *params: Any, pallet: str = "SubtensorModule") -> Any:
        """Return a decoded storage value at the head."""
        return self.chain.view().get(pallet, item, *params)

    def nonce(self, uri: str) -> int:
        """Return the stored nonce of a key."""
        return system.nonce(self.chain.view(), public(uri))


def commitment(*fields: bytes, netuid: int = NETUID) -> bytes:
    """Return a `set_commitment` call with raw fields."""
    return bytes([18, 0]) + u16(netuid) + compact(len(fields)) + b"".join(fields)


def plain_field(data: bytes) -> bytes:
    """Return a `RawN` field."""
    return bytes([1 + len(data)]) + data


def big_field(data: bytes) -> bytes:
    """Return a `BigRaw` field."""
    return bytes([136]) + byte_vector(data)


def sealed_field(ciphertext: bytes, reveal_round: int) -> bytes:
    """Return a `TimelockEncrypted` field."""
    return bytes([134]) + byte_vector(ciphertext) + u64(reveal_round)


def row_payload(uri: str, row: dict[int, int], version_key: int = 0) -> bytes:
    """Return the plaintext of a weight commit."""
    uids = compact(len(row)) + b"".join(map(u16, row))
    values = compact(len(row)) + b"".join(map(u16, row.values()))
    return byte_vector(public(uri)) + uids + values + u64(version_key)


class RawClient:
    """A bare JSON-RPC client: requests by number, notifications in a list."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.notes: list[dict[str, Any]] = []
        self._number = 0

    async def ask(self, method: str, *params: Any) -> dict[str, Any]:
        """Send one request and return its whole answer."""
        self._number += 1
        request = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": list(params)}
        await self.connection.send(json.dumps(request))
        while True:
            message = json.loads(await self.connection.recv())
            if isinstance(message, dict) and message.get("id") == self._number:
                return dict(message)
            self.notes.append(message)

    async def result(self, method: str, *params: Any) -> Any:
        """Send one request and return its result."""
        answer = await self.ask(method, *params)
        assert "error" not in answer, answer
        return answer["result"]

    async def drain(self) -> list[Any]:
        """Return the results of all notifications so far, in order."""
        await self.ask("system_name")
        notes, self.notes = self.notes, []
        return [note["params"]["result"] for note in notes]
