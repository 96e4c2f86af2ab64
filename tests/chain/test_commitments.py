"""The miner's side: commit, and see what became of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from chain.commitments import commitment_state, submit_commitment
from chain.payload import Payload, encode_payload, sealable_payload
from chain.reveals import scan_reveals
from chain.rpc import PoolAnswer
from config.errors import ChainError, ConfigurationError, NetworkError, WalletError

HASH = "0123456789abcdef" * 4
GOOD = encode_payload(Payload(HASH, "https://h.example/a.tar.gz"))


async def submit(world: Any, name: str = "Ann", payload: bytes = GOOD, client: Any = None) -> Any:
    """Commit a payload while the chain makes blocks."""
    task = asyncio.create_task(
        submit_commitment(
            client or world.client,
            world.signer(name),
            world.netuid,
            payload,
            profile="devnet",
            reveal_in_blocks=6,
            poll_seconds=0.01,
        )
    )
    while not task.done():
        if world.node.chain.has_ready():
            world.blocks()
        await asyncio.sleep(0.002)
    return task.result()


async def state(world: Any, name: str = "Ann") -> Any:
    """The commitment state at the finalized head."""
    return await commitment_state(world.client, world.netuid, world.hotkey(name), await world.client.finalized_head())


async def test_a_commitment_travels_from_none_to_sealed_to_revealed(world: Any) -> None:
    """Each state is visible, and the reveal is the payload that was committed."""
    assert (await state(world)).status == "none"
    receipt = await submit(world)
    sealed = await state(world)
    assert (sealed.status, sealed.reveal_round) == ("sealed", receipt.reveal_round)
    assert sealed.committed_block == receipt.block.number
    assert sealed.last_round < receipt.reveal_round
    world.blocks(8)
    revealed = await state(world)
    assert revealed.status == "revealed"
    (shown,) = revealed.reveals
    assert (shown.content_hash, shown.url, shown.reason) == (HASH, "https://h.example/a.tar.gz", "")


async def test_what_is_submitted_is_what_the_validator_reads(world: Any) -> None:
    """A commitment made here arrives as a reveal there."""
    await submit(world)
    world.blocks(8)
    result = await scan_reveals(world.client, world.netuid, cursor=None, start_block=1)
    assert [(reveal.hotkey, reveal.reason) for reveal in result.reveals] == [(world.hotkey("Ann"), "")]


async def test_an_odd_reveal_is_shown_with_its_code(world: Any) -> None:
    """The miner sees the code the validator sees."""
    await submit(world, payload=b"odd")
    world.blocks(8)
    assert [shown.reason for shown in (await state(world)).reveals] == ["PAYLOAD_NOT_JSON"]


async def test_an_unregistered_hotkey_is_refused_before_signing(world: Any) -> None:
    """The error names the hotkey, the subnet and the block, and nothing was sent."""
    with pytest.raises(WalletError) as caught:
        await submit(world, "Nobody")
    assert caught.value.code == "HOTKEY_NOT_REGISTERED"
    assert "subnet 2" in caught.value.message
    assert await world.client.next_nonce(world.hotkey("Nobody")) == 0


async def test_a_payload_that_cannot_be_sealed_is_refused_before_signing(world: Any) -> None:
    """Nothing is signed or sent; the longest payload that fits is committed and revealed whole."""
    with pytest.raises(ConfigurationError) as caught:
        await submit(world, payload=b"x" * 781)
    assert caught.value.code == "PAYLOAD_UNSEALABLE"
    assert await world.client.next_nonce(world.hotkey("Ann")) == 0
    url = "https://h.example/" + "a" * (695 - 18)
    await submit(world, payload=sealable_payload(Payload(HASH, url)))
    world.blocks(8)
    assert [(shown.url, shown.reason) for shown in (await state(world)).reveals] == [(url, "")]


async def test_a_wrong_subnet_is_named(world: Any) -> None:
    """A subnet that does not exist is that error, not a registration problem."""
    with pytest.raises(ChainError) as caught:
        await submit_commitment(world.client, world.signer("Ann"), 9, GOOD, profile="devnet")
    assert caught.value.code == "SUBNET_NOT_FOUND"


async def test_a_full_commitment_space_is_refused_in_the_chains_words(world: Any) -> None:
    """After some commitments of one epoch there is no room: the message says how much is used and until when."""

    async def submit_many() -> None:
        for _ in range(12):
            await submit(world)

    with pytest.raises(ChainError) as caught:
        await submit_many()
    assert caught.value.code == "COMMITMENT_SPACE_FULL"
    used = world.node.chain.view().get("Commitments", "UsedSpaceOf", 2, world.hotkey("Ann"))["used_space"]
    assert f"{used} of 3100 bytes in this epoch" in caught.value.message
    assert "from block 20 on" in caught.value.message
    world.blocks_until(20)
    await submit(world)


async def test_an_open_fate_is_said_to_be_open(world: Any) -> None:
    """If nothing is final within the deadline the error says that it may still happen, and until when."""
    client = world.new_client(submit_timeout=0.1)
    with pytest.raises(NetworkError) as caught:
        await submit_commitment(client, world.signer("Ann"), 2, GOOD, profile="devnet", poll_seconds=0.01)
    assert caught.value.code == "EXTRINSIC_UNKNOWN"
    assert "until block" in caught.value.message


async def test_a_lost_extrinsic_ends_with_its_era(world: Any) -> None:
    """Bytes that never reached the chain are reported as never coming, once their era is final."""
    client = world.new_client()

    async def lose(_: bytes) -> PoolAnswer:
        return PoolAnswer("unknown", "lost")

    client.submit = lose
    task = asyncio.create_task(
        submit_commitment(client, world.signer("Ann"), 2, GOOD, profile="devnet", poll_seconds=0.01)
    )
    while not task.done():
        world.blocks(20)
        await asyncio.sleep(0.01)
    with pytest.raises(ChainError) as caught:
        task.result()
    assert caught.value.code == "COMMITMENT_EXPIRED"


async def test_a_refused_extrinsic_is_reported_at_once(world: Any) -> None:
    """The pool's refusal comes with its words."""
    client = world.new_client()

    async def refuse(_: bytes) -> PoolAnswer:
        return PoolAnswer("refused", "Invalid Transaction: no fee")

    client.submit = refuse
    with pytest.raises(ChainError, match="no fee"):
        await submit_commitment(client, world.signer("Ann"), 2, GOOD, profile="devnet")


