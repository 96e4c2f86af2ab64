"""Every finalized reveal, once, in order, each with its own fate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from chain.blocks import BlockRef
from chain.devnet.beacon import reveal_round_after, seal
from chain.devnet.fault_plan import Fault
from chain.devnet.genesis_document import NeuronSpec
from chain.payload import Payload, encode_payload
from chain.reveals import Reveal, RevealReader, parse_stored, scan_reveals
from chain.scale import ScaleError, compact
from chain.signer import Signer
from config.errors import ChainError, NetworkError
from tests.chain.devnet.support import address, commitment, sealed_field, sign

HASH = "0123456789abcdef" * 4
GOOD = encode_payload(Payload(HASH, "https://h.example/a.tar.gz"))
OTHER = encode_payload(Payload(HASH, "https://h.example/b.tar.gz", 7, 0))


async def commit(world: Any, signer: Signer, payloads: Sequence[bytes], reveal_at: int) -> None:
    """Commit payloads (one field each) that the devnet reveals in block `reveal_at`; in the next block."""
    head = await world.client.head()
    label = reveal_round_after(head.number, reveal_at - head.number)
    fields = [{"TimelockEncrypted": {"encrypted": seal(data), "reveal_round": label}} for data in payloads]
    connection = await world.client._connected()
    codec = await connection.codec(None)
    call = codec.compose_call("Commitments", "set_commitment", {"netuid": world.netuid, "info": {"fields": [fields]}})
    nonce = await world.client.next_nonce(signer.ss58_address)
    data, _ = await connection.sign(call, signer, nonce=nonce, period=64, current=head.number)
    assert (await world.client.submit(data)).fate == "accepted"


async def scan(world: Any, cursor: BlockRef | None = None, **options: Any) -> Any:
    """One pass from block 1 or the cursor."""
    return await scan_reveals(world.client, world.netuid, cursor=cursor, start_block=1, **options)


def shown(reveals: Sequence[Reveal]) -> list[tuple[str, str]]:
    """Reasons and URLs, in order."""
    return [(reveal.reason, reveal.url) for reveal in reveals]


async def test_a_reveal_is_read_with_everything_that_identifies_it(world: Any) -> None:
    """Block, hash, event, hotkey, registration, payload and its digest are all there."""
    await commit(world, world.signer("Ann"), [OTHER], 6)
    block = world.blocks_until(6)
    found = await scan(world)
    (reveal,) = found.reveals
    assert (found.cursor, found.head, found.caught_up) == (block, block, True)
    assert (reveal.block, reveal.block_hash, reveal.hotkey) == (6, block.hash, world.hotkey("Ann"))
    assert (reveal.registered_block, reveal.sub_index, reveal.reason) == (0, 0, "")
    assert (reveal.content_hash, reveal.url) == (HASH, "https://h.example/b.tar.gz")
    assert (reveal.payment_block, reveal.payment_index) == (7, 0)
    assert bytes.fromhex(reveal.payload_hex) == OTHER
    assert len(reveal.submission_id) == 64


@pytest.mark.parametrize(
    ("odd", "reason"),
    [
        (b"\x00", "PAYLOAD_EMPTY"),  # an empty text with its length prefix
        (b"hello", "PAYLOAD_NOT_JSON"),
        (b"0x7b7d", "PAYLOAD_NOT_JSON"),
        (b"\xff\xfe\x00", "PAYLOAD_NOT_ASCII"),
        (GOOD + b"\n", "PAYLOAD_NOT_CANONICAL"),
        (b"x" * 700, "PAYLOAD_NOT_JSON"),
        (b'{"v":9}', "PAYLOAD_VERSION"),
    ],
)
async def test_an_odd_payload_is_a_row_with_a_code_and_hides_nobody(world: Any, odd: bytes, reason: str) -> None:
    """Beside an odd payload the good one of another miner is read as ever."""
    await commit(world, world.signer("Ann"), [odd], 5)
    await commit(world, world.signer("Bob"), [GOOD], 5)
    world.blocks_until(5)
    by_hotkey = {reveal.hotkey: reveal for reveal in (await scan(world)).reveals}
    assert by_hotkey[world.hotkey("Ann")].reason == reason
    assert by_hotkey[world.hotkey("Ann")].content_hash == ""
    assert by_hotkey[world.hotkey("Bob")].reason == ""


async def test_one_odd_payload_hides_none_of_255_others(make_world: Any) -> None:
    """A whole subnet reveals in one block, one of it bytes that are no text: one row with a code, 255 good ones."""
    hotkeys = [f"//crowd{number}" for number in range(256)]
    neurons = tuple(NeuronSpec(address(uri), address("//cold")) for uri in hotkeys)
    world = await make_world(neurons=neurons)
    chain = world.node.chain
    label = reveal_round_after(chain.head.number, 5)
    good, odd = sealed_field(seal(GOOD), label), sealed_field(seal(b"\xff\xfe\x00"), label)
    for uri in hotkeys:
        chain.submit(sign(chain, uri, commitment(odd if uri == "//crowd77" else good)))
    world.blocks(6)
    reveals = (await scan(world)).reveals
    assert {one.hotkey for one in reveals} == set(map(address, hotkeys))
    assert [(one.hotkey, one.reason) for one in reveals if one.reason] == [(address("//crowd77"), "PAYLOAD_NOT_ASCII")]
    assert len(reveals) == 256


async def test_both_framings_are_read(world: Any) -> None:
    """Old clients seal a length prefix before the text; the reveal and its digest are the same."""
    await commit(world, world.signer("Ann"), [GOOD], 5)
    await commit(world, world.signer("Bob"), [compact(len(GOOD)) + GOOD], 5)
    world.blocks_until(5)
    reveals = (await scan(world)).reveals
    assert shown(reveals) == [("", "https://h.example/a.tar.gz")] * 2
    assert len({reveal.payload_digest for reveal in reveals}) == 1


async def test_two_reveals_of_one_hotkey_in_one_block_are_two_rows_in_payload_order(world: Any) -> None:
    """Several fields opened together give sub-indices by payload bytes, whatever their order in the commitment."""
    first, second = sorted((GOOD, OTHER))
    await commit(world, world.signer("Ann"), [second, b"odd", first], 5)
    world.blocks_until(5)
    reveals = (await scan(world)).reveals
    assert [reveal.sub_index for reveal in reveals] == [0, 1, 2]
    assert [bytes.fromhex(reveal.payload_hex) for reveal in reveals] == sorted([b"odd", first, second])
    assert len({reveal.event_index for reveal in reveals}) == 1
    assert len({reveal.submission_id for reveal in reveals}) == 3


async def test_order_is_block_then_event(world: Any) -> None:
    """Reveals of several hotkeys come in the order of their events, block by block."""
    for name, at in (("Cid", 6), ("Bob", 5), ("Ann", 6)):
        await commit(world, world.signer(name), [GOOD], at)
    world.blocks_until(6)
    reveals = (await scan(world)).reveals
    assert [reveal.order_key for reveal in reveals] == sorted(reveal.order_key for reveal in reveals)
    assert [reveal.block for reveal in reveals] == [5, 6, 6]
    assert reveals[1].event_index < reveals[2].event_index


async def test_replay_after_a_gap_finds_each_reveal_once(world: Any) -> None:
    """However the passes cut the range, each reveal appears in exactly one of them."""
    for name, at in (("Ann", 4), ("Bob", 9), ("Cid", 14)):
        await commit(world, world.signer(name), [GOOD], at)
    world.blocks_until(4)
    first = await scan(world)
    world.blocks_until(20)  # an outage: nobody looked at blocks 5 to 20
    found, cursor, passes = list(first.reveals), first.cursor, 0
    while not (result := await scan(world, cursor, max_blocks=3)).caught_up:
        found += result.reveals
        cursor = result.cursor
        passes += 1
    found += result.reveals
    assert passes == 5
    assert [reveal.block for reveal in found] == [4, 9, 14]
    whole = await scan(world)
    assert list(whole.reveals) == found
    assert (await scan(world, result.cursor)).reveals == ()


async def test_a_reveal_that_left_the_ring_of_ten_is_still_found(world: Any) -> None:
    """Storage keeps ten reveals per hotkey; older ones are read at their own block."""
    heights = range(4, 52, 4)  # slow enough for the commitment space of an epoch
    for at in heights:
        await commit(world, world.signer("Ann"), [encode_payload(Payload(HASH, f"https://h.example/{at}"))], at)
        world.blocks_until(at)
    reveals = (await scan(world)).reveals
    assert [reveal.url for reveal in reveals] == [f"https://h.example/{at}" for at in heights]


async def test_only_final_blocks_are_read(make_world: Any) -> None:
    """A reveal in a block that is not final yet is not reported yet."""
    world = await make_world(finality_lag=3)
    await commit(world, world.signer("Ann"), [GOOD], 5)
    world.blocks_until(7)
    assert (await scan(world)).reveals == ()
    world.blocks(1)
    assert len((await scan(world)).reveals) == 1


async def test_a_start_above_the_finalized_head_waits(world: Any) -> None:
    """Nothing is scanned and no cursor is made up before the start block is final."""
    result = await scan_reveals(world.client, world.netuid, cursor=None, start_block=99)
    assert (result.cursor, result.reveals, result.caught_up) == (None, (), False)


@pytest.mark.parametrize("height", [1, 3])
async def test_a_changed_hash_under_the_cursor_stops_the_scan(world: Any, height: int) -> None:
    """A cursor that is not on this chain is an error that names both hashes, at the head and below it."""
    world.blocks_until(3)
    foreign = BlockRef(height, "0x" + "ab" * 32)
    with pytest.raises(ChainError) as caught:
        await scan(world, foreign)
    assert caught.value.code == "CURSOR_HASH_CHANGED"
    assert foreign.hash in caught.value.message


async def test_a_cursor_ahead_of_a_lagging_endpoint_stays(world: Any) -> None:
    """An endpoint that is behind does not move the cursor back."""
    ahead = BlockRef(500, "0x" + "cd" * 32)
    result = await scan(world, ahead)
    assert (result.cursor, result.reveals) == (ahead, ())


async def test_a_stored_reveal_without_event_fails_the_pass(world: Any) -> None:
    """Storage that knows more than the events is a disagreement, not a silent loss."""
    entry = (1).to_bytes(8, "little")
    await raw_row(world, "Ann", compact(1) + compact(len(GOOD)) + GOOD + entry)
    with pytest.raises(NetworkError) as caught:
        await scan(world)
    assert caught.value.code == "REVEAL_SOURCES_DISAGREE"


def forgetful(world: Any, hotkey: str) -> None:
    """Make the client answer that `hotkey` has no stored reveals when it is asked for its row."""
    real = world.client.read_raw

    async def forget(block: BlockRef, reads: Any) -> Any:
        rows = zip(reads, await real(block, reads), strict=True)
        return [None if read[1][1] == hotkey else row for read, row in rows]

    world.client.read_raw = forget


async def test_an_event_without_stored_reveal_ends_the_pass_before_its_block(world: Any) -> None:
    """Events that know more than storage are a disagreement, too: earlier blocks count, the next pass fails."""
    await commit(world, world.signer("Ann"), [GOOD], 5)
    world.blocks_until(5)
    forgetful(world, world.hotkey("Ann"))
    first = await scan(world)
    assert (first.cursor.number, first.reveals, first.caught_up) == (4, (), False)
    with pytest.raises(NetworkError) as caught:
        await scan(world, first.cursor)
    assert caught.value.code == "REVEAL_SOURCES_DISAGREE"
    assert "block 5 shows 1 reveals" in caught.value.message


async def read_until_settled(world: Any, passes: int) -> tuple[list[Reveal], int]:
    """Read from block 1 with one reader as the node does; return the reveals and how many passes failed."""
    reader = RevealReader(world.client, world.netuid, dispute_passes=passes)
    found: list[Reveal] = []
    cursor, failed = None, 0
    while cursor is None or cursor.number < world.node.chain.finalized.number:
        try:
            result = await reader.scan(cursor, 1)
        except NetworkError as error:
            failed += 1
            if error.code != "REVEAL_SOURCES_DISAGREE" or failed > 20:
                raise
            continue
        found += result.reveals
        cursor = result.cursor
    return found, failed


async def test_a_lasting_disagreement_is_recorded_and_the_reading_goes_on(world: Any) -> None:
    """After its passes an announced reveal without payload is a row that says so; the neighbour's counts as ever."""
    await commit(world, world.signer("Ann"), [GOOD], 5)
    await commit(world, world.signer("Bob"), [GOOD], 5)
    await commit(world, world.signer("Cid"), [OTHER], 7)
    world.blocks_until(8)
    forgetful(world, world.hotkey("Ann"))
    found, failed = await read_until_settled(world, passes=4)
    assert [(one.block, one.hotkey, one.reason) for one in found if one.hotkey != world.hotkey("Ann")] == [
        (5, world.hotkey("Bob"), ""),
        (7, world.hotkey("Cid"), ""),
    ]
    (lost,) = (one for one in found if one.hotkey == world.hotkey("Ann"))
    assert (lost.reason, lost.payload_hex, lost.registered_block) == ("REVEAL_NOT_STORED", "", 0)
    assert failed == 2  # the first of four passes made progress up to block 4, the last one recorded


