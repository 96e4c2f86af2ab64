"""The crown ledger on the chain: written first, committed when it changed, never in the way of weights."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import structlog
from sqlalchemy import insert

from chain.abi import Call, Storage
from chain.ledger_pointer import LedgerCommitment, read_commitment
from chain.wallet import signer_of_seed
from config.canonical import sha256_hex
from config.errors import GradeError, HostError
from node.receipt_folder import open_folder
from node.services import ledger, receipts
from node.services.ledger import LedgerKeeper
from node.store.engine import Store
from node.store.journal import read_records
from node.store.ledger_journal import read_commitments
from node.store.receipt_rows import ReceiptQuery, forget_ledgers, receipt_digests, receipt_page
from node.store.schema import ledger_commitments
from scoring.dsse import verify
from scoring.ledger import check_ledger, read_ledger_predicate
from tests.node.weights_world import ANN, BOB, VALIDATOR, World, weights_world

URL = "http://127.0.0.1:9980/api/v1/ledger"


@pytest.fixture(name="world")
async def _world(store: Store, tmp_path: Path) -> AsyncIterator[World]:
    async with weights_world(store, tmp_path / "cache") as made:
        made.configure(ledger_url=URL + "/")
        yield made


async def committed(world: World) -> LedgerCommitment:
    """What the chain holds of the validator."""
    (raw,) = await world.client.read_raw(await world.client.head(), [(Storage.COMMITMENT_OF, [2, VALIDATOR])])
    return read_commitment(raw)


async def statuses(world: World) -> list[str]:
    """The statuses of the journal, oldest first."""
    return [record.status for record in reversed(await world.store.read(read_commitments, 1000))]


async def test_the_ledger_is_committed_and_can_be_checked(world: World) -> None:
    """The chain names digest, URL and key; the document under that digest verifies and replays to the crowns."""
    await world.crown(1, ANN, "activation.silu_and_mul")
    await world.crown(2, BOB, "attention.decode")
    await world.step(6)
    pointer = (await committed(world)).pointer
    assert pointer is not None
    assert (pointer.url, pointer.receipt_key) == (URL, world.receipts.public_key.hex())
    data = (world.store.layout.ledger / pointer.digest).read_bytes()
    assert sha256_hex(data) == pointer.digest
    predicate = read_ledger_predicate(verify(data, [bytes.fromhex(pointer.receipt_key)]))
    assert {crown.hotkey for crown in check_ledger(predicate).crowns} == {ANN, BOB}
    assert (predicate.hotkey, predicate.netuid) == (VALIDATOR, 2)
    assert await statuses(world) == ["intent", "submitted", "confirmed"]


async def test_an_unchanged_ledger_is_committed_once_and_a_new_crown_again(world: World) -> None:
    """Three epochs without a crown cost one commitment; the epoch after a crown costs the second; weights lose none."""
    await world.step(30)
    assert (await statuses(world)).count("intent") == 1
    await world.crown(1, ANN, "activation.silu_and_mul")
    await world.step(20)
    assert await statuses(world) == ["intent", "submitted", "confirmed"] * 2
    assert len(list(world.store.layout.ledger.iterdir())) == 2
    epochs = [one.epoch for one in await world.store.read(read_records) if one.status == "confirmed"]
    assert epochs == list(range(6))
    assert await world.extrinsics() == 6 + 2


async def test_a_lost_commitment_comes_back(world: World) -> None:
    """When the chain no longer shows the pointer, the next epoch commits it again."""
    await world.step(5)
    await world.ask("dev_setItem", "Commitments", "CommitmentOf", [2, VALIDATOR], None)
    await world.step(20)
    assert (await committed(world)).kind == "ledger"
    assert (await statuses(world)).count("intent") == 2


async def test_a_sealed_submission_of_the_same_hotkey_is_not_overwritten(world: World) -> None:
    """The ledger waits until the hotkey's own sealed commitment was revealed."""
    client, head = world.client, await world.client.finalized_head()
    signer = signer_of_seed("//Validator")
    field = {"TimelockEncrypted": {"encrypted": b"x" * 40, "reveal_round": 10**9}}
    signed = await client.sign(
        Call.SET_COMMITMENT, {"netuid": 2, "info": {"fields": [[field]]}}, signer, nonce=0, at=head, period=64
    )
    await client.submit(signed.data)
    await world.step(25)
    assert (await committed(world)).kind == "sealed"
    assert await statuses(world) == []
    assert await world.row() != {}


