"""Turning waiting extrinsics into the contents of one block.

Invariants
1. Order inside a block: burn prices, epochs, reveals, the timestamp inherent, the signed extrinsics, the pulse.
2. A signed extrinsic that is included pays its fee and uses up its nonce, whether its call succeeds or not.
3. An extrinsic that became invalid since it entered the pool is left out and reported; one whose predecessor
   was left out just waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from chain.devnet import extension
from chain.devnet.context import FINALIZATION, Context, apply_phase, dispatch, is_free
from chain.devnet.dispatch_errors import error_value
from chain.devnet.extrinsics import Extrinsic, inherent
from chain.devnet.faults import DispatchError, Invalidity
from chain.devnet.pallets import balances, commitments, drand, epochs, registration, system, utility, weights
from chain.devnet.scale import Reader, ScaleError, compact
from chain.devnet.storage import Session

# Imported for the calls they register; naming them keeps the imports honest.
CALL_MODULES = (balances, commitments, epochs, registration, system, utility, weights)
_TIMESTAMP_SET = b"\x02\x00"


Change = Callable[[Context], None]


class BlockContents(msgspec.Struct, frozen=True):
    """What `execute` made: raw extrinsics, included and dropped signed ones, and the state changes."""

    extrinsics: tuple[bytes, ...]
    included: tuple[Extrinsic, ...]
    dropped: tuple[Extrinsic, ...]
    diff: dict[bytes, bytes | None]


def execute(
    state: Session, parent_hash: bytes, waiting: list[Extrinsic], now_ms: int, change: Change | None = None
) -> BlockContents:
    """Run one block on `state`; `now_ms` is its timestamp in milliseconds since the Unix epoch.

    `change` is a developer's intervention, made after the hooks and before the extrinsics; what it raises passes.
    """
    context = Context(state)
    system.start_block(context, parent_hash)
    registration.start_block(context)
    epochs.start_block(context)
    commitments.start_block(context)
    if change is not None:
        change(context)
    raw = [_apply_timestamp(context, now_ms)]
    included: list[Extrinsic] = []
    dropped: list[Extrinsic] = []
    for extrinsic in waiting:
        context.phase = apply_phase(len(raw))
        invalid = _apply_signed(context, extrinsic)
        if invalid is None:
            raw.append(extrinsic.raw)
            included.append(extrinsic)
        elif invalid is not Invalidity.FUTURE:
            dropped.append(extrinsic)
    context.phase = FINALIZATION
    drand.end_block(context)
    state.put("System", "EventCount", value=len(context.events))
    state.put("System", "Events", value=context.events)
    return BlockContents(tuple(raw), tuple(included), tuple(dropped), state.diff())


def charge_of(extrinsic: Extrinsic) -> int:
    """Return what including an extrinsic costs its signer, in rao."""
    free = is_free(extrinsic.pallet, extrinsic.function)
    return extrinsic.tip + (0 if free else balances.fee(len(extrinsic.raw)))


def _apply_timestamp(context: Context, now_ms: int) -> bytes:
    context.phase = apply_phase(0)
    context.state.put("Timestamp", "Now", value=now_ms)
    context.emit("System", "ExtrinsicSuccess", {"dispatch_info": _info("Mandatory", pays=False)})
    return inherent(_TIMESTAMP_SET + compact(now_ms))


def _apply_signed(context: Context, extrinsic: Extrinsic) -> Invalidity | None:
    state = context.state
    who, name = extrinsic.signer, (extrinsic.pallet, extrinsic.function)
    expected = system.nonce(state, who)
    if extrinsic.nonce != expected:
        return Invalidity.STALE if extrinsic.nonce < expected else Invalidity.FUTURE
    free, charge = is_free(*name), charge_of(extrinsic)
    if charge > balances.free_balance(state, who):
        return Invalidity.PAYMENT
    try:
        extension.check(state, extrinsic, context.block)
    except extension.CustomInvalidityError:
        return Invalidity.CALL
    system.bump_nonce(state, who)
    if charge:
        balances.withdraw(context, who, charge)
    info = _info("Operational" if free else "Normal", pays=not free)
    error = _dispatch(context, extrinsic)
    if charge:
        # The fee is estimated exactly, so what a public chain pays back of it is always nothing.
        context.emit("Balances", "Deposit", {"who": who, "amount": 0})
        context.emit(
            "TransactionPayment", "TransactionFeePaid", {"who": who, "actual_fee": charge, "tip": extrinsic.tip}
        )
    if error is None:
        context.emit("System", "ExtrinsicSuccess", {"dispatch_info": info})
    else:
        context.emit("System", "ExtrinsicFailed", {"dispatch_error": error, "dispatch_info": info})
    return None


def _dispatch(context: Context, extrinsic: Extrinsic) -> Any:
    """Run the call and return the wire form of its error, or None."""
    try:
        dispatch(context, extrinsic.signer, (extrinsic.pallet, extrinsic.function), Reader(extrinsic.call, 2))
    except DispatchError as error:
        return error_value(context.state.codec, error)
    except ScaleError:
        # The codec accepted the call, so a handler reads it differently: fail the call rather than the block.
        return "Other"
    return None


def _info(kind: str, *, pays: bool) -> dict[str, Any]:
    return {
        "weight": {"ref_time": 1_000_000, "proof_size": 1_000},
        "class": kind,
        "pays_fee": "Yes" if pays else "No",
    }
