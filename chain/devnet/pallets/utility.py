"""Utility: batches of calls.

Invariants
1. `batch_all` is all or nothing; `batch` stops at the first failure and keeps what ran before it.
2. Nested calls are cut from the raw batch, so their byte arguments arrive unchanged.
"""

from __future__ import annotations

from chain.devnet.context import Context, call, dispatch
from chain.devnet.dispatch_errors import error_value
from chain.devnet.faults import DispatchError
from chain.devnet.scale import Reader

_BATCH_LIMIT = 1_000


def _count(arguments: Reader) -> int:
    count = arguments.compact()
    if count > _BATCH_LIMIT:
        raise DispatchError("Utility", "TooManyCalls")
    return count


def _next(context: Context, signer: bytes, arguments: Reader) -> None:
    index = arguments.data[arguments.position : arguments.position + 2]
    arguments.take(2)
    dispatch(context, signer, context.state.codec.call_name(index), arguments)


@call("Utility", "batch_all")
def batch_all(context: Context, signer: bytes, arguments: Reader) -> None:
    """Run all calls, or none."""
    for _ in range(_count(arguments)):
        _next(context, signer, arguments)
        context.emit("Utility", "ItemCompleted")
    context.emit("Utility", "BatchCompleted")


@call("Utility", "batch")
def batch(context: Context, signer: bytes, arguments: Reader) -> None:
    """Run calls until one fails; what ran before it stays."""
    for index in range(_count(arguments)):
        try:
            _next(context, signer, arguments)
        except DispatchError as error:
            value = error_value(context.state.codec, error)
            context.emit("Utility", "BatchInterrupted", {"index": index, "error": value})
            return
        context.emit("Utility", "ItemCompleted")
    context.emit("Utility", "BatchCompleted")
