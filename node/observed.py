"""What a state folder tells of its node: the facts that status, readiness page and metrics have in common.

Invariants
1. There is one reading and one judgement of it (`node.readiness`): whoever tells how the node is, tells the same.
2. Its cost does not grow with the store: newest rows by index, and small files.
3. What the folder does not tell is None; times of a chain that nobody follows any more are not told as if they were.
"""

from __future__ import annotations

import time

import msgspec
from sqlalchemy import Connection

from node.readiness import Conditions
from node.store.chain_seen import ChainSeen, RevealsHeld, read_chain_seen, read_reveals_held
from node.store.layout import StateLayout
from node.store.lock import read_holder
from node.store.queries import ChainView, chain_view, latest_event
from node.store.waiting_rows import read_waiting


class Started(msgspec.Struct, frozen=True):
    """What the newest start wrote down. `layers` are the isolation layers that a confined process confirmed then; None
    in the events of older releases."""

    version: str = ""
    arena: str = ""
    arena_digest: str = ""
    waived: tuple[str, ...] = ()
    layers: tuple[str, ...] | None = None


class Reached(msgspec.Struct, frozen=True):
    """What the chain said when it was last reached for the first time of a run; `hotkey` is "" of an observer."""

    hotkey: str | None = None
    uid: int | None = None
    validator_permit: bool | None = None


class Observed(msgspec.Struct, frozen=True):
    """The facts. `running_pid` is 0 when no node holds the folder; `chain` is None before it was ever bound."""

    running_pid: int
    chain: ChainView | None
    seen: ChainSeen
    started: Started
    reached: Reached
    conditions: Conditions


def observe(connection: Connection, layout: StateLayout) -> Observed:
    """Return what the folder tells now."""
    holder = read_holder(layout.lock)
    running = holder is not None
    seen = read_chain_seen(layout) or ChainSeen()
    held = read_reveals_held(layout) or RevealsHeld()
    started = msgspec.json.decode(latest_event(connection, "node.started") or "{}", type=Started)
    reached = msgspec.json.decode(latest_event(connection, "chain.ready") or "{}", type=Reached)
    waiting = read_waiting(connection)
    lost = {"NOT_REGISTERED": "registered", "NOT_PERMITTED": "validator_permit"}.get(waiting.code if waiting else "")
    known = Conditions(
        running=running,
        waived_layers=started.waived,
        registered=True if reached.uid is not None else None,
        validator_permit=reached.validator_permit,
        observing=None if reached.hotkey is None else not reached.hotkey,
        chain_away=seen.away_reason if running else None,
        chain_away_code=seen.away_code if running else "",
        block_age_seconds=time.time() - seen.block_ms / 1000 if running and seen.block_ms else None,
        reveals_held=held.reason if running and held.code != seen.away_code else None,
        reveals_held_code=held.code if running else "",
    )
    return Observed(
        running_pid=holder.pid if holder is not None else 0,
        chain=chain_view(connection),
        seen=seen,
        started=started,
        reached=reached,
        conditions=msgspec.structs.replace(known, **{lost: False}) if lost else known,
    )
