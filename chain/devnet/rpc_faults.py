"""The `dev_*` methods that inject faults, take them back and count them."""

from __future__ import annotations

from typing import Any

import msgspec

from chain.devnet import faults
from chain.devnet.fault_plan import Fault
from chain.devnet.faults import RpcError
from chain.devnet.rpc import Call, method


@method("dev_inject")
def inject(call: Call) -> int:
    """Arm a fault: `[document]`; return its number."""
    try:
        return call.node.faults.inject(msgspec.convert(call.get(0), Fault))
    except (msgspec.ValidationError, ValueError) as error:
        raise RpcError(faults.INVALID_PARAMS, f"Invalid params: {error}") from error


@method("dev_clearFaults")
def clear_faults(call: Call) -> int:
    """Take back one fault `[id]`, or all; return how many were active."""
    return call.node.faults.clear(None if call.get(0) is None else call.number(0))


@method("dev_faultCounts")
def fault_counts(call: Call) -> list[dict[str, Any]]:
    """Return how often each fault was offered an occasion and struck."""
    return [msgspec.to_builtins(count) for count in call.node.faults.counts()]