async def test_a_stored_reveal_that_no_event_ever_shows_is_recorded_too(world: Any) -> None:
    """It keeps its payload for the record, comes after everything else of its block, and is not judged."""
    await commit(world, world.signer("Ann"), [GOOD], 5)
    await commit(world, world.signer("Bob"), [OTHER], 5)
    world.blocks_until(6)
    real = world.client.linked_events

    async def omit(block: BlockRef) -> Any:
        parent, events = await real(block)
        return parent, tuple(one for one in events if "who" not in str(one) or world.hotkey("Ann") not in str(one))

    world.client.linked_events = omit
    found, _ = await read_until_settled(world, passes=3)
    assert [(one.hotkey, one.reason) for one in found] == [
        (world.hotkey("Bob"), ""),
        (world.hotkey("Ann"), "REVEAL_WITHOUT_EVENT"),
    ]
    assert bytes.fromhex(found[1].payload_hex) == GOOD
    assert found[1].content_hash == ""


async def test_doubled_events_that_stay_doubled_cost_nobody_the_reveal(world: Any) -> None:
    """The stored payload counts once; the event without one is a row with a code."""
    await commit(world, world.signer("Ann"), [GOOD], 5)
    world.blocks_until(5)
    real = world.client.linked_events

    async def double(block: BlockRef) -> Any:
        parent, events = await real(block)
        return parent, tuple(msgspec.structs.replace(one, index=at) for at, one in enumerate((*events, *events)))

    world.client.linked_events = double
    found, _ = await read_until_settled(world, passes=3)
    assert [(one.sub_index, one.reason) for one in found] == [(0, ""), (1, "REVEAL_NOT_STORED")]


