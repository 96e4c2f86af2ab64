"""The miner's side: commit a payload under timelock, and see what became of it.

Invariants
1. A commitment is signed for one nonce and a mortal era, and looked for in finalized blocks; "sent" is not
   "committed". It is signed anew, with a fresh nonce and era, only when the bytes signed before can never be included.
2. A hotkey holds at most one commitment per subnet: a new one replaces an unrevealed one. The caller is told the state
   before it overwrites anything.
3. State is read raw at one finalized block; an odd reveal shows as a row with a reason.
"""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import msgspec

from chain.abi import Call, DispatchError, Storage
from chain.blocks import BlockRef
from chain.client import ChainClient, SignedCall
from chain.clock import require_clock
from chain.codec import StorageRead
from chain.hyperparameters import read_hyperparameters
from chain.inclusion import Inclusion, wait_for_inclusion
from chain.payload import Payload, decode_payload
from chain.reveals import StoredReveal, parse_stored
from chain.scale import ScaleError, strip_length_prefix
from chain.sealing import Sealed, sealer_for
from chain.signer import Signer
from chain.wallet import not_registered
from config.canonical import sha256_hex
from config.errors import Blame, ChainError, NetworkError

_ERA_BLOCKS = 64
_ATTEMPTS = 3
_SIGN_ANEW = frozenset({"COMMITMENT_STALE", "COMMITMENT_EXPIRED"})  # proof that the signed bytes are dead
_LEAST_CHARGED_BYTES = 100  # what the chain charges for a shorter commitment
DEFAULT_REVEAL_BLOCKS = 10


class CommitmentReceipt(msgspec.Struct, frozen=True):
    """A finalized commitment; the chain opens it once it knows beacon round `reveal_round`."""

    extrinsic_hash: str
    block: BlockRef
    reveal_round: int


class RevealedPayload(msgspec.Struct, frozen=True):
    """One reveal the chain still stores for a hotkey; `reason` is "" for a usable payload, else a code."""

    block: int
    payload_digest: str
    content_hash: str = ""
    url: str = ""
    reason: str = ""


class CommitmentState(msgspec.Struct, frozen=True):
    """What a hotkey's commitment is at one block, and its stored reveals, oldest first."""

    block: BlockRef
    status: Literal["none", "plain", "sealed", "revealed", "failed"]
    committed_block: int | None = None
    reveal_round: int | None = None
    last_round: int = 0  # newest beacon round the chain knows
    reveals: tuple[RevealedPayload, ...] = ()


