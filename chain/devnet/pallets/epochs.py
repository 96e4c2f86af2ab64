"""Epochs: the stateful schedule of every subnet, and what happens when one runs.

Invariants
1. An epoch runs at the start of block `n` when `n >= LastEpochBlock + Tempo`, or when a pending epoch is due; a
   subnet with tempo 0 never runs one.
2. Running one counts the epoch, opens the commits that are due (under the permits of the epoch before), computes
   incentives and dividends from the weights, and gives the validator permits anew by stake.
3. A genesis may keep the permits of its subnet as they are; a validator without stake then counts as one of one rao.
"""

from __future__ import annotations

from typing import TypeVar

from chain.devnet.codec import as_account
from chain.devnet.context import Context, call
from chain.devnet.pallets import consensus
from chain.devnet.pallets.commit_reveal import oldest_commits, reveal_epoch
from chain.devnet.pallets.subtensor import (
    PALLET,
    U16_MAX,
    fail,
    get,
    hotkey_of,
    mechanisms,
    netuids,
    permits_are_fixed,
    put,
    size,
    stake_of,
    storage_index,
    subnet_exists,
    uid_of,
)
from chain.devnet.scale import Reader
from chain.devnet.storage import Session, StorageView

_ALPHA_PER_BLOCK_RAO = 10**9
T = TypeVar("T")


def next_epoch_block(state: StorageView, netuid: int) -> int | None:
    """Return the block at whose start the next epoch is due, or None for tempo 0."""
    tempo = int(get(state, "Tempo", netuid))
    if not tempo:
        return None
    due = int(get(state, "LastEpochBlock", netuid)) + tempo
    pending = int(get(state, "PendingEpochAt", netuid))
    return min(due, pending) if pending else due


def activity_cutoff(state: StorageView, netuid: int) -> int:
    """Return the number of blocks without new weights after which a validator no longer counts."""
    return int(get(state, "ActivityCutoffFactorMilli", netuid)) * int(get(state, "Tempo", netuid)) // 1_000


def start_block(context: Context) -> None:
    """Run the epochs that are due and count the blocks of the others."""
    state = context.state
    for netuid in netuids(state):
        due = next_epoch_block(state, netuid)
        if due is not None and context.block >= due:
            run_epoch(context, netuid)
        elif due is not None:
            put(state, "BlocksSinceLastStep", netuid, value=int(get(state, "BlocksSinceLastStep", netuid)) + 1)


def run_epoch(context: Context, netuid: int) -> None:
    """Enter a subnet's next epoch."""
    state = context.state
    epoch = int(get(state, "SubnetEpochIndex", netuid)) + 1
    put(state, "SubnetEpochIndex", netuid, value=epoch)
    put(state, "LastEpochBlock", netuid, value=context.block)
    put(state, "LastMechansimStepBlock", netuid, value=context.block)
    put(state, "BlocksSinceLastStep", netuid, value=0)
    if int(get(state, "PendingEpochAt", netuid)):
        state.delete(PALLET, "PendingEpochAt", netuid)
    reveal_epoch(context, netuid, epoch)
    _step(state, netuid)


def _step(state: Session, netuid: int) -> None:
    """Compute and store what the epoch's weights are worth."""
    count, fixed = size(state, netuid), permits_are_fixed(state, netuid)
    stakes = [stake_of(state, netuid, hotkey_of(state, netuid, uid)) for uid in range(count)]
    threshold = int(get(state, "StakeThreshold"))
    stakes = [max(stake, 1) if fixed else stake * (stake >= threshold) for stake in stakes]
    outcomes = {}
    for mechanism in mechanisms(state, netuid):
        index = storage_index(netuid, mechanism)
        outcome = outcomes[mechanism] = consensus.run(_subnet(state, netuid, index, stakes))
        put(state, "Incentive", index, value=_u16(outcome.incentives))
        for uid, row in enumerate(outcome.bonds):
            if row:
                put(state, "Bonds", index, uid, value=row)
            elif get(state, "Bonds", index, uid):
                state.delete(PALLET, "Bonds", index, uid)
    share = 1 / max(len(outcomes), 1)
    pool = share * (_ALPHA_PER_BLOCK_RAO * int(get(state, "Tempo", netuid)) * _participants_share(state) / 2)
    put(state, "Consensus", netuid, value=_u16(outcomes[0].consensus))
    for item, field in (("Dividends", "dividends"), ("ValidatorTrust", "validator_trust")):
        vectors = [getattr(outcome, field) for outcome in outcomes.values()]
        put(state, item, netuid, value=_u16([share * sum(each) for each in zip(*vectors, strict=True)]))
    earned = [0.0] * count
    for outcome in outcomes.values():
        for uid, (mined, divided) in enumerate(zip(outcome.incentives, outcome.dividends, strict=True)):
            earned[uid] += pool * (mined + divided)
    put(state, "Emission", netuid, value=[int(amount) for amount in earned])
    put(state, "Active", netuid, value=_active(state, netuid, netuid, count))
    if not fixed:
        most = int(get(state, "MaxAllowedValidators", netuid))
        put(state, "ValidatorPermit", netuid, value=consensus.top_permits(stakes, most))


