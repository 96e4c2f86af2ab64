"""What would be published now, and why not: everything before a signature, without a wallet.

Invariants
1. The node's next publication and the operator's dry run are this one function; it writes nothing.
2. The row is resolved at the finalized block. Rules are checked there and again at the newest block, because that is
   what the extrinsic meets; a difference between the two makes it wait.
3. A UID whose owner differs between the two blocks is about to change hands and is not signed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec

from chain.abi import Storage, mechanism_index
from chain.blocks import BlockRef
from chain.client import ChainClient
from chain.clock import clock_gap
from chain.hyperparameters import Hyperparameters
from chain.metagraph import Metagraph, read_metagraph
from chain.publication_record import PublicationRecord
from chain.stake import stake_weight_rao
from chain.validator_state import ValidatorState, WeightsOnChain, read_row, read_validator
from chain.waiting import (
    COMMITS_PER_EPOCH,
    Waiting,
    clock_differs,
    epoch_turned,
    reason_against_row,
    reason_not_to_burn,
    reason_of_stake,
    reason_to_wait,
    too_many_commits,
    uids_reassigned,
)
from chain.weights import WeightRow, WeightTarget, resolve_row, rows_match

Decide: TypeAlias = Callable[[Hyperparameters, Metagraph], Awaitable[WeightTarget]]
Desired: TypeAlias = WeightTarget | Decide


class PublicationOptions(msgspec.Struct, frozen=True):
    """How to publish. `era_blocks`: life of a signed extrinsic beyond the newest block, a power of two >= 4; one that
    can never be included is replaced after so many blocks, so it is much shorter than an epoch. `refresh_epochs`: an
    unchanged, confirmed vector is published again after this many epochs."""

    netuid: int
    profile: str
    mechanism: int = 0
    era_blocks: int = 16
    refresh_epochs: int = 1


class Plan(msgspec.Struct, frozen=True):
    """What a publication at `state.block` would be. `is_done`: the epoch needs none.

    `newest` is the newest block's state; `row` and `target` are None when something stops before they are known.
    """

    state: ValidatorState
    newest: ValidatorState
    is_done: bool = False
    waiting: Waiting | None = None
    target: WeightTarget | None = None
    row: WeightRow | None = None


async def plan_publication(
    client: ChainClient,
    hotkey: str,
    head: PublicationRecord | None,
    desired: Desired,
    options: PublicationOptions,
    block: BlockRef,
    *,
    complete: bool = False,
) -> Plan:
    """Return what can be published at finalized `block` after journal head `head`, which is not open.

    With `complete` the row is worked out even when something is in the way already, as a dry run shows it.
    """
    planning = _Planning(client, hotkey, options)
    state = await planning.read(block)
    plan = Plan(state, state, is_done=_is_covered(head, state.parameters))
    if plan.is_done and not complete:
        return plan
    if isinstance(desired, WeightTarget) and desired.epoch != state.parameters.epoch:
        return msgspec.structs.replace(plan, waiting=epoch_turned(desired.epoch, state.parameters))
    newest = await client.head()
    if newest.hash != block.hash:
        plan = msgspec.structs.replace(plan, newest=await planning.read(newest))
    waiting = await planning.early_reason(plan)
    if waiting is not None and not (complete or _may_be_fresh(head, state.parameters, options)):
        return msgspec.structs.replace(plan, waiting=waiting)
    return await planning.resolve(msgspec.structs.replace(plan, waiting=waiting), head, desired)


class _Planning:
    """The reads of one plan."""

    def __init__(self, client: ChainClient, hotkey: str, options: PublicationOptions) -> None:
        self._client = client
        self._hotkey = hotkey
        self._options = options

    async def read(self, block: BlockRef, watch: tuple[int, ...] = ()) -> ValidatorState:
        options = self._options
        return await read_validator(
            self._client, options.netuid, self._hotkey, block, mechanism=options.mechanism, watch=watch
        )

    async def early_reason(self, plan: Plan) -> Waiting | None:
        """Return what stands in the way of any row."""
        state, newest = plan.state, plan.newest
        if newest.parameters.epoch != state.parameters.epoch:
            return epoch_turned(state.parameters.epoch, newest.parameters)
        for one in (state, newest):
            waiting = reason_to_wait(one, self._options.mechanism, newest.block.number + 1)
            if waiting is not None:
                return waiting
        if newest.is_owner or newest.alpha_rao >= newest.parameters.stake_threshold:
            return None
        return reason_of_stake(newest, await stake_weight_rao(self._client, newest))

    async def resolve(self, plan: Plan, head: PublicationRecord | None, desired: Desired) -> Plan:
        """Decide the vector, resolve it and look for what stands in the way of this row."""
        state, options = plan.state, self._options
        parameters = state.parameters
        metagraph = await read_metagraph(self._client, options.netuid, state.block, options.mechanism)
        validator = metagraph.by_hotkey(self._hotkey)
        if validator is None:
            return plan  # `waiting` says so already
        target = desired if isinstance(desired, WeightTarget) else await desired(parameters, metagraph)
        plan = msgspec.structs.replace(plan, target=target)
        unburnable = reason_not_to_burn(target, metagraph)
        if unburnable is not None:
            return msgspec.structs.replace(plan, waiting=plan.waiting or unburnable)
        row = resolve_row(target, metagraph, validator)
        plan = msgspec.structs.replace(plan, row=row)
        if _may_be_fresh(head, parameters, options, target) and rows_match(
            row.uids, row.values, await self.row_on_chain(state)
        ):
            return msgspec.structs.replace(plan, is_done=True, waiting=None)
        if plan.waiting is not None:
            return plan
        return msgspec.structs.replace(plan, waiting=await self._reason_against(row, plan, len(metagraph.neurons)))

    async def row_on_chain(self, state: ValidatorState) -> WeightsOnChain:
        """Return the validator's stored row at the state's block."""
        if state.uid is None:
            return ()
        return await read_row(self._client, self._options.netuid, state.uid, state.block, self._options.mechanism)

    async def _reason_against(self, row: WeightRow, plan: Plan, size: int) -> Waiting | None:
        for one in (plan.state, plan.newest):
            waiting = reason_against_row(row, one, size)
            if waiting is not None:
                return waiting
        newest = plan.newest
        if newest.block != plan.state.block:
            watched = await self.read(newest.block, row.uids)
            moved = watched.moved(row.uids, row.hotkeys)
            if moved:
                return uids_reassigned(moved, watched)
        if not newest.parameters.commit_reveal_enabled:
            return None
        gap = await clock_gap(self._client, newest.block, self._options.profile)
        if gap.is_too_wide:
            return clock_differs(gap)
        count = await self._own_commits(newest)
        return too_many_commits(count, newest.parameters) if count >= COMMITS_PER_EPOCH else None

    async def _own_commits(self, state: ValidatorState) -> int:
        parameters = state.parameters
        index = mechanism_index(parameters.netuid, self._options.mechanism)
        (queue,) = await self._client.read(
            state.block, [(Storage.TIMELOCKED_WEIGHT_COMMITS, [index, parameters.epoch])]
        )
        return sum(str(entry[0]) == self._hotkey for entry in queue or [])


def _is_covered(head: PublicationRecord | None, parameters: Hyperparameters) -> bool:
    return head is not None and head.epoch >= parameters.epoch and head.status != "expired"


def _may_be_fresh(
    head: PublicationRecord | None,
    parameters: Hyperparameters,
    options: PublicationOptions,
    target: WeightTarget | None = None,
) -> bool:
    """Say whether the chain may hold the vector already, confirmed by us and young enough."""
    if head is None or head.status != "confirmed" or parameters.epoch - head.epoch >= options.refresh_epochs:
        return False
    return target is None or head.vector_digest == target.digest