async def test_a_stale_nonce_is_signed_anew(world: Any) -> None:
    """The pool calls the transaction outdated; with a fresh nonce and era it is committed without anybody's help."""
    await submit(world)
    client = world.new_client()
    real, nonces = client.next_nonce, iter([0])

    async def lagging(address: str) -> int:
        return next(nonces, await real(address))

    client.next_nonce = lagging
    receipt = await submit(world, client=client)
    assert await world.client.account_nonce(world.hotkey("Ann"), receipt.block) == 2


async def test_a_second_program_with_the_same_hotkey_is_named(world: Any) -> None:
    """When every nonce is taken by somebody else, the error says what to stop, after three attempts."""
    await submit(world)
    client = world.new_client()
    asked: list[str] = []

    async def always_late(address: str) -> int:
        asked.append(address)
        return 0

    client.next_nonce = always_late
    with pytest.raises(ChainError) as caught:
        await submit(world, client=client)
    assert caught.value.code == "COMMITMENT_STALE"
    assert "outdated" in caught.value.message
    assert len(asked) == 3


@pytest.mark.parametrize(
    ("field", "status"),
    [
        ({"Raw2": b"hi"}, "plain"),
        ({"TimelockEncrypted": {"encrypted": b"\x00" * 120, "reveal_round": 1003}}, "failed"),
    ],
)
async def test_plain_and_failed_commitments_are_told_apart(world: Any, field: dict[str, Any], status: str) -> None:
    """A commitment in the clear is plain; one the chain could not open is failed."""
    connection = await world.client._connected()
    codec = await connection.codec(None)
    call = codec.compose_call("Commitments", "set_commitment", {"netuid": 2, "info": {"fields": [[field]]}})
    data, _ = await connection.sign(call, world.signer("Ann"), nonce=0, period=64, current=1)
    await world.client.submit(data)
    world.blocks(6)
    assert (await state(world)).status == status
