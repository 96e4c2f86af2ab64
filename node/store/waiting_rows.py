"""Why no weights are published, as the store remembers it for who asks later.

Invariants
1. The newest event of a publication tells what stands: a reason to wait, or that there is none any more.
2. A reason is kept again when what it needs or the block at which it can work changes, so that neither is ever of the
   past; what counts up with every block is not kept.
"""

from __future__ import annotations

import msgspec
from sqlalchemy import Connection, func, select

from node.store.events import append_event
from node.store.schema import events

_WAITING = "publication.waiting"
_PROCEEDING = "publication.proceeding"  # the reason is gone, and no publication has moved yet


class WaitingView(msgspec.Struct, frozen=True):
    """The last reason not to publish that did not pass by itself."""

    code: str
    message: str
    current: str = ""
    needed: str = ""
    at_block: int | None = None


def read_waiting(connection: Connection) -> WaitingView | None:
    """Return the reason that stands, or None."""
    kind = events.c.kind
    newest = select(func.max(events.c.sequence)).where(kind >= "publication.", kind < "publication/").scalar_subquery()
    row = connection.execute(select(events).where(events.c.sequence == newest)).first()
    if row is None or row.kind != _WAITING:
        return None
    return msgspec.convert({**msgspec.json.decode(row.body), "code": row.subject}, WaitingView)


def record_waiting(connection: Connection, waiting: WaitingView | None) -> None:
    """Note the reason that stands now, None when there is none any more; does nothing when that is known already."""
    known = read_waiting(connection)
    if waiting is None:
        if known is not None:
            append_event(connection, _PROCEEDING, known.code, {})
    elif known is None or _essence(known) != _essence(waiting):
        body = msgspec.structs.asdict(waiting)
        append_event(connection, _WAITING, body.pop("code"), body)


def _essence(waiting: WaitingView) -> tuple[str, str, int | None]:
    return waiting.code, waiting.needed, waiting.at_block
