"""Commit-reveal weights: timelocked rows that apply themselves when their epoch comes.

Invariants
1. A commit made in epoch `e` is opened when the subnet enters epoch `e + RevealPeriodEpochs`.
2. A commit that does not open, names another hotkey or fails any check of a weight row (a stale version key, say)
   is dropped: no event, no error, unchanged weights, although its commit succeeded and moved `LastUpdate`.
3. Commits older than the reveal epoch are removed unopened.
"""

from __future__ import annotations

import msgspec

from chain.devnet.beacon import BeaconError, unseal
from chain.devnet.bounds import WEIGHT_COMMIT_BYTES, argument_check, bounded
from chain.devnet.context import Context, call
from chain.devnet.faults import DispatchError
from chain.devnet.pallets.drand import pulse_signature
from chain.devnet.pallets.subtensor import (
    PALLET,
    fail,
    get,
    mechanisms,
    require_mechanism,
    require_uid,
    set_entry,
    storage_index,
)
from chain.devnet.pallets.weights import rate_limited, set_row, stake_is_low
from chain.devnet.scale import Reader, ScaleError, blake2_256, byte_vector, compact, to_hex, u64
from chain.devnet.storage import StorageView
from chain.scale import ScaleReader

ITEM = "TimelockedWeightCommits"
UNREVEALED_LIMIT = 10


class WeightCommit(msgspec.Struct, frozen=True):
    """One sealed row: who committed it in which block, and the round that opens it."""

    who: bytes
    block: int
    ciphertext: bytes
    reveal_round: int


class RevealedRow(msgspec.Struct, frozen=True):
    """The plaintext of a commit: SCALE of hotkey, uids, values and version key."""

    hotkey: bytes
    row: list[tuple[int, int]]
    version_key: int


def read_commits(raw: bytes | None) -> list[WeightCommit]:
    """Decode a stored queue of commits."""
    if raw is None:
        return []
    reader = Reader(raw)
    return [
        WeightCommit(reader.take(32), reader.unsigned(8), reader.sized_bytes(), reader.unsigned(8))
        for _ in range(reader.compact())
    ]


def encode_commits(commits: list[WeightCommit]) -> bytes:
    """Encode a queue of commits for storage."""
    return compact(len(commits)) + b"".join(
        item.who + u64(item.block) + byte_vector(item.ciphertext) + u64(item.reveal_round) for item in commits
    )


def decode_row(plaintext: bytes) -> RevealedRow:
    """Decode an opened commit; raises `ScaleError`."""
    reader = Reader(plaintext)
    hotkey, uids, values = reader.sized_bytes(), reader.u16_vector(), reader.u16_vector()
    version_key = reader.unsigned(8)
    if len(uids) != len(values):
        raise ScaleError("as many values as uids are needed")
    return RevealedRow(hotkey, list(zip(uids, values, strict=True)), version_key)


def _read_ciphertext(arguments: ScaleReader) -> bytes:
    ciphertext = arguments.sized_bytes()
    bounded("the commit", len(ciphertext), WEIGHT_COMMIT_BYTES)
    return ciphertext


@argument_check(PALLET, "commit_timelocked_weights")
def _check_commit(arguments: ScaleReader) -> None:
    arguments.take(2)
    _read_ciphertext(arguments)


@argument_check(PALLET, "commit_timelocked_mechanism_weights")
def _check_mechanism_commit(arguments: ScaleReader) -> None:
    arguments.take(3)
    _read_ciphertext(arguments)


def _commit(context: Context, signer: bytes, netuid: int, mechanism: int, arguments: Reader) -> None:
    ciphertext, reveal_round = _read_ciphertext(arguments), arguments.unsigned(8)
    version = arguments.unsigned(2)
    state = context.state
    require_mechanism(state, netuid, mechanism)
    if not get(state, "CommitRevealWeightsEnabled", netuid):
        raise fail("CommitRevealDisabled")
    if version != int(get(state, "CommitRevealWeightsVersion")):
        raise fail("IncorrectCommitRevealVersion")
    uid = require_uid(state, netuid, signer)
    index = storage_index(netuid, mechanism)
    if stake_is_low(state, netuid, signer):
        raise fail("NotEnoughStakeToSetWeights")
    if rate_limited(state, netuid, index, uid, context.block):
        raise fail("CommittingWeightsTooFast")
    epoch = int(get(state, "SubnetEpochIndex", netuid))
    key = state.codec.key(PALLET, ITEM, (index, epoch))
    queue = read_commits(state.raw(key))
    if sum(item.who == signer for item in queue) >= UNREVEALED_LIMIT:
        raise fail("TooManyUnrevealedCommits")
    queue.append(WeightCommit(signer, context.block, ciphertext, reveal_round))
    state.put_raw(key, encode_commits(queue))
    set_entry(state, "LastUpdate", index, uid, context.block)
    commit_hash = to_hex(blake2_256(ciphertext))
    context.emit(PALLET, "TimelockedWeightsCommitted", (signer, index, commit_hash, reveal_round))


@call(PALLET, "commit_timelocked_weights", free=True)
def commit_timelocked_weights(context: Context, signer: bytes, arguments: Reader) -> None:
    """Commit a sealed row in the subnet's first mechanism."""
    _commit(context, signer, arguments.unsigned(2), 0, arguments)


@call(PALLET, "commit_timelocked_mechanism_weights", free=True)
def commit_timelocked_mechanism_weights(context: Context, signer: bytes, arguments: Reader) -> None:
    """Commit a sealed row in one mechanism."""
    _commit(context, signer, arguments.unsigned(2), arguments.unsigned(1), arguments)


def oldest_commits(state: StorageView, index: int) -> dict[bytes, int]:
    """Return, by hotkey, the block of its oldest commit that still waits in a mechanism."""
    oldest: dict[bytes, int] = {}
    for _, raw in state.entries(PALLET, ITEM, index):
        for commit in read_commits(raw):
            oldest[commit.who] = min(commit.block, oldest.get(commit.who, commit.block))
    return oldest


def reveal_epoch(context: Context, netuid: int, epoch: int) -> None:
    """Open the commits that are due when a subnet enters `epoch`, and forget older ones."""
    state = context.state
    due = epoch - int(get(state, "RevealPeriodEpochs", netuid))
    for mechanism in mechanisms(state, netuid):
        index = storage_index(netuid, mechanism)
        for committed, raw in list(state.entries(PALLET, ITEM, index)):
            if committed > due:
                continue
            state.delete(PALLET, ITEM, index, committed)
            if committed == due:
                for commit in read_commits(raw):
                    _apply(context, netuid, mechanism, commit)


def _apply(context: Context, netuid: int, mechanism: int, commit: WeightCommit) -> None:
    revealed = _open(context.state, commit)
    if revealed is None or revealed.hotkey != commit.who:
        return
    mark = context.mark()
    try:
        with context.state.transaction():
            set_row(context, commit.who, netuid, mechanism, revealed.row, revealed.version_key)
    except DispatchError:
        context.rewind(mark)
        return
    context.emit(PALLET, "TimelockedWeightsRevealed", (storage_index(netuid, mechanism), commit.who))


def _open(state: StorageView, commit: WeightCommit) -> RevealedRow | None:
    signature = pulse_signature(state, commit.reveal_round)
    if signature is None:
        return None
    try:
        return decode_row(unseal(commit.ciphertext, signature))
    except (BeaconError, ScaleError):
        return None