async def test_weights_go_on_when_the_ledger_cannot_be_written(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that takes no files costs no weights, and ledger and receipts follow once there is room."""
    def full(*_: object, **__: object) -> None:
        raise HostError("STATE_UNWRITABLE", "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(receipts, "write_durably", full)
        await world.step(12)
    assert [one.epoch for one in await world.store.read(read_records) if one.status == "confirmed"] == [0, 1]
    assert await statuses(world) == []
    assert not [*world.store.layout.receipts.iterdir(), *world.store.layout.ledger.iterdir()]
    await world.step(5)
    assert (await committed(world)).kind == "ledger"
    files = {path.stem for path in world.store.layout.receipts.iterdir()}
    assert {one.name for one in world.store.layout.ledger.iterdir()} | files == await world.store.read(receipt_digests)


async def test_no_vector_is_signed_whose_ledger_is_not_kept(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is settled while a vector is decided has its ledger stored first; a ledger that cannot be made stops it."""
    keep, settled = LedgerKeeper.keep, 0

    async def meanwhile(keeper: LedgerKeeper) -> str:
        nonlocal settled
        head = await keep(keeper)
        if settled < 1:
            settled += 1
            await world.crown(1, ANN, "activation.silu_and_mul")
        return head

    with monkeypatch.context() as patched:
        patched.setattr(LedgerKeeper, "keep", meanwhile)
        await world.step(3)
    folder = open_folder(world.store.layout.root)
    published = folder.published(folder.anchor())
    assert settled == 1
    assert {one.ledger_head for one in published.weights.values()} <= published.sequence_of.keys()
    assert published.weights

    def unlawful(*_: object) -> None:
        raise GradeError("LEDGER_UNLAWFUL", "made up")

    await world.crown(2, BOB, "attention.decode")
    before = await world.store.read(read_records)
    with monkeypatch.context() as patched:
        patched.setattr(ledger, "ledger_statement", unlawful)
        with pytest.raises(GradeError, match="made up"):
            await world.step(30)
    signed = [one for one in (await world.store.read(read_records))[len(before):] if one.status == "intent"]
    assert signed == []


async def test_a_ledger_larger_than_its_readers_take_stops_no_weights(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither weights nor the commitment wait for it; the operator is told before, and as long as it lasts."""
    for limit in (ledger.RECEIPT_BYTES, 1000):
        monkeypatch.setattr(ledger, "RECEIPT_BYTES", limit)
        with structlog.testing.capture_logs() as logs:
            await world.crown(limit, ANN if limit == 1000 else BOB, "activation.silu_and_mul")
            await world.step(12)
        assert any(one["event"] == "ledger.large" for one in logs) == (limit == 1000)
    epochs = [one.epoch for one in await world.store.read(read_records) if one.status == "confirmed"]
    assert epochs == list(range(len(epochs)))
    assert len(epochs) >= 3
    assert (await statuses(world)).count("confirmed") == 2


async def test_a_ledgers_file_that_was_removed_is_written_again(world: World) -> None:
    """Also while the node runs, with the same bytes, because what is on the chain names it."""
    await world.step(6)
    (path,) = world.store.layout.ledger.iterdir()
    data = path.read_bytes()
    path.unlink()
    await world.service._ledger.write()
    assert path.read_bytes() == data


async def test_the_ledger_on_the_chain_stays_however_often_newer_ones_fail(store: Store) -> None:
    """Many commitments in a row that never came to anything do not push out the one that the chain shows."""
    digests = [f"{number:064x}" for number in range(40)]
    for number, digest in enumerate(digests):
        status = "confirmed" if number == 0 else "failed"
        await store.write(lambda connection, digest=digest, number=number, status=status: connection.execute(
            insert(ledger_commitments).values(
                sequence=number + 1, digest=digest, prior_digest=f"before {digest}", commitment_id=digest,
                status=status, epoch=number, ledger_digest=digest, body="{}", recorded_ms=0,
            )
        ))
    stay = await store.write(forget_ledgers, digests[-1], 16)
    assert stay == {digests[0], *digests[-16:]}


async def test_older_ledgers_are_forgotten(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest stay, with the one on the chain; what stays leads to every crown, and rows and files agree."""
    monkeypatch.setattr(ledger, "LEDGERS_KEPT", 2)
    await world.step(6)
    pointer = (await committed(world)).pointer
    world.configure(ledger_url="")
    folder, written = world.store.layout.ledger, set[str]()
    targets = ("activation.silu_and_mul", "attention.decode", "norm.rmsnorm", "moe.fused_experts")
    for number, target in enumerate(targets, 1):
        await world.crown(number, ANN, target)
        await world.service._ledger.write()
        written |= {path.name for path in folder.iterdir()}
    left = {path.name for path in folder.iterdir()}
    assert (len(written), len(left)) == (5, 3)
    assert pointer is not None
    assert pointer.digest in left
    ledgers = await world.store.read(receipt_page, ReceiptQuery(100, kind="ledger.v1"))
    assert {row.digest for row in ledgers} == left
    read = [
        read_ledger_predicate(verify((folder / name).read_bytes(), [world.receipts.public_key])) for name in left
    ]
    assert max(len(one.crowns) for one in read) == len(targets)


async def test_without_a_url_the_ledger_is_written_and_not_committed(world: World) -> None:
    """Weight receipts are recomputed from it in any case; the chain hears of it when it is said where it is served."""
    world.configure(ledger_url="")
    await world.step(15)
    assert await statuses(world) == []
    assert len(list(world.store.layout.ledger.iterdir())) == 1
    assert (await committed(world)).kind == "none"


async def test_restarts_commit_nothing_twice(world: World) -> None:
    """A service made anew after every block leaves one commitment per changed ledger."""
    for blocks in range(24):
        if blocks == 5:
            await world.crown(1, ANN, "activation.silu_and_mul")
        world.service = world.restarted()
        await world.step()
    assert (await statuses(world)).count("intent") == 2
    assert (await committed(world)).kind == "ledger"
