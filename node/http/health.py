"""What `/readyz` says: whether the node does its work, and why not.

Invariants
1. It is judged by `node.readiness` from what `cacheon node status` reads too (`node.observed`).
2. A sentence about a fault of this machine or of its endpoints could name them, so the code's own summary stands in
   its place; `cacheon node status` has the words.
3. A store that cannot be read is an answer, not an error: not ready, and why.
"""

from __future__ import annotations

import msgspec
from sqlalchemy import Connection

from config.codes import load_codes
from node.observed import Observed, observe
from node.readiness import Conditions, Readiness, Reason, judge_readiness
from node.store.counts import Counts, read_counts
from node.store.layout import StateLayout
from qualify.sandbox.layers import LAYERS


class SandboxView(msgspec.Struct, frozen=True):
    """Isolation layers: what a confined process confirmed at the node's start, what it did not, what was given up."""

    present: tuple[str, ...]
    absent: tuple[str, ...]
    waived: tuple[str, ...]


class RegistrationView(msgspec.Struct, frozen=True):
    """The node's place on the subnet; null is unknown, `observing` is a node that has no key on purpose."""

    registered: bool | None
    uid: int | None
    validator_permit: bool | None
    observing: bool | None


class ReadyView(msgspec.Struct, frozen=True):
    """The answer. `head_block` is the newest finalized block seen, null before the first; so is its age."""

    ready: bool
    reasons: tuple[Reason, ...]
    head_block: int | None
    block_age_seconds: float | None
    sandbox: SandboxView | None
    registration: RegistrationView


class Snapshot(msgspec.Struct, frozen=True):
    """What one scrape reads from the store."""

    observed: Observed
    counts: Counts


def read_observed(connection: Connection, layout: StateLayout) -> Observed:
    """Return the facts behind `/readyz`."""
    return observe(connection, layout)


def read_snapshot(connection: Connection, layout: StateLayout) -> Snapshot:
    """Return everything behind `/metrics`."""
    return Snapshot(observe(connection, layout), read_counts(connection))


def judge(observed: Observed | None, store_works: bool | None) -> Readiness:
    """Judge what was read (None: nothing could be) together with what the running node knows of its store."""
    if observed is None:
        return judge_readiness(Conditions(store_works=False))
    return judge_readiness(msgspec.structs.replace(_public(observed.conditions), store_works=store_works))


def ready_view(observed: Observed | None, store_works: bool | None) -> ReadyView:
    """Return the answer for what was read."""
    readiness = judge(observed, store_works)
    if observed is None:
        nobody = RegistrationView(None, None, None, None)
        return ReadyView(readiness.ready, readiness.reasons, None, None, None, nobody)
    known = observed.conditions
    return ReadyView(
        readiness.ready, readiness.reasons, observed.seen.block or None, known.block_age_seconds, _sandbox(observed),
        RegistrationView(known.registered, observed.reached.uid, known.validator_permit, known.observing),
    )


def _sandbox(observed: Observed) -> SandboxView | None:
    present, waived = observed.started.layers, observed.started.waived
    if present is None:
        return None
    return SandboxView(present, tuple(name for name in LAYERS if name not in present), waived)


def _public(known: Conditions) -> Conditions:
    return msgspec.structs.replace(
        known,
        chain_away=known.chain_away and _summary(known.chain_away_code),
        reveals_held=known.reveals_held and _summary(known.reveals_held_code),
    )


def _summary(code: str) -> str:
    document = load_codes().get(code)
    return document.summary if document is not None else "the reason is in the node's log"
