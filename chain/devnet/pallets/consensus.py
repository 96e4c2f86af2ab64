"""What an epoch computes from the weights of one mechanism: permits, consensus, incentives, bonds, dividends.

Invariants
1. Pure: numbers in, numbers out; no storage. Every list has one entry per uid, every share lies between 0 and 1.
2. Only rows of permitted, active neurons with stake count. A weight on oneself, or on a neuron that registered at or
   after the row's last update, counts as zero: what was meant for a uid's former owner never pays the new one.
3. Weights above the consensus (the largest weight that `kappa` of the active stake supports) are cut down to it.
"""

from __future__ import annotations

import msgspec

from chain.devnet.pallets.subtensor import U16_MAX

_BONDS_SCALE = 1_000_000
# Rounding errors of binary fractions must not turn a whole share into one less.
_ROUNDING = 1e-6
Row = dict[int, float]


class Subnet(msgspec.Struct, frozen=True):
    """One mechanism before its epoch. Stakes are rao; weights and bonds the stored u16 pairs; blocks are block numbers.

    `outdated_before` is, per uid, the block up to which registrations void this uid's weight on them.
    """

    stakes: list[int]
    permits: list[bool]
    active: list[bool]
    weights: list[list[tuple[int, int]]]
    bonds: list[list[tuple[int, int]]]
    outdated_before: list[int]
    registered: list[int]
    owner_uid: int | None
    kappa: int
    bonds_moving_average: int


class Outcome(msgspec.Struct, frozen=True):
    """One mechanism after its epoch; `bonds` are stored pairs, everything else shares per uid."""

    consensus: list[float]
    incentives: list[float]
    dividends: list[float]
    validator_trust: list[float]
    bonds: list[list[tuple[int, int]]]


def top_permits(stakes: list[int], most: int) -> list[bool]:
    """Return who holds a validator permit: the `most` largest stakes that are not zero, lower uids first on a tie."""
    order = sorted(range(len(stakes)), key=lambda uid: (-stakes[uid], uid))
    chosen = {uid for uid in order[:most] if stakes[uid] > 0}
    return [uid in chosen for uid in range(len(stakes))]


def to_u16(share: float) -> int:
    """Return a share as the runtime stores it: a fraction of 65535, rounded down."""
    return min(int(share * U16_MAX + _ROUNDING), U16_MAX)


def run(subnet: Subnet) -> Outcome:
    """Compute one epoch of one mechanism."""
    count = len(subnet.stakes)
    stakes = _active_stakes(subnet)
    weights = [_countable(subnet, uid) if stakes[uid] else {} for uid in range(count)]
    columns = _columns(weights, count)
    consensus = [_weighted_median(stakes, columns[uid], subnet.kappa) for uid in range(count)]
    clipped = [{target: min(value, consensus[target]) for target, value in row.items()} for row in weights]
    ranks = [0.0] * count
    for uid, row in enumerate(clipped):
        for target, value in row.items():
            ranks[target] += stakes[uid] * value
    incentives = _normalised(ranks)
    bonds = _moved_bonds(subnet, clipped, stakes)
    dividends = _normalised([sum(value * incentives[target] for target, value in row.items()) for row in bonds])
    return Outcome(consensus, incentives, dividends, [sum(row.values()) for row in clipped], _stored(bonds))


def _active_stakes(subnet: Subnet) -> list[float]:
    counted = zip(subnet.stakes, subnet.permits, subnet.active, strict=True)
    return _normalised([float(stake) if permit and active else 0.0 for stake, permit, active in counted])


def _countable(subnet: Subnet, uid: int) -> Row:
    count, since = len(subnet.stakes), subnet.outdated_before[uid]
    row = {
        target: float(value)
        for target, value in subnet.weights[uid]
        if value and target < count and subnet.registered[target] < since and (target != uid or uid == subnet.owner_uid)
    }
    whole = sum(row.values())
    return {target: value / whole for target, value in row.items()}


def _columns(rows: list[Row], count: int) -> list[Row]:
    columns: list[Row] = [{} for _ in range(count)]
    for uid, row in enumerate(rows):
        for target, value in row.items():
            columns[target][uid] = value
    return columns


def _weighted_median(stakes: list[float], column: Row, kappa: int) -> float:
    """Return the largest weight that at least `kappa` of the stake puts on one neuron, or more than it."""
    minority = 1.0 - kappa / U16_MAX
    below = sum(stakes) - sum(stakes[uid] for uid in column)
    if minority < below:
        return 0.0
    for value in sorted(set(column.values())):
        below += sum(stakes[uid] for uid, mine in column.items() if mine == value)
        if minority < below:
            return value
    return 0.0


def _moved_bonds(subnet: Subnet, clipped: list[Row], stakes: list[float]) -> list[Row]:
    """Return the moving average of the bonds, every column summing to one."""
    count = len(stakes)
    old = _column_normalised([dict(row) for row in subnet.bonds], count)
    for uid, row in enumerate(old):
        for target in [each for each in row if subnet.registered[each] >= subnet.outdated_before[uid]]:
            del row[target]
    new = _column_normalised(
        [{target: value * stakes[uid] for target, value in row.items()} for uid, row in enumerate(clipped)], count
    )
    alpha = 1.0 - subnet.bonds_moving_average / _BONDS_SCALE
    mixed = [
        {
            target: alpha * fresh.get(target, 0.0) + (1.0 - alpha) * stale.get(target, 0.0)
            for target in sorted(fresh.keys() | stale.keys())
        }
        for fresh, stale in zip(new, old, strict=True)
    ]
    return _column_normalised(mixed, count)


def _column_normalised(rows: list[dict[int, float]] | list[dict[int, int]], count: int) -> list[Row]:
    sums = [0.0] * count
    for row in rows:
        for target, value in row.items():
            if target < count:
                sums[target] += value
    return [
        {target: value / sums[target] for target, value in row.items() if target < count and sums[target]}
        for row in rows
    ]


def _stored(bonds: list[Row]) -> list[list[tuple[int, int]]]:
    tops: Row = {}
    for row in bonds:
        for target, value in row.items():
            tops[target] = max(tops.get(target, 0.0), value)
    return [
        [(target, to_u16(value / tops[target])) for target, value in sorted(row.items()) if value] for row in bonds
    ]


def _normalised(values: list[float]) -> list[float]:
    whole = sum(values)
    return [value / whole for value in values] if whole else [0.0] * len(values)
