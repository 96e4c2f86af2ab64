"""The ledger: every change leaves an event, and nobody can alter one unseen."""

from __future__ import annotations

import pytest
from sqlalchemy import Connection, delete, select, update

from config.errors import InternalError
from node.store.engine import Store
from node.store.events import append_event, verify_chain
from node.store.schema import events


async def _fill(store: Store) -> int:
    for number in range(5):
        await store.write(append_event, "test.happened", f"s{number}", {"number": number, "text": "ü"})
    return (await store.read(verify_chain))[0]


async def test_chain_verifies(store: Store) -> None:
    """An untouched ledger verifies and reports its length and head."""
    count = await _fill(store)
    total, head = await store.read(verify_chain)
    assert total == count
    assert head == await store.read(
        lambda connection: connection.scalar(select(events.c.digest).order_by(events.c.sequence.desc()).limit(1))
    )


@pytest.mark.parametrize(
    "tamper",
    [
        lambda: update(events).where(events.c.sequence == 3).values(body='{"number":9}'),
        lambda: update(events).where(events.c.sequence == 3).values(at_ms=1),
        lambda: update(events).where(events.c.sequence == 3).values(kind="other"),
        lambda: delete(events).where(events.c.sequence == 3),
        lambda: delete(events).where(events.c.sequence == 1),
        lambda: update(events).where(events.c.sequence == 3).values(previous="0" * 64),
    ],
    ids=["body", "time", "kind", "missing", "beheaded", "relinked"],
)
async def test_tampering_is_found(store: Store, tamper: object) -> None:
    """Altering, dropping or relinking one event is found by verification."""
    await _fill(store)

    def change(connection: Connection) -> None:
        connection.execute(tamper())  # type: ignore[operator]

    await store.write(change)
    with pytest.raises(InternalError) as caught:
        await store.read(verify_chain)
    assert caught.value.code == "LEDGER_BROKEN"
