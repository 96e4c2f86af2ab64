"""The `chain_*`, `system_*` and `rpc_*` methods."""

from __future__ import annotations

from typing import Any

from chain.devnet import faults
from chain.devnet.block import Block
from chain.devnet.codec import SS58_FORMAT, account_id
from chain.devnet.faults import RpcError
from chain.devnet.rpc import Call, method, method_names
from chain.devnet.scale import from_hex, to_hex
from chain.devnet.subscriptions import ALL_HEAD, FINALIZED_HEAD, NEW_HEAD, RUNTIME_VERSION


def block_at(call: Call, index: int) -> Block:
    """Return the block whose hash is a parameter, the head when it is missing; raises `RpcError`."""
    value = call.get(index)
    if value is None:
        return call.chain.head
    block = call.chain.block_by_hash(from_hex(value))
    if block is None:
        raise RpcError(
            faults.UNKNOWN_BLOCK, f"Client error: UnknownBlock: Header was not found in the database: {value}"
        )
    return block


@method("chain_getHead", "chain_getBlockHash")
def get_block_hash(call: Call) -> Any:
    """Return the hash of a block number, of several, or of the head."""
    wanted = call.get(0)
    if wanted is None:
        return call.chain.head.hash_hex
    if isinstance(wanted, list):
        return [_hash_of(call, item) for item in wanted]
    return _hash_of(call, wanted)


def _hash_of(call: Call, wanted: Any) -> str | None:
    number = int(wanted, 16) if isinstance(wanted, str) else wanted
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise RpcError(faults.INVALID_PARAMS, "Invalid params: a block number is needed")
    return call.chain.blocks[number].hash_hex if number < len(call.chain.blocks) else None


@method("chain_getFinalizedHead", "chain_getFinalisedHead")
def get_finalized_head(call: Call) -> str:
    """Return the hash of the newest final block."""
    return call.chain.finalized.hash_hex


@method("chain_getHeader")
def get_header(call: Call) -> Any:
    """Return a header, or null for an unknown hash."""
    value = call.get(0)
    block = call.chain.head if value is None else call.chain.block_by_hash(from_hex(value))
    return block.header.to_json() if block else None


@method("chain_getBlock")
def get_block(call: Call) -> Any:
    """Return a block with its raw extrinsics, or null for an unknown hash."""
    value = call.get(0)
    block = call.chain.head if value is None else call.chain.block_by_hash(from_hex(value))
    if block is None:
        return None
    extrinsics = [to_hex(raw) for raw in block.extrinsics]
    return {"block": {"header": block.header.to_json(), "extrinsics": extrinsics}, "justifications": None}


@method("chain_subscribeNewHeads", "chain_subscribeNewHead", "subscribe_newHead")
def subscribe_new_heads(call: Call) -> str:
    """Announce the head now and every new one."""
    subscription = call.open(NEW_HEAD)
    subscription.push(call.chain.head.header.to_json())
    return subscription.identity


@method("chain_subscribeAllHeads")
def subscribe_all_heads(call: Call) -> str:
    """Announce the head now and every imported block."""
    subscription = call.open(ALL_HEAD)
    subscription.push(call.chain.head.header.to_json())
    return subscription.identity


@method("chain_subscribeFinalizedHeads", "chain_subscribeFinalisedHeads")
def subscribe_finalized_heads(call: Call) -> str:
    """Announce the newest final block now and every later one."""
    subscription = call.open(FINALIZED_HEAD)
    subscription.push(call.chain.finalized.header.to_json())
    return subscription.identity


@method(
    "chain_unsubscribeNewHeads",
    "chain_unsubscribeNewHead",
    "unsubscribe_newHead",
    "chain_unsubscribeAllHeads",
    "chain_unsubscribeFinalizedHeads",
    "chain_unsubscribeFinalisedHeads",
    "state_unsubscribeRuntimeVersion",
    "chain_unsubscribeRuntimeVersion",
    "state_unsubscribeStorage",
    "author_unwatchExtrinsic",
)
def unsubscribe(call: Call) -> bool:
    """End a subscription."""
    return call.hub.close(call.text(0), call.send)


@method("state_getRuntimeVersion", "chain_getRuntimeVersion")
def get_runtime_version(call: Call) -> Any:
    """Return the runtime version at a block."""
    return call.chain.codec_at(block_at(call, 0)).version_document()


@method("state_subscribeRuntimeVersion", "chain_subscribeRuntimeVersion")
def subscribe_runtime_version(call: Call) -> str:
    """Announce the runtime version at the head now and whenever it changes."""
    subscription = call.open(RUNTIME_VERSION)
    subscription.push(call.chain.codec.version_document())
    return subscription.identity


@method("account_nextIndex", "system_accountNextIndex")
def next_index(call: Call) -> int:
    """Return the next nonce of an account, counting the pool."""
    return call.chain.next_nonce(account_id(call.text(0)))


@method("system_chain")
def system_chain(_call: Call) -> str:
    """Return the chain's name."""
    return "Cacheon devnet"


@method("system_name")
def system_name(_call: Call) -> str:
    """Return the node's name."""
    return "cacheon-devnet"


@method("system_version")
def system_version(_call: Call) -> str:
    """Return the node's version."""
    return "1.0.0"


@method("system_properties")
def system_properties(_call: Call) -> dict[str, Any]:
    """Return how amounts and addresses are written."""
    return {"ss58Format": SS58_FORMAT, "tokenDecimals": 9, "tokenSymbol": "TAO"}


@method("system_health")
def system_health(_call: Call) -> dict[str, Any]:
    """Say that the node is alone and in sync."""
    return {"peers": 0, "isSyncing": False, "shouldHavePeers": False}


@method("system_chainType")
def system_chain_type(_call: Call) -> str:
    """Return the kind of chain."""
    return "Development"


@method("system_syncState")
def system_sync_state(call: Call) -> dict[str, int]:
    """Return where the node stands."""
    head = call.chain.head.number
    return {"startingBlock": 0, "currentBlock": head, "highestBlock": head}


@method("rpc_methods")
def rpc_methods(call: Call) -> dict[str, Any]:
    """List the offered methods."""
    return {"methods": method_names(dev=call.node.dev_rpc)}
