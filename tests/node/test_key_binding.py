"""The hotkey vouches for the node's receipt key: once per key, beside the receipts, never in the way of weights."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from chain.key_binding import verify_binding
from node.services import key_binding
from node.services.key_binding import KIND
from node.services.receipts import ReceiptBook
from node.store.engine import Store
from node.store.journal import read_records
from node.store.receipt_rows import ReceiptQuery, receipt_page
from tests.node.weights_world import VALIDATOR, World, weights_world


@pytest.fixture(name="world")
async def _world(store: Store, tmp_path: Path) -> AsyncIterator[World]:
    async with weights_world(store, tmp_path / "cache") as made:
        yield made


async def bindings(world: World) -> list[str]:
    """The keys that the hotkey has vouched for, newest first."""
    rows = await world.store.read(receipt_page, ReceiptQuery(100, KIND))
    found = [verify_binding(world.receipts.path(row.digest).read_bytes()) for row in rows]
    assert all((one.hotkey, one.netuid) == (VALIDATOR, 2) for one in found)
    return [one.receipt_key for one in found]


async def test_a_key_is_vouched_for_once(world: World) -> None:
    """However often the node is started."""
    for _ in range(3):
        world.service = world.restarted()
        await world.step(2)
    assert await bindings(world) == [world.receipts.public_key.hex()]


async def test_a_new_key_is_vouched_for_beside_the_old_one(world: World) -> None:
    """A lost key's statement stays, for older receipts."""
    await world.step()
    former = world.receipts.public_key.hex()
    world.store.layout.receipt_key.unlink()
    world.receipts = ReceiptBook.open(world.store.layout)
    world.service = world.restarted()
    await world.step()
    assert sorted(await bindings(world)) == sorted([former, world.receipts.public_key.hex()])


async def test_a_damaged_statement_is_made_again(world: World) -> None:
    """What does not verify on disk vouches for nothing."""
    await world.step()
    (row,) = await world.store.read(receipt_page, ReceiptQuery(100, KIND))
    world.receipts.path(row.digest).write_bytes(b"{}")
    world.service = world.restarted()
    await world.step()
    rows = await world.store.read(receipt_page, ReceiptQuery(100, KIND))
    good = next(one for one in rows if one.digest != row.digest)
    assert verify_binding(world.receipts.path(good.digest).read_bytes()).hotkey == VALIDATOR


async def test_weights_go_on_when_nobody_signs_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signer of an older release, or a full disk, costs no weights; it is tried again later, not at every block."""
    tries = 0

    async def fails(*_: object) -> bytes:
        nonlocal tries
        tries += 1
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(key_binding, "sign_binding", fails)
    await world.step(12)
    assert [one.epoch for one in await world.store.read(read_records) if one.status == "confirmed"] == [0, 1]
    assert (tries, await bindings(world)) == (1, [])