async def submit_commitment(
    client: ChainClient,
    signer: Signer,
    netuid: int,
    payload: bytes,
    *,
    profile: str,
    reveal_in_blocks: int = DEFAULT_REVEAL_BLOCKS,
    poll_seconds: float = 0.5,
) -> CommitmentReceipt:
    """Seal `payload`, commit it and wait until the commitment is final.

    Raises `WalletError` (HOTKEY_NOT_REGISTERED), `ConfigurationError` (PAYLOAD_UNSEALABLE), `ChainError`
    (COMMITMENT_REFUSED, COMMITMENT_SPACE_FULL, COMMITMENT_STALE, COMMITMENT_EXPIRED) and `NetworkError`
    (EXTRINSIC_UNKNOWN) when the deadline passes while the fate is open.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return await _submit_once(client, signer, netuid, payload, profile, reveal_in_blocks, poll_seconds)
        except ChainError as error:
            if error.code not in _SIGN_ANEW or attempt == _ATTEMPTS:
                raise
            await asyncio.sleep(poll_seconds)
    raise AssertionError("the last attempt returns or raises")


async def _submit_once(
    client: ChainClient, signer: Signer, netuid: int, payload: bytes, profile: str, reveal_in_blocks: int,
    poll_seconds: float,
) -> CommitmentReceipt:
    at = await client.finalized_head()
    (uid,) = await client.read(at, [(Storage.UIDS, [netuid, signer.ss58_address])])
    if uid is None:
        await client.require_subnet(netuid, at)
        raise not_registered(signer.ss58_address, netuid, at)
    await require_clock(client, profile)
    sealed = await sealer_for(profile).seal_reveal(client, payload, await client.head(), reveal_in_blocks)
    nonce = await client.next_nonce(signer.ss58_address)
    arguments = _commitment_arguments(netuid, sealed)
    signed = await client.sign(Call.SET_COMMITMENT, arguments, signer, nonce=nonce, at=at, period=_ERA_BLOCKS)
    answer = await client.submit(signed.data)
    if answer.fate == "refused":
        raise _stale(answer.message) if _is_stale(answer.message) else _refused(answer.message)
    found = await _await_finality(client, signed, at, poll_seconds)
    outcome = await client.outcome(found.block, found.index)
    if outcome.success is False and outcome.error == DispatchError.NO_SPACE.item:
        raise await _no_space(client, netuid, signer.ss58_address, len(sealed.ciphertext))
    if outcome.success is False:
        raise _refused(outcome.error)
    return CommitmentReceipt(signed.hash, found.block, sealed.reveal_round)


async def commitment_state(
    client: ChainClient, netuid: int, hotkey: str, block: BlockRef, *, allow_loopback_http: bool = False
) -> CommitmentState:
    """Return the commitment and the stored reveals of `hotkey` at `block`."""
    committed, last_round = await client.read(
        block, [(Storage.COMMITMENT_OF, [netuid, hotkey]), (Storage.LAST_STORED_ROUND, [])]
    )
    (row,) = await client.read_raw(block, [(Storage.REVEALED_COMMITMENTS, [netuid, hotkey])])
    reveals = _revealed(row, allow_loopback_http)
    if committed is None:
        status: Literal["none", "revealed"] = "revealed" if reveals else "none"
        return CommitmentState(block, status, last_round=int(last_round), reveals=reveals)
    kind, reveal_round = _kind_of(committed["info"]["fields"])
    return CommitmentState(block, kind, int(committed["block"]), reveal_round, int(last_round), reveals)


def _commitment_arguments(netuid: int, sealed: Sealed) -> dict[str, object]:
    field = {"TimelockEncrypted": {"encrypted": sealed.ciphertext, "reveal_round": sealed.reveal_round}}
    return {"netuid": netuid, "info": {"fields": [[field]]}}


async def _await_finality(client: ChainClient, signed: SignedCall, at: BlockRef, poll_seconds: float) -> Inclusion:
    waiting = wait_for_inclusion(client, signed, at, poll_seconds=poll_seconds)
    try:
        found = await asyncio.wait_for(waiting, client.submit_timeout)
    except TimeoutError as error:
        raise NetworkError(
            "EXTRINSIC_UNKNOWN",
            f"Extrinsic {signed.hash} was not final within {client.submit_timeout:g} s; "
            f"it can still be included until block {signed.era_end_block}.",
            hint="Look with `cacheon chain-status` before you submit again.",
        ) from error
    if found is None:
        raise ChainError(
            "COMMITMENT_EXPIRED",
            f"Extrinsic {signed.hash} was not included before block {signed.era_end_block} and never will be.",
            hint="Submit again.",
        )
    return found


def _is_stale(answer: str) -> bool:
    return any(mark in answer for mark in ("outdated", "ancient birth block", "Priority is too low"))


def _stale(answer: str) -> ChainError:
    return ChainError(
        "COMMITMENT_STALE",
        f"Another extrinsic of this hotkey came first, {_ATTEMPTS} times in a row: {answer}.",
        hint="Stop the other program that uses this hotkey, or give it a hotkey of its own.",
        blame=Blame.MINER,
    )


async def _no_space(client: ChainClient, netuid: int, hotkey: str, size: int) -> ChainError:
    """Return the refusal of a commitment of `size` bytes, with what the chain says about the space of this epoch."""
    at = await client.finalized_head()
    reads: list[StorageRead] = [(Storage.COMMITMENT_SPACE_USED, [netuid, hotkey]), (Storage.COMMITMENT_SPACE, [])]
    usage, space = await client.read(at, reads)
    used = int(usage["used_space"]) if usage else 0
    due = (await read_hyperparameters(client, netuid, at)).next_epoch_block
    when = f"there is room again from block {due} on" if due is not None else "there is room again in the next epoch"
    return ChainError(
        "COMMITMENT_SPACE_FULL",
        f"The hotkey has committed {used} of {int(space)} bytes in this epoch, this commitment needs "
        f"{max(size, _LEAST_CHARGED_BYTES)} more, and {when} (SpaceLimitExceeded).",
        hint="Wait for that block and submit again; a shorter URL needs less.",
        blame=Blame.MINER,
    )


def _refused(reason: str) -> ChainError:
    return ChainError(
        "COMMITMENT_REFUSED",
        f"The chain refused the commitment: {reason}.",
        hint="A hotkey may commit only while it is registered on the subnet.",
    )


def _kind_of(fields: Any) -> tuple[Literal["plain", "sealed", "failed"], int | None]:
    # The codec wraps the bounded vector of fields in a list of its own for some runtimes.
    inner = fields[0] if fields and isinstance(fields[0], list) else fields
    for field in inner:
        if isinstance(field, dict) and "TimelockEncrypted" in field:
            return "sealed", int(field["TimelockEncrypted"]["reveal_round"])
    failed = any("TimelockRevealFailed" in (field if isinstance(field, dict) else {field}) for field in inner)
    return ("failed", None) if failed else ("plain", None)


def _revealed(row: bytes | None, allow_loopback_http: bool) -> tuple[RevealedPayload, ...]:
    try:
        stored = parse_stored(row) if row is not None else ()
    except ScaleError:
        return (RevealedPayload(0, "", reason="REVEAL_UNREADABLE"),)
    return tuple(_shown(entry, allow_loopback_http) for entry in stored)


def _shown(entry: StoredReveal, allow_loopback_http: bool) -> RevealedPayload:
    data = strip_length_prefix(entry.data)
    decoded = decode_payload(data, allow_loopback_http=allow_loopback_http)
    shown = RevealedPayload(entry.block, sha256_hex(data))
    if isinstance(decoded, Payload):
        return msgspec.structs.replace(shown, content_hash=decoded.content_hash, url=decoded.url)
    return msgspec.structs.replace(shown, reason=decoded.code)
