"""Why weights are not published now. Pure: each rule of the chain, and the sentence that says which one is in the way.

Invariants
1. A reason names what there is, what is needed and the block at which it can work; without a block it says whose turn
   it is.
2. Rules are the runtime's: a reason is given exactly when the runtime would refuse, or would drop in silence.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from chain.clock import ClockGap
from chain.hyperparameters import Hyperparameters
from chain.metagraph import Metagraph
from chain.publication_record import PublicationRecord
from chain.validator_state import ValidatorState
from chain.weights import PPM, U16_MAX, WeightRow, WeightTarget

COMMITS_PER_EPOCH = 10  # unrevealed commits of one hotkey that the runtime keeps for one epoch
RAO = 1_000_000_000


class Waiting(msgspec.Struct, frozen=True):
    """Why nothing was done: a code, a sentence, what is and what is needed, and the block at which it can change."""

    code: str
    message: str
    current: str = ""
    needed: str = ""
    at_block: int | None = None


def reason_to_wait(state: ValidatorState, mechanism: int, next_block: int) -> Waiting | None:
    """Return why the chain would take no weights at all of this validator in `next_block`, or None."""
    parameters = state.parameters
    if state.uid is None:
        return Waiting(
            "NOT_REGISTERED",
            f"Hotkey {state.hotkey} is not registered on subnet {parameters.netuid}, so it has no weights row; "
            "weights go out in the block after its registration.",
            current="not registered",
            needed="registered",
        )
    if mechanism >= parameters.mechanism_count:
        return Waiting(
            "MECHANISM_MISSING",
            f"Subnet {parameters.netuid} has {parameters.mechanism_count} mechanisms and no mechanism {mechanism}; "
            "set `publication.mechanism` to one it has.",
            current=f"{parameters.mechanism_count} mechanisms",
            needed=f"mechanism {mechanism}",
        )
    ready = state.last_update + parameters.rate_limit
    if state.last_update == 0 or next_block >= ready:
        return None
    return Waiting(
        "RATE_LIMITED",
        f"Weights were last set in block {state.last_update}, and the subnet wants {parameters.rate_limit} blocks in "
        "between.",
        current=f"{next_block - state.last_update} blocks",
        needed=f"{parameters.rate_limit} blocks",
        at_block=ready,
    )


def reason_against_row(row: WeightRow, state: ValidatorState, size: int) -> Waiting | None:
    """Return why the chain would not take `row`, or None. `size` is the subnet's neuron count."""
    parameters = state.parameters
    if row.uids == (state.uid,):
        return None  # a validator may always point at itself alone
    if not state.permit:
        return Waiting(
            "NOT_PERMITTED",
            f"Hotkey {state.hotkey} has no validator permit; permits are given when an epoch runs.",
            current="no permit",
            needed="validator permit",
            at_block=parameters.next_epoch_block,
        )
    wanted = min(parameters.min_allowed_weights, size)
    if len(row.uids) < wanted:
        return Waiting(
            "WEIGHTS_TOO_FEW",
            f"The subnet takes rows of at least {wanted} weights, and this one has {len(row.uids)}; it can work in the "
            "epoch after the subnet's owner lowers `min_allowed_weights`, or once more hotkeys hold crowns.",
            current=str(len(row.uids)),
            needed=str(wanted),
            at_block=parameters.next_epoch_block,
        )
    return _above_limit(row, parameters)


def reason_of_stake(state: ValidatorState, stake_rao: int) -> Waiting | None:
    """Return why `stake_rao` is too little to set weights, or None."""
    needed = state.parameters.stake_threshold
    if stake_rao >= needed:
        return None
    return Waiting(
        "STAKE_TOO_LOW",
        f"Hotkey {state.hotkey} has a stake weight of {_tao(stake_rao)}, and weights may be set from {_tao(needed)} "
        "on; it works in the block after enough was staked.",
        current=_tao(stake_rao),
        needed=_tao(needed),
    )


def reason_not_to_burn(target: WeightTarget, metagraph: Metagraph) -> Waiting | None:
    """Return why `target` cannot be paid because something of it is to be burned and cannot be, or None."""
    burned = any(hotkey == target.burn_hotkey for hotkey, _ in target.entries)
    absent = any(metagraph.by_hotkey(hotkey) is None for hotkey, _ in target.entries)
    receivers = [target.burn_hotkey] if burned else []
    receivers += [target.absent_hotkey] if absent and target.absent_hotkey is not None else []
    missing = next((one for one in receivers if one is not None and metagraph.by_hotkey(one) is None), None)
    if missing is None:
        return None
    who = f"Hotkey {missing}, which receives what is burned," if missing else "The hotkey that receives what is burned"
    return Waiting(
        "BURN_HOTKEY_NOT_REGISTERED",
        f"{who} is not registered on subnet {metagraph.netuid}; its share is paid to nobody else.",
        current="not registered",
        needed="registered",
    )


