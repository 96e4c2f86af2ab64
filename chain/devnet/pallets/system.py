"""System: accounts, nonces, remarks and the per-block counters.

Invariants
1. An account record exists for every account that holds a balance or has a nonce.
"""

from __future__ import annotations

from typing import Any

from chain.devnet.context import Context, call
from chain.devnet.runtime_spec import SPEC_NAME
from chain.devnet.scale import Reader, blake2_256, to_hex
from chain.devnet.storage import Session, StorageView


def account(state: StorageView, who: bytes) -> dict[str, Any]:
    """Return the account record (`nonce`, `data.free` in rao, ...); a missing one is all zero."""
    record: dict[str, Any] = state.get("System", "Account", who)
    return record


def put_account(state: Session, who: bytes, record: dict[str, Any]) -> None:
    """Store an account record."""
    state.put("System", "Account", who, value=record)


def nonce(state: StorageView, who: bytes) -> int:
    """Return the number of extrinsics of this account that were included."""
    return int(account(state, who)["nonce"])


def bump_nonce(state: Session, who: bytes) -> None:
    """Count one more included extrinsic."""
    record = account(state, who)
    record["nonce"] += 1
    put_account(state, who, record)


def start_block(context: Context, parent_hash: bytes) -> None:
    """Write the block's number and its parent's hash, and the runtime when a new one executes for the first time."""
    state = context.state
    last = state.get("System", "LastRuntimeUpgrade")
    if last is None or last["spec_version"] != state.codec.spec.version:
        upgrade = {"spec_version": state.codec.spec.version, "spec_name": SPEC_NAME}
        state.put("System", "LastRuntimeUpgrade", value=upgrade)
    state.put("System", "Number", value=context.block)
    state.put("System", "ParentHash", value=to_hex(parent_hash))


@call("System", "remark")
def remark(_context: Context, _signer: bytes, arguments: Reader) -> None:
    """Carry bytes in the block and do nothing."""
    arguments.sized_bytes()


@call("System", "remark_with_event")
def remark_with_event(context: Context, signer: bytes, arguments: Reader) -> None:
    """Carry bytes in the block and announce their hash."""
    data = arguments.sized_bytes()
    context.emit("System", "Remarked", {"sender": signer, "hash": to_hex(blake2_256(data))})