async def test_a_passing_disagreement_leaves_no_trace(world: Any) -> None:
    """One damaged answer is forgotten as soon as a better one comes."""
    await commit(world, world.signer("Ann"), [GOOD], 5)
    world.blocks_until(5)
    real = world.client.read_raw
    answers = iter([True, True])

    async def sometimes(block: BlockRef, reads: Any) -> Any:
        rows = await real(block, reads)
        return [None for _ in rows] if next(answers, False) else rows

    world.client.read_raw = sometimes
    found, failed = await read_until_settled(world, passes=3)
    assert (shown(found), failed) == ([("", "https://h.example/a.tar.gz")], 1)


async def test_a_row_of_unknown_shape_is_reported_and_hides_nobody(world: Any) -> None:
    """A storage row that cannot be parsed gives a row with a code; the next hotkey's is read."""
    await commit(world, world.signer("Ann"), [GOOD], 5)
    await commit(world, world.signer("Bob"), [GOOD], 5)
    world.blocks_until(5)
    real = world.client.read_raw

    async def damage(block: BlockRef, reads: Any) -> Any:
        rows = zip(reads, await real(block, reads), strict=True)
        return [b"\x04\xff" if read[1][1] == world.hotkey("Ann") else row for read, row in rows]

    world.client.read_raw = damage
    by_hotkey = {reveal.hotkey: reveal for reveal in (await scan(world)).reveals}
    assert by_hotkey[world.hotkey("Ann")].reason == "REVEAL_UNREADABLE"
    assert by_hotkey[world.hotkey("Bob")].reason == ""


