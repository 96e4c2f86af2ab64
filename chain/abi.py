"""Every name of the runtime that this room uses, in one table.

Invariants
1. Reads, calls, events and constants are named by these enumerations only, so the start-up probe that walks them is
   complete.
2. A name that the connected runtime lacks is reported at start, by name, instead of failing in the middle of work.
3. Call arguments are part of the table: a call whose arguments changed is as missing as one that vanished.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum

import msgspec

MECHANISM_STRIDE = 4096  # storage index of mechanism m on subnet n is m * 4096 + n


class _Name(StrEnum):
    @property
    def pallet(self) -> str:
        """The pallet part of `Pallet.item`."""
        return self.value.partition(".")[0]

    @property
    def item(self) -> str:
        """The item part of `Pallet.item`."""
        return self.value.partition(".")[2]


class Storage(_Name):
    """Storage items that are read."""

    ACCOUNT = "System.Account"
    EVENTS = "System.Events"
    EVENT_COUNT = "System.EventCount"
    PARENT_HASH = "System.ParentHash"
    TIMESTAMP = "Timestamp.Now"
    NETWORKS_ADDED = "SubtensorModule.NetworksAdded"
    SUBNETWORK_SIZE = "SubtensorModule.SubnetworkN"
    SUBNET_OWNER = "SubtensorModule.SubnetOwner"
    SUBNET_OWNER_HOTKEY = "SubtensorModule.SubnetOwnerHotkey"
    KEYS = "SubtensorModule.Keys"
    UIDS = "SubtensorModule.Uids"
    OWNER = "SubtensorModule.Owner"
    REGISTERED_BLOCK = "SubtensorModule.BlockAtRegistration"
    VALIDATOR_PERMIT = "SubtensorModule.ValidatorPermit"
    LAST_UPDATE = "SubtensorModule.LastUpdate"
    WEIGHTS = "SubtensorModule.Weights"
    TIMELOCKED_WEIGHT_COMMITS = "SubtensorModule.TimelockedWeightCommits"
    TEMPO = "SubtensorModule.Tempo"
    COMMIT_REVEAL_ENABLED = "SubtensorModule.CommitRevealWeightsEnabled"
    COMMIT_REVEAL_VERSION = "SubtensorModule.CommitRevealWeightsVersion"
    REVEAL_PERIOD = "SubtensorModule.RevealPeriodEpochs"
    WEIGHTS_VERSION_KEY = "SubtensorModule.WeightsVersionKey"
    WEIGHTS_RATE_LIMIT = "SubtensorModule.WeightsSetRateLimit"
    MIN_ALLOWED_WEIGHTS = "SubtensorModule.MinAllowedWeights"
    MAX_WEIGHT_LIMIT = "SubtensorModule.MaxWeightsLimit"
    MECHANISM_COUNT = "SubtensorModule.MechanismCountCurrent"
    STAKE_THRESHOLD = "SubtensorModule.StakeThreshold"
    HOTKEY_ALPHA = "SubtensorModule.TotalHotkeyAlpha"
    EPOCH_INDEX = "SubtensorModule.SubnetEpochIndex"
    LAST_EPOCH_BLOCK = "SubtensorModule.LastEpochBlock"
    PENDING_EPOCH_AT = "SubtensorModule.PendingEpochAt"
    BLOCKS_SINCE_LAST_STEP = "SubtensorModule.BlocksSinceLastStep"
    COMMITMENT_OF = "Commitments.CommitmentOf"
    REVEALED_COMMITMENTS = "Commitments.RevealedCommitments"
    COMMITMENT_SPACE_USED = "Commitments.UsedSpaceOf"
    COMMITMENT_SPACE = "Commitments.MaxSpace"
    LAST_STORED_ROUND = "Drand.LastStoredRound"


class Call(_Name):
    """Calls that are signed."""

    SET_COMMITMENT = "Commitments.set_commitment"
    SET_WEIGHTS = "SubtensorModule.set_mechanism_weights"
    COMMIT_WEIGHTS = "SubtensorModule.commit_timelocked_mechanism_weights"
    BATCH_ALL = "Utility.batch_all"
    TRANSFER = "Balances.transfer_keep_alive"
    REMARK = "System.remark_with_event"


class Event(_Name):
    """Events that are looked for."""

    COMMITMENT_REVEALED = "Commitments.CommitmentRevealed"
    COMMITMENT_REVEAL_FAILED = "Commitments.CommitmentRevealFailed"
    EXTRINSIC_SUCCESS = "System.ExtrinsicSuccess"
    EXTRINSIC_FAILED = "System.ExtrinsicFailed"
    TRANSFERRED = "Balances.Transfer"


class Constant(_Name):
    """Constants that are read."""

    SLOT_DURATION = "Aura.SlotDuration"


class DispatchError(_Name):
    """Reasons of the runtime by which something is decided; all others are only printed, under whatever name."""

    NO_SPACE = "Commitments.SpaceLimitExceeded"


SIGNED_EXTENSIONS = frozenset({"CheckSpecVersion", "CheckTxVersion", "CheckGenesis", "CheckMortality", "CheckNonce"})
"""What a signature must bind: without these an extrinsic could apply on another chain, twice, or for ever."""

CALL_ARGUMENTS: Mapping[Call, frozenset[str]] = {
    Call.SET_COMMITMENT: frozenset({"netuid", "info"}),
    Call.SET_WEIGHTS: frozenset({"netuid", "mecid", "dests", "weights", "version_key"}),
    Call.COMMIT_WEIGHTS: frozenset({"netuid", "mecid", "commit", "reveal_round", "commit_reveal_version"}),
    Call.BATCH_ALL: frozenset({"calls"}),
    Call.TRANSFER: frozenset({"dest", "value"}),
    Call.REMARK: frozenset({"remark"}),
}


class RuntimeNames(msgspec.Struct, frozen=True):
    """What a connected runtime offers, as `Pallet.item` names."""

    storage: frozenset[str]
    events: frozenset[str]
    calls: dict[str, frozenset[str]]  # name -> argument names
    constants: frozenset[str]
    errors: frozenset[str]
    extensions: tuple[str, ...]  # of a signed extrinsic, in their order
    signing_problem: str = ""  # why the codec cannot sign for this runtime, "" when it can


def missing_names(names: RuntimeNames) -> tuple[str, ...]:
    """Return what this room needs and `names` lacks, each as one readable phrase, sorted."""
    missing = [f"storage {item}" for item in _absent(Storage, names.storage)]
    missing += [f"event {item}" for item in _absent(Event, names.events)]
    missing += [f"constant {item}" for item in _absent(Constant, names.constants)]
    missing += [f"error {item}" for item in _absent(DispatchError, names.errors)]
    missing += [f"signed extension {item}" for item in SIGNED_EXTENSIONS.difference(names.extensions)]
    if names.signing_problem:
        missing.append(f"signed extensions that can be encoded ({names.signing_problem})")
    for call, arguments in CALL_ARGUMENTS.items():
        if call.value not in names.calls:
            missing.append(f"call {call}")
        elif names.calls[call.value] != arguments:
            offered = ", ".join(sorted(names.calls[call.value]))
            missing.append(f"call {call} with arguments {', '.join(sorted(arguments))} (it takes {offered})")
    return tuple(sorted(missing))


def mechanism_index(netuid: int, mechanism: int) -> int:
    """Return the storage index under which weights of `mechanism` on subnet `netuid` are kept."""
    return mechanism * MECHANISM_STRIDE + netuid


def _absent(wanted: type[_Name], offered: Collection[str]) -> list[str]:
    return [name.value for name in wanted if name.value not in offered]
