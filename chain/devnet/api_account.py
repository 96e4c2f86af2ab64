"""Runtime APIs about accounts and fees."""

from __future__ import annotations

from typing import Any

from chain.devnet.api_registry import api
from chain.devnet.chain import Chain
from chain.devnet.context import is_free
from chain.devnet.extrinsics import decode_extrinsic
from chain.devnet.pallets import balances, system
from chain.devnet.scale import Reader
from chain.devnet.storage import StorageView

_WEIGHT = {"ref_time": 1_000_000, "proof_size": 1_000}


@api("AccountNonceApi", "account_nonce")
def account_nonce(_chain: Chain, state: StorageView, arguments: Reader) -> int:
    """Return the stored nonce of an account."""
    return system.nonce(state, arguments.take(32))


@api("TransactionPaymentApi", "query_info")
def query_info(_chain: Chain, state: StorageView, arguments: Reader) -> dict[str, Any]:
    """Return weight, class and fee of an extrinsic, whose signature may be anything."""
    data = arguments.rest
    extrinsic = decode_extrinsic(data[:-4], state.codec)
    return _payment(extrinsic.pallet, extrinsic.function, int.from_bytes(data[-4:], "little"))


@api("TransactionPaymentCallApi", "query_call_info")
def query_call_info(_chain: Chain, state: StorageView, arguments: Reader) -> dict[str, Any]:
    """Return weight, class and fee of a call."""
    data = arguments.rest
    call = state.codec.decode_call(data[:-4])
    return _payment(call["call_module"], call["call_function"], int.from_bytes(data[-4:], "little"))


def _payment(pallet: str, function: str, length: int) -> dict[str, Any]:
    free = is_free(pallet, function)
    return {
        "weight": _WEIGHT,
        "class": "Operational" if free else "Normal",
        "partial_fee": 0 if free else balances.fee(length),
    }