async def test_identity_includes_the_registration(make_world: Any) -> None:
    """The same payload after a new registration is another submission; without one it is refused."""
    world = await make_world()
    await commit(world, world.signer("Ann"), [GOOD], 6)
    await commit(world, world.signer("Bob"), [GOOD], 6)
    world.blocks()
    await world.set_item("SubtensorModule.Uids", [2, world.hotkey("Bob")], None)
    await world.set_item("SubtensorModule.BlockAtRegistration", [2, 1], 4)
    world.blocks_until(6)
    by_hotkey = {reveal.hotkey: reveal for reveal in (await scan(world)).reveals}
    assert by_hotkey[world.hotkey("Ann")].registered_block == 4
    assert by_hotkey[world.hotkey("Bob")].registered_block is None
    assert by_hotkey[world.hotkey("Bob")].reason == "REVEAL_HOTKEY_UNREGISTERED"


@pytest.mark.parametrize("sealed", [b"\x00" * 120, seal(b"")])
async def test_a_commitment_that_does_not_open_is_a_failure_not_a_submission(world: Any, sealed: bytes) -> None:
    """The chain's failed reveal is reported with its hotkey and round."""
    head = await world.client.head()
    connection = await world.client._connected()
    codec = await connection.codec(None)
    label = reveal_round_after(head.number, 4)
    field = {"TimelockEncrypted": {"encrypted": sealed, "reveal_round": label}}
    call = codec.compose_call("Commitments", "set_commitment", {"netuid": 2, "info": {"fields": [[field]]}})
    data, _ = await connection.sign(call, world.signer("Ann"), nonce=0, period=64, current=head.number)
    await world.client.submit(data)
    world.blocks(6)
    result = await scan(world)
    assert result.reveals == ()
    assert [(failure.hotkey, failure.reveal_round) for failure in result.failures] == [(world.hotkey("Ann"), label)]


