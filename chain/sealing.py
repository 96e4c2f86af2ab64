"""Timelock sealing of reveals and of weight rows, for real networks and for the local devnet.

Invariants
1. Real networks seal to a future round of the drand beacon with the SDK's own primitives; nobody, the sender
   included, can open the bytes before that round.
2. A devnet has no beacon: bytes are sealed to one round whose signature is public and labelled with the devnet's own
   round (`chain.devnet.beacon`). The label alone delays the reveal, which is enough for a development chain and used
   on no other profile.
3. A sealed weight row names its hotkey and the version key; the runtime compares both when it opens the row.
4. Rounds are chosen from chain state read at one block, never from a height alone.
5. What the runtime cannot store is not sealed: a reveal's ciphertext has at most `CHAIN.timelock_ciphertext_bytes`.
   The bound is the runtime's (`BoundedVec`) and stands in no metadata; a longer one would not even decode there.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from chain.blocks import BlockRef
from chain.client import ChainClient
from chain.hyperparameters import Hyperparameters
from chain.payload import unsealable
from chain.scale import compact
from config.errors import ConfigurationError
from config.limits import CHAIN

_SAFETY_BLOCKS = 2  # a devnet label this far ahead is never in the past when the commitment is included


class Sealed(msgspec.Struct, frozen=True):
    """A timelock ciphertext as the chain stores it, and the round that opens it."""

    ciphertext: bytes
    reveal_round: int


class SealedRow(msgspec.Struct, frozen=True):
    """What is inside a sealed weight commit."""

    public_key: bytes
    uids: Sequence[int]
    values: Sequence[int]
    version_key: int


class Sealer(Protocol):
    """Seals for one kind of network."""

    async def seal_reveal(self, client: ChainClient, data: bytes, head: BlockRef, reveal_in_blocks: int) -> Sealed:
        """Seal `data` so that the chain reveals it about `reveal_in_blocks` blocks after `head`.

        Raises `ConfigurationError` (PAYLOAD_UNSEALABLE) for more bytes than a commitment can hold.
        """
        ...

    async def seal_row(self, client: ChainClient, row: SealedRow, parameters: Hyperparameters) -> Sealed:
        """Seal a weight row committed now so that the chain can open it in its reveal epoch."""
        ...


def sealer_for(profile: str) -> Sealer:
    """Return the sealer of a settings profile; raises `ConfigurationError` (SETTINGS_INVALID)."""
    match profile:
        case "devnet":
            return DevnetSealer()
        case "test" | "finney":
            return DrandSealer()
        case _:
            raise ConfigurationError("SETTINGS_INVALID", f"profile {profile!r} has no timelock convention.")


class DevnetSealer:
    """The fixed-beacon convention of `chain.devnet`."""

    async def seal_reveal(self, client: ChainClient, data: bytes, head: BlockRef, reveal_in_blocks: int) -> Sealed:  # noqa: ARG002 - the protocol's arguments
        """See `Sealer`."""
        beacon = importlib.import_module("chain.devnet.beacon")
        ahead = max(reveal_in_blocks, _SAFETY_BLOCKS)
        return _fitting(data, Sealed(bytes(beacon.seal(data)), int(beacon.reveal_round_after(head.number, ahead))))

    async def seal_row(self, client: ChainClient, row: SealedRow, parameters: Hyperparameters) -> Sealed:  # noqa: ARG002 - the protocol's arguments
        """See `Sealer`."""
        beacon = importlib.import_module("chain.devnet.beacon")
        # Rows are opened when the reveal epoch starts. The last round before that is the one that a late inclusion, in
        # this epoch still, leaves in the future; the pool refuses a commit whose round has passed.
        head = parameters.block.number
        ahead = _SAFETY_BLOCKS
        if parameters.next_epoch_block is not None:
            reveal_block = parameters.next_epoch_block + (parameters.reveal_period_epochs - 1) * parameters.tempo
            ahead = max(reveal_block - head, _SAFETY_BLOCKS)
        label = beacon.reveal_round_after(head, ahead)
        return Sealed(bytes(beacon.seal(encode_row(row))), int(label))


class DrandSealer:
    """The drand beacon that public networks follow."""

    async def seal_reveal(self, client: ChainClient, data: bytes, head: BlockRef, reveal_in_blocks: int) -> Sealed:  # noqa: ARG002 - the protocol's arguments
        """See `Sealer`."""
        timelock = importlib.import_module("bittensor.timelock")
        seconds = max(reveal_in_blocks, 1) * await client.block_seconds()
        sealed = timelock.encrypt(data, reveal_in=seconds)
        return _fitting(data, Sealed(bytes(sealed.encrypted), int(sealed.reveal_round)))

    async def seal_row(self, client: ChainClient, row: SealedRow, parameters: Hyperparameters) -> Sealed:
        """See `Sealer`; `parameters` should be read at the newest block, because the round is counted from it."""
        core: Any = importlib.import_module("bittensor_core")
        ciphertext, reveal_round = core.get_encrypted_commit_v2(
            uids=list(row.uids),
            weights=list(row.values),
            version_key=row.version_key,
            last_epoch_block=parameters.last_epoch_block,
            pending_epoch_at=parameters.pending_epoch_at,
            subnet_epoch_index=parameters.epoch,
            tempo=parameters.tempo,
            blocks_since_last_step=parameters.blocks_since_last_step,
            current_block=parameters.block.number,
            subnet_reveal_period_epochs=parameters.reveal_period_epochs,
            block_time=await client.block_seconds(),
            hotkey=row.public_key,
        )
        return Sealed(bytes(ciphertext), int(reveal_round))


def _fitting(data: bytes, sealed: Sealed) -> Sealed:
    if len(sealed.ciphertext) > CHAIN.timelock_ciphertext_bytes:
        raise unsealable(len(data))
    return sealed


def encode_row(row: SealedRow) -> bytes:
    """Return the plaintext of a weight commit: SCALE of hotkey bytes, uids, values (u16 each) and version key (u64)."""
    parts = [compact(len(row.public_key)), bytes(row.public_key)]
    for numbers in (row.uids, row.values):
        parts += [compact(len(numbers)), *(number.to_bytes(2, "little") for number in numbers)]
    return b"".join(parts) + row.version_key.to_bytes(8, "little")
