"""The `author_*` methods: submitting extrinsics and following them."""

from __future__ import annotations

from chain.devnet.rpc import Call, method
from chain.devnet.scale import from_hex, to_hex
from chain.devnet.subscriptions import EXTRINSIC_UPDATE


def _forgets(call: Call) -> bool:
    """Say whether an injected fault makes the node answer as if it had taken the extrinsic."""
    return call.node.faults.strike(call.name, "false_success") is not None


@method("author_submitExtrinsic")
def submit_extrinsic(call: Call) -> str:
    """Take an extrinsic into the pool and return its hash."""
    extrinsic = call.chain.check(from_hex(call.text(0)))
    if not _forgets(call):
        call.chain.take(extrinsic)
    return to_hex(extrinsic.hash)


@method("author_submitAndWatchExtrinsic")
def submit_and_watch_extrinsic(call: Call) -> str:
    """Take an extrinsic into the pool and report what becomes of it."""
    call.hub.require_room(call.send)  # before the pool takes what nobody could follow
    extrinsic = call.chain.check(from_hex(call.text(0)))
    if _forgets(call):
        subscription = call.open(EXTRINSIC_UPDATE)
        subscription.push("ready")
        return subscription.identity
    call.chain.take(extrinsic)
    subscription = call.hub.watch(extrinsic.hash, call.send, opened_by=call.name)
    ready = extrinsic.nonce < call.chain.next_nonce(extrinsic.signer)
    subscription.push("ready" if ready else "future")
    return subscription.identity


@method("author_pendingExtrinsics")
def pending_extrinsics(call: Call) -> list[str]:
    """Return the extrinsics that wait for a block."""
    return [to_hex(extrinsic.raw) for extrinsic in call.chain.pool]
