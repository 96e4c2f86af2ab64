"""Rows and files of receipts after a kill: what is on disk was signed for good, and what is missing gets written."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from config.canonical import sha256_hex
from config.errors import GradeError, HostError
from node import receipt_folder
from node.receipt_folder import open_folder
from node.services import receipts as service
from node.services.receipts import compare_files, deliver, deliver_or_tell
from node.store.engine import Store
from node.store.layout import StateLayout
from node.store.receipt_outbox import SealedReceipt, mark_delivered, record_receipt, undelivered
from node.store.receipt_rows import ReceiptQuery, receipt_digests, receipt_page
from scoring.dsse import STATEMENT_TYPE, Statement, Subject, sign
from tests.node.mortal_store import Killed, MortalStore
from tests.node.support import GENESIS
from tests.node.weights_world import ANN, World, weights_world

ONE = SealedReceipt("weights.v1", b'{"number":1}')


@pytest.fixture(name="world")
async def _world(tmp_path: Path) -> AsyncIterator[World]:
    store = await MortalStore.open(StateLayout.at(tmp_path / "state"))
    await store.bind(GENESIS, 2)
    async with weights_world(store, tmp_path / "cache") as made:
        yield made
    await store.close()


async def on_disk(world: World) -> tuple[set[str], set[str]]:
    """Return the digests of files without a row, and of rows without a file."""
    layout = world.store.layout
    files = {path.stem for path in layout.receipts.iterdir()} | {path.name for path in layout.ledger.iterdir()}
    rows = await world.store.read(receipt_digests)
    return files - rows, set(rows - files)


@pytest.mark.crash
@pytest.mark.parametrize("after_commit", [False, True], ids=["before", "after"])
async def test_a_node_killed_while_it_publishes_contradicts_nobody(world: World, after_commit: bool) -> None:
    """Wherever it dies between deciding a vector and its receipt's file, the folder holds one vector for each epoch."""
    store = world.store
    assert isinstance(store, MortalStore)
    died = 0
    for point in range(1, 40):
        if point == 12:
            await world.crown(1, ANN, "activation.silu_and_mul")
        store.count, store.dies_at, store.after_commit = 0, point, after_commit
        try:
            await world.step(10)
        except Killed:
            died += 1
        store.dies_at = -1
        assert (await on_disk(world))[0] == set(), f"killed at transaction {point}"
        await deliver(store, world.receipts)  # as a starting node does
        assert await on_disk(world) == (set(), set()), f"killed at transaction {point}"
        world.service = world.restarted()
        await world.step(10)
    assert died > 20
    folder = open_folder(store.layout.root)
    weights = folder.published(folder.anchor()).weights
    assert len(weights) == len({one.epoch for one in weights.values()}) > 10


async def test_a_receipt_without_its_file_is_written_by_whoever_comes_next(world: World) -> None:
    """The row holds the envelope until the file is there; until then nobody is told of it."""
    await world.store.write(record_receipt, ONE, "subject")
    assert await world.store.read(receipt_page, ReceiptQuery(10)) == []
    assert await on_disk(world) == (set(), {ONE.digest})
    await deliver(world.store, world.receipts)
    assert world.receipts.path(ONE.digest).read_bytes() == ONE.envelope
    assert [row.digest for row in await world.store.read(receipt_page, ReceiptQuery(10))] == [ONE.digest]
    assert await world.store.read(undelivered) == ()
    await world.store.write(record_receipt, ONE, "subject")  # signed again: the same receipt, and its file is there
    assert await world.store.read(undelivered) == ()


async def test_a_disk_that_takes_no_files_loses_no_receipt(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told, and the receipt waits in the store."""

    def full(*_: object, **__: object) -> None:
        raise HostError("STATE_UNWRITABLE", "no space left")

    await world.store.write(record_receipt, ONE, "subject")
    with monkeypatch.context() as patch:
        patch.setattr(service, "write_durably", full)
        await deliver_or_tell(world.store, world.receipts)
        with pytest.raises(HostError):
            await deliver(world.store, world.receipts)
    assert await world.store.read(undelivered) == (ONE,)
    await deliver(world.store, world.receipts)
    assert await on_disk(world) == (set(), set())


async def test_files_that_no_row_names_are_set_aside(store: Store) -> None:
    """What a killed node of an older release left is moved out of the folder that readers believe, and kept."""
    layout = store.layout
    await store.write(record_receipt, ONE, "subject")
    kept, stray = layout.receipts / f"{ONE.digest}.json", layout.receipts / f"{'0' * 64}.json"
    for path in (kept, stray):
        path.write_bytes(ONE.envelope)
    assert await compare_files(store) == (1, 0)
    assert await compare_files(store) == (0, 0)
    assert list(layout.receipts.iterdir()) == [kept]
    assert (layout.unlisted / stray.name).read_bytes() == ONE.envelope


async def test_files_that_were_removed_are_told(world: World) -> None:
    """What a lost folder held cannot be made again from rows alone: the operator hears of it at the start."""
    await world.step(6)
    assert await compare_files(world.store) == (0, 0)
    files = list(world.store.layout.receipts.iterdir())
    for path in files:
        path.unlink()
    await world.store.write(record_receipt, ONE, "subject")  # waits in the store, so nothing of it is lost
    with structlog.testing.capture_logs() as logs:
        assert await compare_files(world.store) == (0, len(files))
    (told,) = logs
    assert (told["event"], told["count"]) == ("receipts.missing", len(files))
    assert set(told["digests"]) <= {path.stem for path in files}


async def test_a_decision_made_while_a_node_starts_is_not_set_aside(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command writes its row and its file between any two steps of the comparison: the file stays."""
    path = store.layout.receipts / f"{ONE.digest}.json"
    read = store.read

    async def decide_before(*arguments: Any) -> Any:
        if not path.exists():
            await store.write(record_receipt, ONE, "subject")
            path.write_bytes(ONE.envelope)
            await store.write(mark_delivered, [ONE.digest])
        return await read(*arguments)

    async def decide_after(*arguments: Any) -> Any:
        found = await read(*arguments)
        await decide_before(*arguments)
        return found

    for between in (decide_before, decide_after):
        monkeypatch.setattr(store, "read", between)
        assert (await compare_files(store))[0] == 0
        assert path.exists()


def test_a_reader_beside_a_node_that_forgets_ledgers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger that was listed and is gone when it is its turn is not in the folder; the newer ones are."""
    receipts, ledgers = tmp_path / "receipts", tmp_path / "ledger"
    for folder in (receipts, ledgers):
        folder.mkdir()
    envelopes = [sign(Statement(STATEMENT_TYPE, (Subject("x", {}),), "urn:x", {"n": n}), bytes(32)) for n in range(4)]
    for data in envelopes:
        (ledgers / sha256_hex(data)).write_bytes(data)
    older, newest = sorted(ledgers.iterdir())[:3], sorted(ledgers.iterdir())[3]
    read = receipt_folder.read_named

    def meanwhile(path: Path, digest: str) -> bytes:
        for one in older:
            one.unlink(missing_ok=True)
        return read(path, digest)

    monkeypatch.setattr(receipt_folder, "read_named", meanwhile)
    assert list(open_folder(tmp_path).envelopes) == [newest.name]
    newest.write_bytes(b"{}")
    with pytest.raises(GradeError, match="not the file that its name says"):
        open_folder(tmp_path)
