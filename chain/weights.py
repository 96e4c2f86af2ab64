"""From a vector of hotkeys to a row of UIDs, and whether the chain would take it now. Pure arithmetic.

Invariants
1. Shares are integers in ppm, positive, over distinct hotkeys, summing to 1,000,000. Anything else is a defect of ours
   and stops publication (WEIGHT_VECTOR_INVALID); there are no floats, so there is no NaN.
2. Hotkeys become UIDs against one metagraph, at signing time. The share of a hotkey that is not registered goes to the
   validator itself; what is to be burned goes to the burn hotkey or nowhere. A UID is never remembered from before, so
   whoever inherits one inherits nothing.
3. Values are scaled so that the largest is 65535 and rounded by largest remainder: the total is kept to one unit, a
   larger share never gets a smaller value, and equal remainders are settled by hotkey. Values of zero are left out.
4. Every reason not to publish names the value there is, the value needed and, where known, the block it can work at.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from chain.hyperparameters import Hyperparameters
from chain.metagraph import Metagraph, Neuron
from config.errors import InternalError

U16_MAX = 65_535
PPM = 1_000_000


class WeightTarget(msgspec.Struct, frozen=True):
    """The vector to publish: (hotkey, ppm) entries, its digest, and the chain epoch it was computed for.

    `burn_hotkey` names the entry whose share is burned, if there is one: nobody may receive it in its place.
    """

    entries: tuple[tuple[str, int], ...]
    digest: str
    epoch: int
    burn_hotkey: str | None = None


class WeightRow(msgspec.Struct, frozen=True):
    """A row as it is signed: parallel UIDs (ascending), values (1..65535) and the hotkeys they stand for."""

    uids: tuple[int, ...]
    values: tuple[int, ...]
    hotkeys: tuple[str, ...]


class Waiting(msgspec.Struct, frozen=True):
    """Why nothing was done: a code, a sentence, what is and what is needed, and the block at which it can change."""

    code: str
    message: str
    current: str = ""
    needed: str = ""
    at_block: int | None = None


def resolve_row(target: WeightTarget, metagraph: Metagraph, validator: Neuron) -> WeightRow:
    """Return the row that pays `target` on `metagraph`; raises `InternalError` (WEIGHT_VECTOR_INVALID)."""
    _require_sound(target)
    shares: dict[str, int] = {}
    for hotkey, ppm in target.entries:
        recipient = hotkey if metagraph.by_hotkey(hotkey) else validator.hotkey
        shares[recipient] = shares.get(recipient, 0) + ppm
    values = scale_shares(shares)
    paid = sorted((_uid(metagraph, hotkey), value, hotkey) for hotkey, value in values.items() if value)
    uids, numbers, hotkeys = zip(*paid, strict=True)
    return WeightRow(uids, numbers, hotkeys)


def reason_not_to_burn(target: WeightTarget, metagraph: Metagraph) -> Waiting | None:
    """Return why `target` cannot be paid because something of it is to be burned and cannot be, or None."""
    burn = target.burn_hotkey
    if burn is None or all(hotkey != burn for hotkey, _ in target.entries) or metagraph.by_hotkey(burn):
        return None
    who = f"Hotkey {burn}, which receives what is burned," if burn else "The hotkey that receives what is burned"
    return Waiting(
        "BURN_HOTKEY_NOT_REGISTERED",
        f"{who} is not registered on subnet {metagraph.netuid}; its share is paid to nobody else.",
        current="not registered",
        needed="registered",
    )


def scale_shares(shares: Mapping[str, int]) -> dict[str, int]:
    """Return a value in 0..65535 for each share, the largest share getting 65535."""
    top = max(shares.values())
    parts = {name: divmod(share * U16_MAX, top) for name, share in shares.items()}
    missing = sum(shares.values()) * U16_MAX // top - sum(quotient for quotient, _ in parts.values())
    by_remainder = sorted(parts, key=lambda name: (-parts[name][1], name))
    lifted = set(by_remainder[:missing])
    return {name: quotient + (name in lifted) for name, (quotient, _) in parts.items()}


def reason_to_wait(row: WeightRow, validator: Neuron, parameters: Hyperparameters, size: int) -> Waiting | None:
    """Return why the chain would not take `row` in the next block, or None. `size` is the subnet's neuron count."""
    limited = _rate_limited(validator, parameters)
    if limited or row.uids == (validator.uid,):
        return limited  # a validator may always point at itself alone
    if not validator.validator_permit:
        return Waiting(
            "NOT_PERMITTED",
            f"Hotkey {validator.hotkey} has no validator permit; permits are given when an epoch runs.",
            current="no permit",
            needed="validator permit",
            at_block=parameters.next_epoch_block,
        )
    wanted = min(parameters.min_allowed_weights, size)
    if len(row.uids) < wanted:
        return Waiting(
            "WEIGHTS_TOO_FEW",
            f"The subnet takes rows of at least {wanted} weights, and this one has {len(row.uids)}.",
            current=str(len(row.uids)),
            needed=str(wanted),
        )
    return _above_limit(row, parameters)


def rows_match(uids: tuple[int, ...], values: tuple[int, ...], stored: tuple[tuple[int, int], ...]) -> bool:
    """Say whether a stored row pays exactly what was intended, in whatever order."""
    return dict(zip(uids, values, strict=True)) == dict(stored) and len(stored) == len(uids)


def _require_sound(target: WeightTarget) -> None:
    amounts = [ppm for _, ppm in target.entries]
    whole = all(isinstance(ppm, int) and not isinstance(ppm, bool) and ppm > 0 for ppm in amounts)
    if not amounts or not whole or sum(amounts) != PPM:
        raise _unsound(f"its shares are {amounts[:8]}, not positive integers that sum to {PPM}")
    if len({hotkey for hotkey, _ in target.entries}) != len(amounts):
        raise _unsound("it names a hotkey twice")


def _unsound(why: str) -> InternalError:
    return InternalError(
        "WEIGHT_VECTOR_INVALID",
        f"The weight vector is not published: {why}.",
        hint="This is a defect of ours; keep the state folder and report it.",
    )


def _uid(metagraph: Metagraph, hotkey: str) -> int:
    neuron = metagraph.by_hotkey(hotkey)
    if neuron is None:
        raise _unsound(f"{hotkey} is not registered")
    return neuron.uid


def _rate_limited(validator: Neuron, parameters: Hyperparameters) -> Waiting | None:
    last, next_block = validator.last_update, parameters.block.number + 1
    ready = last + parameters.rate_limit
    if last == 0 or next_block >= ready:
        return None
    return Waiting(
        "RATE_LIMITED",
        f"Weights were last set in block {last}, and the subnet wants {parameters.rate_limit} blocks in between.",
        current=f"{next_block - last} blocks",
        needed=f"{parameters.rate_limit} blocks",
        at_block=ready,
    )


def _above_limit(row: WeightRow, parameters: Hyperparameters) -> Waiting | None:
    limit, total, top = parameters.max_weight_limit, sum(row.values), max(row.values)
    if limit >= U16_MAX or top * U16_MAX <= limit * total:
        return None
    return Waiting(
        "WEIGHT_ABOVE_LIMIT",
        "The largest weight is above the subnet's limit for one weight; the vector is not bent to fit.",
        current=f"{top * PPM // total} ppm",
        needed=f"at most {limit * PPM // U16_MAX} ppm",
    )
