"""Whether a node does its work, and why not: conditions in, reasons out.

Invariants
1. Judging is pure: whoever asks brings the conditions, so status, health pages and metrics cannot disagree.
2. What is not known is None and gives no reason; absence of knowledge is never taken for trouble, or for health.
3. A reason either keeps the node from its work (`blocks`) or is a thing that everybody who relies on it should know.
4. The names of reasons are a closed set: they may become labels.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

BLOCK_AGE_LIMIT_SECONDS = 120.0


class ReasonName(StrEnum):
    """Every reason there is, in the order of reporting."""

    STOPPED = "stopped"
    LAYERS_MISSING = "layers_missing"
    DEVICE_FAILING = "device_failing"
    STORE_FAILING = "store_failing"
    CHAIN_AWAY = "chain_away"
    BLOCK_STALE = "block_stale"
    REVEALS_HELD = "reveals_held"
    NOT_REGISTERED = "not_registered"
    NO_PERMIT = "no_permit"
    OBSERVING = "observing"
    LAYERS_WAIVED = "layers_waived"


class Conditions(msgspec.Struct, frozen=True):
    """What is known of a node; None is unknown.

    running            a process holds the state folder
    missing_layers     isolation layers that are required and not there
    waived_layers      isolation layers that the operator gave up
    device_works       the last canary of the measuring device passed
    store_works        the last write was durable
    chain_away         why the chain cannot be followed now, as a sentence; "" while it is
    block_age_seconds  age of the newest finalized block by this machine's clock
    registered         the hotkey is in the subnet's metagraph
    validator_permit   the chain lets it set weights
    reveals_held       why no reveal can be read beyond the cursor, as a sentence; "" while they can
    observing          it has no key, on purpose, and publishes nothing
    """

    running: bool | None = None
    missing_layers: tuple[str, ...] | None = None
    waived_layers: tuple[str, ...] | None = None
    device_works: bool | None = None
    store_works: bool | None = None
    chain_away: str | None = None
    block_age_seconds: float | None = None
    registered: bool | None = None
    validator_permit: bool | None = None
    observing: bool | None = None
    reveals_held: str | None = None


class Reason(msgspec.Struct, frozen=True):
    """One reason: a name for machines, a sentence for people, and whether the node cannot work because of it."""

    name: ReasonName
    sentence: str
    blocks: bool


class Readiness(msgspec.Struct, frozen=True):
    """The judgement. `ready` is false exactly when a reason blocks."""

    ready: bool
    reasons: tuple[Reason, ...]


def judge_readiness(conditions: Conditions, *, block_age_limit: float = BLOCK_AGE_LIMIT_SECONDS) -> Readiness:
    """Return whether a node in these conditions does its work, with every reason that it does not, or not wholly."""
    reasons = tuple(_reasons(conditions, block_age_limit))
    return Readiness(not any(reason.blocks for reason in reasons), reasons)


def _reasons(known: Conditions, block_age_limit: float) -> list[Reason]:
    found = [
        (known.running is False, ReasonName.STOPPED, "no node is running on this state folder", True),
        (bool(known.missing_layers), ReasonName.LAYERS_MISSING,
         f"required isolation layers are missing: {', '.join(known.missing_layers or ())}", True),
        (known.device_works is False, ReasonName.DEVICE_FAILING, "the measuring device fails its canary", True),
        (known.store_works is False, ReasonName.STORE_FAILING, "the state folder cannot be written", True),
        (bool(known.chain_away), ReasonName.CHAIN_AWAY, f"the chain cannot be followed: {known.chain_away}", True),
        (known.block_age_seconds is not None and known.block_age_seconds > block_age_limit, ReasonName.BLOCK_STALE,
         f"the last finalized block is {known.block_age_seconds or 0:.0f} s old (limit {block_age_limit:.0f})", True),
        (bool(known.reveals_held), ReasonName.REVEALS_HELD,
         f"reveals cannot be read any further: {known.reveals_held}", True),
        (known.registered is False, ReasonName.NOT_REGISTERED, "the hotkey is not registered on the subnet", True),
        (known.validator_permit is False, ReasonName.NO_PERMIT,
         "the hotkey has no validator permit, so the chain refuses its weights", False),
        (known.observing is True, ReasonName.OBSERVING,
         "no wallet is named in the settings: the node observes and judges, and publishes no weights", False),
        (bool(known.waived_layers), ReasonName.LAYERS_WAIVED,
         f"isolation layers are given up in the settings: {', '.join(known.waived_layers or ())}", False),
    ]
    return [Reason(name, sentence, blocks) for holds, name, sentence, blocks in found if holds]