async def test_loopback_urls_are_for_devnets(world: Any) -> None:
    """The caller decides whether plain http on loopback is a usable URL."""
    local = encode_payload(Payload(HASH, "http://127.0.0.1:8/a"), allow_loopback_http=True)
    await commit(world, world.signer("Ann"), [local], 5)
    world.blocks_until(5)
    assert (await scan(world)).reveals[0].reason == "PAYLOAD_URL"
    assert (await scan(world, allow_loopback_http=True)).reveals[0].reason == ""


async def test_a_quiet_block_costs_few_requests(world: Any) -> None:
    """Following the chain block by block asks for no more than six things per block."""
    cursor = (await scan(world)).cursor
    before = world.client.rpc_calls
    for _ in range(5):
        world.blocks()
        cursor = (await scan(world, cursor)).cursor
    assert world.client.rpc_calls - before <= 5 * 6


@pytest.mark.parametrize("data", [b"", b"\x04", b"\x04\x04a", b"\x00x", b"\x04\x04a" + bytes(7)])
def test_stored_rows_are_parsed_strictly(data: bytes) -> None:
    """Truncated rows and trailing bytes are another shape, never a guess."""
    with pytest.raises(ScaleError):
        parse_stored(data)


async def raw_row(world: Any, name: str, value: bytes) -> None:
    """Overwrite a hotkey's row of revealed commitments with raw bytes."""
    codec = await (await world.client._connected()).codec(None)
    entry = codec.storage_entry("Commitments", "RevealedCommitments")
    key = codec.storage_key(entry, [world.netuid, world.hotkey(name)])
    await world.rpc("dev_setStorage", [["0x" + key.hex(), "0x" + value.hex()]])


@pytest.mark.parametrize("kind", ["missing_events", "duplicate_events"])
async def test_a_list_of_events_that_contradicts_the_block_s_own_count_is_read_again(world: Any, kind: Any) -> None:
    """A reveal event too few or all of them twice: the list and `System.EventCount` differ; it is asked again."""
    await commit(world, world.signer("Ann"), [GOOD], 5)
    block = world.blocks_until(5)
    world.node.faults.inject(Fault(kind=kind, limit=1))
    with pytest.raises(NetworkError) as caught:
        await world.client.linked_events(block)
    assert caught.value.code == "CHAIN_EVENTS_MISCOUNTED"
    world.node.faults.inject(Fault(kind=kind, limit=1))
    assert shown((await scan(world)).reveals) == [("", "https://h.example/a.tar.gz")]
    assert [count.injected for count in world.node.faults.counts()] == [1, 1]
