"""What the chain itself says happened, read from its own state without any code of the node."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from chain.devnet.chain import Chain
from chain.devnet.codec import account_id
from chain.devnet.extrinsics import decode_extrinsic
from chain.devnet.pallets.commitments import read_reveals
from chain.devnet.scale import Reader, ScaleError
from tests.chain.devnet.support import NETUID

WEIGHT_CALLS = frozenset({"set_mechanism_weights", "commit_timelocked_mechanism_weights"})


class TrueReveal(msgspec.Struct, frozen=True, order=True):
    """One reveal, in the one order: block, event, place among those of its hotkey."""

    block: int
    event_index: int
    sub_index: int
    hotkey: str
    payload_digest: str
    registered_block: int | None


class TrueWeights(msgspec.Struct, frozen=True):
    """One included weights extrinsic of the validator."""

    block: int
    epoch: int
    extrinsic_hash: str
    success: bool


def true_reveals(chain: Chain, last: int) -> list[TrueReveal]:
    """Return every reveal of the blocks up to `last`, in order."""
    found: list[TrueReveal] = []
    for block in chain.blocks[1 : last + 1]:
        view = chain.view(block)
        first: dict[str, int] = {}
        for index, event in enumerate(view.get("System", "Events")):
            if (event["module_id"], event["event_id"]) == ("Commitments", "CommitmentRevealed"):
                first.setdefault(str(event["attributes"]["who"]), index)
        for hotkey, index in first.items():
            who = account_id(hotkey)
            texts = sorted(data for data, at in read_reveals(view, NETUID, who) if at == block.number)
            uid = view.get("SubtensorModule", "Uids", NETUID, hotkey)
            registered = None if uid is None else int(view.get("SubtensorModule", "BlockAtRegistration", NETUID, uid))
            found += [
                TrueReveal(block.number, index, place, hotkey, _digest(text), registered)
                for place, text in enumerate(texts)
            ]
    return sorted(found)


def true_weights(chain: Chain, validator: bytes, last: int) -> list[TrueWeights]:
    """Return every weights extrinsic of `validator` in the blocks up to `last`."""
    found: list[TrueWeights] = []
    for block in chain.blocks[1 : last + 1]:
        for index, raw in enumerate(block.extrinsics):
            try:
                extrinsic = decode_extrinsic(raw, chain.codec)
            except ScaleError:
                continue  # an inherent
            if extrinsic.signer != validator or extrinsic.function not in WEIGHT_CALLS:
                continue
            view = chain.view(block)
            epoch = int(view.get("SubtensorModule", "SubnetEpochIndex", NETUID))
            success = any(_succeeded(event, index) for event in view.get("System", "Events"))
            found.append(TrueWeights(block.number, epoch, "0x" + extrinsic.hash.hex(), success))
    return found


def epochs_of(chain: Chain, last: int) -> list[int]:
    """Return the epoch of each block up to `last`, by height."""
    views = map(chain.view, chain.blocks[: last + 1])
    return [int(view.get("SubtensorModule", "SubnetEpochIndex", NETUID)) for view in views]


def _succeeded(event: dict[str, Any], index: int) -> bool:
    return event["extrinsic_idx"] == index and event["event_id"] == "ExtrinsicSuccess"


def _digest(data: bytes) -> str:
    """The digest of the payload inside either framing; written anew here, so that it checks the node's."""
    reader = Reader(data)
    try:
        inner = reader.sized_bytes()
        framed = reader.position == len(data)
    except (ScaleError, IndexError):
        framed, inner = False, b""
    return hashlib.sha256(inner if framed else data).hexdigest()
