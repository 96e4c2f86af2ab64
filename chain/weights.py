"""From a vector of hotkeys to a row of UIDs. Pure arithmetic.

Invariants
1. Shares are integers in ppm, positive, over distinct hotkeys, summing to 1,000,000. Anything else is a defect of ours
   and stops publication (WEIGHT_VECTOR_INVALID); there are no floats, so there is no NaN.
2. Hotkeys become UIDs against one metagraph, at signing time. The share of a hotkey that is not registered goes where
   the target says, to the validator itself or to whoever burns; it is never shared out among the others. What is to be
   burned goes to the burn hotkey or nowhere. A UID is never remembered from before, so whoever inherits one inherits
   nothing.
3. Values are scaled so that the largest is 65535 and rounded by largest remainder: the total is kept to one unit, a
   larger share never gets a smaller value, and equal remainders are settled by hotkey. Values of zero are left out.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from chain.metagraph import Metagraph, Neuron
from config.errors import InternalError

U16_MAX = 65_535
PPM = 1_000_000


class WeightTarget(msgspec.Struct, frozen=True):
    """The vector to publish: (hotkey, ppm) entries, its digest, and the chain epoch it was computed for.

    `burn_hotkey` names the entry whose share is burned, if there is one: nobody may receive it in its place.
    `absent_hotkey` receives the shares of entries that are not registered; None = the validator.
    """

    entries: tuple[tuple[str, int], ...]
    digest: str
    epoch: int
    burn_hotkey: str | None = None
    absent_hotkey: str | None = None


class WeightRow(msgspec.Struct, frozen=True):
    """A row as it is signed: parallel UIDs (ascending), values (1..65535) and the hotkeys they stand for."""

    uids: tuple[int, ...]
    values: tuple[int, ...]
    hotkeys: tuple[str, ...]


def resolve_row(target: WeightTarget, metagraph: Metagraph, validator: Neuron) -> WeightRow:
    """Return the row that pays `target` on `metagraph`; raises `InternalError` (WEIGHT_VECTOR_INVALID)."""
    _require_sound(target)
    shares: dict[str, int] = {}
    heir = validator.hotkey if target.absent_hotkey is None else target.absent_hotkey
    for hotkey, ppm in target.entries:
        recipient = hotkey if metagraph.by_hotkey(hotkey) else heir
        shares[recipient] = shares.get(recipient, 0) + ppm
    values = scale_shares(shares)
    paid = sorted((_uid(metagraph, hotkey), value, hotkey) for hotkey, value in values.items() if value)
    uids, numbers, hotkeys = zip(*paid, strict=True)
    return WeightRow(uids, numbers, hotkeys)


def scale_shares(shares: Mapping[str, int]) -> dict[str, int]:
    """Return a value in 0..65535 for each share, the largest share getting 65535."""
    top = max(shares.values())
    parts = {name: divmod(share * U16_MAX, top) for name, share in shares.items()}
    missing = sum(shares.values()) * U16_MAX // top - sum(quotient for quotient, _ in parts.values())
    by_remainder = sorted(parts, key=lambda name: (-parts[name][1], name))
    lifted = set(by_remainder[:missing])
    return {name: quotient + (name in lifted) for name, (quotient, _) in parts.items()}


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
