"""Run by an interpreter with another SDK of line 11: read everything, submit, read back; one JSON document.

Arguments: the url of the node, the netuid, a coldkey's uri and a hotkey's uri.
"""

import asyncio
import json
import sys
from types import SimpleNamespace
from typing import Any


async def run(url: str, netuid: int, coldkey: str, hotkey: str) -> dict[str, Any]:
    """Return what the SDK reads, reduced to what JSON holds."""
    import bittensor as bt
    import bittensor_core

    cold, hot = (bittensor_core.Keypair.create_from_uri(uri) for uri in (coldkey, hotkey))
    wallet = SimpleNamespace(coldkey=cold, coldkeypub=cold, hotkey=hot, name="w", hotkey_str="hot")
    async with bt.Subtensor(url, fallback_endpoints=[], archive_endpoints=[]) as client:
        graph = await client.subnets.metagraph(netuid, commitments=True)
        parameters = await client.read("subnet_hyperparameters", netuid=netuid)
        found = {
            "version": bt.__version__,
            "block": await client.block(),
            "hotkeys": list(graph.hotkeys),
            "permits": [neuron.validator_permit for neuron in graph],
            "neurons": [neuron.hotkey for neuron in await client.neurons.all(netuid)],
            "full": [neuron.raw["weights"] for neuron in await client.neurons.all(netuid, lite=False)],
            "tempo": parameters["tempo"],
            "balance": (await client.balances.get(cold.ss58_address)).rao,
            "commitments": await client.read("commitments", netuid=netuid),
            "before": await client.read("weights", netuid=netuid),
            "stakes": [each.stake.rao for each in await client.staking.positions(cold.ss58_address)],
            "subnets": [each.netuid for each in await client.subnets.all()],
        }
        weights = bt.calls.SubtensorModule.set_weights(netuid=netuid, dests=[0, 1], weights=[1, 3], version_key=0)
        result = await client.submit_call(weights, wallet, signer="hotkey")
        found["set_weights"] = [result.success, result.extrinsic_id]
        found["after"] = await client.read("weights", netuid=netuid)
        field = {"Raw5": b"hello"}
        commitment = bt.calls.Commitments.set_commitment(netuid=netuid, info={"fields": [[field]]})
        found["set_commitment"] = (await client.submit_call(commitment, wallet, signer="hotkey")).success
        found["committed"] = [each["commitment"] for each in await client.read("commitments", netuid=netuid)]
        return found


if __name__ == "__main__":
    json.dump(asyncio.run(run(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4])), sys.stdout, default=str)
