"""The stake weight by which the runtime decides who may set weights.

Invariants
1. The runtime adds own, root and inherited stake by rules of its own, so its own API is asked, and only when the
   hotkey's own stake on the subnet is below the threshold.
2. A runtime without that API leaves the decision to itself: nothing is held back on a guess.
"""

from __future__ import annotations

from chain.client import ChainClient
from chain.validator_state import ValidatorState
from config.errors import ChainError


async def stake_weight_rao(client: ChainClient, state: ValidatorState) -> int:
    """Return the stake weight of the validator at the state's block, or the threshold itself when nobody tells."""
    parameters = state.parameters
    try:
        metagraph = await client.runtime_call(
            state.block, "SubnetInfoRuntimeApi", "get_metagraph", [parameters.netuid]
        )
        totals = metagraph["total_stake"]
        return int(totals[state.uid])
    except ChainError as error:
        if error.code != "CHAIN_ABI_MISSING":
            raise
    except (KeyError, IndexError, TypeError, ValueError):
        pass  # another shape than today's: the chain decides
    return parameters.stake_threshold