def _subnet(state: StorageView, netuid: int, index: int, stakes: list[int]) -> consensus.Subnet:
    count = len(stakes)
    updates = _filled(get(state, "LastUpdate", index), count, 0)
    if get(state, "CommitRevealWeightsEnabled", netuid):
        # A waiting commit moved `LastUpdate`, but says nothing about neurons that registered after it.
        for hotkey, block in oldest_commits(state, index).items():
            uid = uid_of(state, netuid, hotkey)
            if uid is not None:
                updates[uid] = min(updates[uid], block + 1)
    return consensus.Subnet(
        stakes=stakes,
        permits=_filled(get(state, "ValidatorPermit", netuid), count, False),
        active=_active(state, netuid, index, count),
        weights=[get(state, "Weights", index, uid) for uid in range(count)],
        bonds=[get(state, "Bonds", index, uid) for uid in range(count)],
        outdated_before=updates,
        registered=[int(get(state, "BlockAtRegistration", netuid, uid)) for uid in range(count)],
        owner_uid=uid_of(state, netuid, as_account(get(state, "SubnetOwnerHotkey", netuid))),
        kappa=int(get(state, "Kappa", netuid)),
        bonds_moving_average=int(get(state, "BondsMovingAverage", netuid)),
    )


def _active(state: StorageView, netuid: int, index: int, count: int) -> list[bool]:
    cutoff = activity_cutoff(state, netuid)
    return [update + cutoff >= state.block for update in _filled(get(state, "LastUpdate", index), count, 0)]


def _filled(vector: list[T], count: int, blank: T) -> list[T]:
    return [*vector[:count], *[blank] * (count - len(vector))]


def _u16(shares: list[float]) -> list[int]:
    return [consensus.to_u16(share) for share in shares]


def _participants_share(state: StorageView) -> float:
    """Return the part of a subnet's emission that is not the owner's cut."""
    return 1 - int(get(state, "SubnetOwnerCut")) / U16_MAX


@call(PALLET, "trigger_epoch", free=True)
def trigger_epoch(context: Context, signer: bytes, arguments: Reader) -> None:
    """Let the subnet's owner pull the next epoch forward, to the end of the admin freeze window."""
    netuid = arguments.unsigned(2)
    state = context.state
    if not subnet_exists(state, netuid):
        raise fail("SubnetNotExists")
    if as_account(get(state, "SubnetOwner", netuid)) != signer:
        raise fail("NotSubnetOwner")
    if get(state, "CommitRevealWeightsEnabled", netuid):
        raise fail("DynamicTempoBlockedByCommitReveal")
    if int(get(state, "PendingEpochAt", netuid)):
        raise fail("EpochTriggerAlreadyPending")
    fires_at = context.block + max(int(get(state, "AdminFreezeWindow")), 1)
    due = next_epoch_block(state, netuid)
    if due is not None and due <= fires_at:
        raise fail("AutoEpochAlreadyImminent")
    put(state, "PendingEpochAt", netuid, value=fires_at)
    context.emit(PALLET, "EpochTriggered", {"netuid": netuid, "by": signer, "fires_at": fires_at})
