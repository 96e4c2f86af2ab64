"""Whether a node does its work, and why not: conditions in, reasons out.

Invariants
1. Judging is pure: whoever asks brings the conditions, so status, health pages and metrics cannot disagree.
2. What is not known is None and gives no reason; absence of knowledge is never taken for trouble, or for health.
3. A reason either keeps the node from its work (`blocks`) or is a thing that everybody who relies on it should know.
4. The names of reasons are a closed set: they may become labels. Codes are those of `cacheon explain`, which also says
   who has to act.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec

from config.codes import load_codes
from config.errors import Blame

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
    chain_away_code    the code of `chain_away`, reveals_held_code that of `reveals_held`; "" where there is none
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
    chain_away_code: str = ""
    reveals_held_code: str = ""


class Reason(msgspec.Struct, frozen=True):
    """One reason: a name for machines, a sentence for people, and whether the node cannot work because of it.

    `code` is what `cacheon explain` knows it by, `hint` what to do, and `blame` who has to act.
    """

    name: ReasonName
    sentence: str
    blocks: bool
    code: str = ""
    hint: str = ""
    blame: str = ""


class Readiness(msgspec.Struct, frozen=True):
    """The judgement. `ready` is false exactly when a reason blocks."""

    ready: bool
    reasons: tuple[Reason, ...]


class _Found(NamedTuple):
    """A reason that may hold, before its blame is looked up."""

    holds: bool
    name: ReasonName
    code: str
    sentence: str
    hint: str
    blocks: bool = True


def judge_readiness(conditions: Conditions, *, block_age_limit: float = BLOCK_AGE_LIMIT_SECONDS) -> Readiness:
    """Return whether a node in these conditions does its work, with every reason that it does not, or not wholly."""
    found = (*_of_the_machine(conditions), *_of_the_chain(conditions, block_age_limit), *_to_mind(conditions))
    reasons = tuple(
        Reason(one.name, one.sentence, one.blocks, one.code, one.hint, _blame(one.code)) for one in found if one.holds
    )
    return Readiness(not any(reason.blocks for reason in reasons), reasons)


def _of_the_machine(known: Conditions) -> tuple[_Found, ...]:
    return (
        _Found(
            known.running is False, ReasonName.STOPPED, "NODE_STOPPED", "no node is running on this state folder",
            "start it with `cacheon node run`; its log says why it ended",
        ),
        _Found(
            bool(known.missing_layers), ReasonName.LAYERS_MISSING, "SANDBOX_LAYER_MISSING",
            f"required isolation layers are missing: {', '.join(known.missing_layers or ())}",
            "`cacheon doctor` shows each layer and its fix",
        ),
        _Found(
            known.device_works is False, ReasonName.DEVICE_FAILING, "DEVICE_FAILING",
            "the measuring device fails its canary",
            "look at the device lines of `cacheon doctor`, and at the driver's log",
        ),
        _Found(
            known.store_works is False, ReasonName.STORE_FAILING, "STORE_UNUSABLE", "the state folder cannot be used",
            "check the disk (free space, permissions); the node goes on by itself once it works again",
        ),
    )


def _of_the_chain(known: Conditions, block_age_limit: float) -> tuple[_Found, ...]:
    age = known.block_age_seconds
    return (
        _Found(
            bool(known.chain_away), ReasonName.CHAIN_AWAY, known.chain_away_code or "CHAIN_UNREACHABLE",
            f"the chain cannot be followed: {known.chain_away}",
            "check `chain.endpoints`, or name another one; the node goes on by itself once the chain answers",
        ),
        _Found(
            age is not None and age > block_age_limit, ReasonName.BLOCK_STALE, "BLOCK_STALE",
            f"the last finalized block is {age or 0:.0f} s old (limit {block_age_limit:.0f})",
            "see whether the network itself stands still and whether this machine's clock is right; else use another "
            "endpoint",
        ),
        _Found(
            bool(known.reveals_held), ReasonName.REVEALS_HELD, known.reveals_held_code or "CHAIN_UNREACHABLE",
            f"reveals cannot be read any further: {known.reveals_held}",
            "add an endpoint that keeps old state (an archive) to `chain.endpoints`",
        ),
        _Found(
            known.registered is False, ReasonName.NOT_REGISTERED, "HOTKEY_NOT_REGISTERED",
            "the hotkey is not registered on the subnet", "register it; the node goes on by itself afterwards",
        ),
    )


def _to_mind(known: Conditions) -> tuple[_Found, ...]:
    return (
        _Found(
            known.validator_permit is False, ReasonName.NO_PERMIT, "NOT_PERMITTED",
            "the hotkey has no validator permit, so the chain refuses its weights",
            "add stake until the subnet grants the permit at an epoch's end", blocks=False,
        ),
        _Found(
            known.observing is True, ReasonName.OBSERVING, "NODE_OBSERVES",
            "no wallet is named in the settings: the node observes and judges, and publishes no weights",
            "nothing, if that is meant; else set `chain.signer_socket`, or `chain.wallet` and `chain.hotkey`",
            blocks=False,
        ),
        _Found(
            bool(known.waived_layers), ReasonName.LAYERS_WAIVED, "LAYERS_WAIVED",
            f"isolation layers are given up in the settings: {', '.join(known.waived_layers or ())}",
            "mend what the isolation lines of `cacheon doctor` name, then remove `sandbox.waive`", blocks=False,
        ),
    )


def _blame(code: str) -> str:
    document = load_codes().get(code)
    return document.blame if document is not None else Blame.INTERNAL.value
