"""The ledger's commitment keeps the discipline of weights, and keeps out of their way."""

from __future__ import annotations

from typing import Any

import msgspec

from chain.abi import Call, Storage
from chain.ledger_pointer import LedgerPointer, pointer_arguments, read_commitment
from chain.ledger_publication import (
    CommitmentRecord,
    CommitmentResult,
    commitment_digest,
    commitment_step,
    ledger_journal_moved,
)
from chain.rpc import PoolAnswer
from tests.chain.test_publication import advance, target

SEALED = {"TimelockEncrypted": {"encrypted": b"x" * 40, "reveal_round": 10**9}}
POINTER = LedgerPointer("ab" * 32, "https://validator.example/ledger", "cd" * 32)


class Journal:
    """A journal in memory that dies instead of its `crash_at`-th append."""

    def __init__(self) -> None:
        self.records: list[CommitmentRecord] = []

    async def head(self) -> CommitmentRecord | None:
        """See `CommitmentJournal`."""
        return self.records[-1] if self.records else None

    async def append(self, record: CommitmentRecord, expected_head: str | None) -> None:
        """See `CommitmentJournal`."""
        head = await self.head()
        if (commitment_digest(head) if head else None) != expected_head:
            raise ledger_journal_moved()
        self.records.append(record)

    @property
    def statuses(self) -> list[str]:
        """All statuses."""
        return [record.status for record in self.records]


async def commit(
    world: Any, journal: Journal, client: Any = None, pointer: LedgerPointer = POINTER, weights_nonce: int | None = None
) -> CommitmentResult:
    """One step at the finalized head."""
    client = client or world.client
    block = await world.client.finalized_head()
    (epoch,) = await world.client.read(block, [(Storage.EPOCH_INDEX, [2])])
    return await commitment_step(
        client, world.validator, journal, pointer, netuid=2, epoch=epoch, block=block, weights_nonce=weights_nonce
    )


async def pointer_on_chain(world: Any) -> LedgerPointer | None:
    """The pointer at the head."""
    (raw,) = await world.client.read_raw(
        await world.client.head(), [(Storage.COMMITMENT_OF, [2, world.validator.ss58_address])]
    )
    return read_commitment(raw).pointer


async def elsewhere(world: Any, arguments: dict[str, object]) -> None:
    """Another program with the same hotkey puts a commitment into the pool."""
    nonce = await world.client.next_nonce(world.validator.ss58_address)
    signed = await world.client.sign(
        Call.SET_COMMITMENT, arguments, world.validator, nonce=nonce, at=await world.client.finalized_head(), period=64
    )
    assert (await world.client.submit(signed.data)).fate == "accepted"


async def test_a_commitment_is_signed_journalled_and_confirmed_by_reading_it(world: Any) -> None:
    """Intent, submission, and confirmation from the stored value at a finalized block; then nothing more."""
    journal = Journal()
    await commit(world, journal)
    assert journal.statuses == ["intent", "submitted"]
    world.blocks()
    await commit(world, journal)
    assert journal.statuses == ["intent", "submitted", "confirmed"]
    assert await pointer_on_chain(world) == POINTER
    world.blocks_until(45)
    await commit(world, journal)
    assert await world.extrinsics_of(world.validator) == 1


async def test_weights_in_flight_come_first(world: Any) -> None:
    """While weights are signed and not included nothing is signed, and nothing with their nonce is submitted again."""
    journal = Journal()
    await commit(world, journal, weights_nonce=0)
    assert journal.records == []
    client, sent = world.new_client(), []

    async def lose(data: bytes) -> PoolAnswer:
        sent.append(data)
        return PoolAnswer("unknown", "lost")

    client.submit = lose
    await commit(world, journal, client)
    assert (journal.statuses, len(sent)) == (["intent"], 1)
    await commit(world, journal, client, weights_nonce=0)  # weights may have taken this very nonce
    assert len(sent) == 1
    await commit(world, journal, client, weights_nonce=1)  # weights wait for this one to be included
    assert sent == [sent[0]] * 2


async def test_weights_go_out_while_a_commitment_waits_in_the_pool(world: Any) -> None:
    """The weights take the next nonce, and one block includes both."""
    journal = Journal()
    await commit(world, journal)
    await advance(world, target(world))
    world.blocks()
    done = await advance(world, None)
    assert done.head is not None
    assert (done.head.status, done.head.nonce) == ("confirmed", 1)
    await commit(world, journal)
    assert journal.statuses[-1] == "confirmed"


async def test_a_nonce_that_weights_took_expires_the_commitment_and_the_epoch_tries_again(world: Any) -> None:
    """Bytes that never reached a pool die with their nonce; they are signed anew, once."""
    journal, client = Journal(), world.new_client()

    async def lose(_: bytes) -> PoolAnswer:
        return PoolAnswer("unknown", "lost")

    client.submit = lose
    await commit(world, journal, client)
    await advance(world, target(world))
    world.blocks()
    assert (await advance(world, None)).head.status == "confirmed"
    await commit(world, journal)
    assert journal.statuses == ["intent", "expired"]
    await commit(world, journal)
    world.blocks()
    await commit(world, journal)
    assert journal.statuses == ["intent", "expired", "intent", "submitted", "confirmed"]
    assert await world.extrinsics_of(world.validator) == 2


async def test_a_refusal_of_the_chain_is_named_and_the_epoch_is_over(world: Any) -> None:
    """When the hotkey's space for this epoch is used up the record says so, and the next epoch commits."""
    journal, hotkey = Journal(), world.validator.ss58_address
    used = {"last_epoch": 0, "used_space": 3_100}
    await world.set_item("Commitments.UsedSpaceOf", [2, hotkey], used)
    await commit(world, journal)
    world.blocks()
    result = await commit(world, journal)
    assert result.head is not None
    assert (result.head.status, result.head.reason) == ("failed", "the chain refused it: SpaceLimitExceeded")
    await commit(world, journal)
    assert journal.statuses.count("intent") == 1
    world.blocks_until(21)
    await commit(world, journal)
    world.blocks()
    await commit(world, journal)
    assert journal.statuses[-1] == "confirmed"


async def test_a_commitment_replaced_by_another_program_is_failed_and_comes_back(world: Any) -> None:
    """What another program committed in between is seen; the next epoch restores the pointer."""
    journal = Journal()
    await commit(world, journal)
    await elsewhere(world, pointer_arguments(2, msgspec.structs.replace(POINTER, digest="00" * 32)))
    world.blocks()
    result = await commit(world, journal)
    assert result.head is not None
    assert (result.head.status, result.head.reason) == ("failed", "another commitment of this hotkey took its place")
    world.blocks_until(21)
    await commit(world, journal)
    world.blocks()
    await commit(world, journal)
    assert await pointer_on_chain(world) == POINTER


async def test_a_sealed_commitment_on_its_way_is_not_overwritten(make_world: Any) -> None:
    """Neither in the pool, nor in a block that is not final yet."""
    world = await make_world(finality_lag=4)
    world.blocks(6)
    journal = Journal()
    await elsewhere(world, {"netuid": 2, "info": {"fields": [[SEALED]]}})
    busy = await commit(world, journal)
    assert busy.waiting is not None
    assert busy.waiting.code == "LEDGER_HOTKEY_BUSY"
    world.blocks(1)
    occupied = await commit(world, journal)
    assert occupied.waiting is not None
    assert occupied.waiting.code == "LEDGER_SLOT_OCCUPIED"
    assert journal.records == []
