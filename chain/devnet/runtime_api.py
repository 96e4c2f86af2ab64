"""Runtime calls: arguments in, SCALE out, at any block.

Invariants
1. Inputs and outputs are encoded by the types of the metadata.
2. An API the metadata knows but the node does not implement answers with an error that names it.
"""

from __future__ import annotations

from typing import Any

from chain.devnet import (
    api_account,
    api_baskets,
    api_delegates,
    api_metagraph,
    api_neurons,
    api_stake,
    api_subnets,
    api_swap,
    faults,
)
from chain.devnet.api_registry import handler_of
from chain.devnet.block import Block
from chain.devnet.chain import Chain
from chain.devnet.faults import RpcError
from chain.devnet.scale import Reader, byte_vector, compact, u32

# Imported for the runtime APIs they register; naming them keeps the imports honest.
API_MODULES = (api_account, api_baskets, api_delegates, api_metagraph, api_neurons, api_stake, api_subnets, api_swap)
_VERSIONS = (14, 15)


def invoke(chain: Chain, name: str, data: bytes, block: Block) -> bytes:
    """Return the encoded result of the runtime API `Api_method`; raises `RpcError` for an unknown one."""
    state = chain.view(block)
    codec = state.codec
    if name == "Metadata_metadata":
        return byte_vector(codec.metadata(14))
    if name == "Metadata_metadata_versions":
        return compact(len(_VERSIONS)) + b"".join(map(u32, _VERSIONS))
    if name == "Metadata_metadata_at_version":
        version = Reader(data).unsigned(4)
        return b"\x01" + byte_vector(codec.metadata(version)) if version in _VERSIONS else b"\x00"
    api, _, method = name.partition("_")
    handler = handler_of(api, method)
    if handler is None:
        raise RpcError(faults.SERVER_ERROR, f"Client error: Execution failed: Exported method {name} is not found")
    result: Any = handler(chain, state, Reader(data))
    output = codec.api_method(api, method)["output"]
    return codec.encode(output, result)