def epoch_turned(wanted: int, current: Hyperparameters) -> Waiting:
    """The vector is for another epoch than the one the chain is in."""
    return Waiting(
        "TARGET_EPOCH_STALE",
        f"The vector was computed for epoch {wanted}, and the chain is in epoch {current.epoch}.",
        current=str(wanted),
        needed=str(current.epoch),
        at_block=current.block.number + 1,
    )


def uids_reassigned(uids: Sequence[int], state: ValidatorState) -> Waiting:
    """A UID of the row belongs to someone else in a newer block."""
    return Waiting(
        "UID_REASSIGNED",
        f"UIDs {list(uids)} changed hands in or before block {state.block.number}; whoever has them now is not paid in "
        "place of those who had them.",
        current=f"uids {list(uids)} of others",
        needed="a row resolved after the change is final",
        at_block=state.block.number + 1,
    )


def clock_differs(gap: ClockGap) -> Waiting:
    """The round of a sealed row would be counted with a wrong clock."""
    return Waiting("CLOCK_DIFFERS", gap.message, current=gap.current, needed=gap.needed)


def too_many_commits(count: int, parameters: Hyperparameters) -> Waiting:
    """The runtime keeps only so many unrevealed commits of one hotkey."""
    return Waiting(
        "TOO_MANY_COMMITS",
        f"The chain holds {count} unrevealed commits of this hotkey for epoch {parameters.epoch}, and takes "
        f"{COMMITS_PER_EPOCH}; another program is committing weights with the same hotkey.",
        current=str(count),
        needed=f"fewer than {COMMITS_PER_EPOCH}",
        at_block=parameters.next_epoch_block,
    )


def until_era_end(code: str, message: str, record: PublicationRecord, *, current: str = "") -> Waiting:
    """The extrinsic's fate is open until its era is over."""
    end = record.era_end_block
    return Waiting(code, message, current=current or record.status, needed="included", at_block=end)


def reveal_pending(parameters: Hyperparameters, reveal_epoch: int, moved: Sequence[int] = ()) -> Waiting:
    """The commit is on the chain and opens at `reveal_epoch`."""
    warning = f" UIDs {list(moved)} changed hands meanwhile; the next publication corrects them." if moved else ""
    return Waiting(
        "REVEAL_PENDING",
        f"The committed weights apply in epoch {reveal_epoch}; the chain is in epoch {parameters.epoch}.{warning}",
        current=f"epoch {parameters.epoch}",
        needed=f"epoch {reveal_epoch}",
        at_block=parameters.next_epoch_block,
    )


def archive_needed(record: PublicationRecord, parameters: Hyperparameters, decided_epoch: int) -> Waiting:
    """The blocks that would show the extrinsic are gone from the endpoints in use."""
    return Waiting(
        "ARCHIVE_NEEDED",
        f"The endpoints no longer have the blocks up to {record.era_end_block} that may hold extrinsic "
        f"{record.extrinsic_hash}; without an archive endpoint the weights row decides in epoch {decided_epoch}.",
        current="pruned blocks",
        needed=f"an archive endpoint in `chain.endpoints`, or epoch {decided_epoch}",
        at_block=parameters.next_epoch_block,
    )


def _above_limit(row: WeightRow, parameters: Hyperparameters) -> Waiting | None:
    limit, total, top = parameters.max_weight_limit, sum(row.values), max(row.values)
    if limit >= U16_MAX or top * U16_MAX <= limit * total:
        return None
    return Waiting(
        "WEIGHT_ABOVE_LIMIT",
        "The largest weight is above the subnet's limit for one weight; the vector is not bent to fit. It can work in "
        "the epoch after the subnet's owner raises `max_weights_limit`, or once more hotkeys share the weight.",
        current=f"{top * PPM // total} ppm",
        needed=f"at most {limit * PPM // U16_MAX} ppm",
        at_block=parameters.next_epoch_block,
    )


def _tao(rao: int) -> str:
    return f"{rao // RAO}.{rao % RAO:09d}"
