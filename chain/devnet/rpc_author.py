"""The `author_*` methods: submitting extrinsics and following them."""

from __future__ import annotations

from chain.devnet.rpc import Call, method
from chain.devnet.scale import from_hex, to_hex


@method("author_submitExtrinsic")
def submit_extrinsic(call: Call) -> str:
    """Take an extrinsic into the pool and return its hash."""
    return to_hex(call.chain.submit(from_hex(call.text(0))).hash)


@method("author_submitAndWatchExtrinsic")
def submit_and_watch_extrinsic(call: Call) -> str:
    """Take an extrinsic into the pool and report what becomes of it."""
    call.hub.require_room(call.send)  # before the pool takes what nobody could follow
    extrinsic = call.chain.submit(from_hex(call.text(0)))
    subscription = call.hub.watch(extrinsic.hash, call.send)
    ready = extrinsic.nonce < call.chain.next_nonce(extrinsic.signer)
    subscription.push("ready" if ready else "future")
    return subscription.identity


@method("author_pendingExtrinsics")
def pending_extrinsics(call: Call) -> list[str]:
    """Return the extrinsics that wait for a block."""
    return [to_hex(extrinsic.raw) for extrinsic in call.chain.pool]
