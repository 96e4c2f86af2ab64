"""Run by the interpreter with SDK 10.5.0: read everything, submit, read back; one JSON document on standard output.

Arguments: the url of the node, the netuid, and a text sealed in this SDK's framing to the round the node opens first.
"""

import json
import os
import sys
from typing import Any


def wallet(person: str) -> Any:
    """Make a wallet in the home folder from development keys."""
    from bittensor_wallet import Wallet

    made = Wallet(name=person.strip("/"), hotkey="hot", path=os.path.join(os.environ["HOME"], "wallets"))
    made.create_coldkey_from_uri(person, use_password=False, overwrite=True, suppress=True)
    made.create_hotkey_from_uri(person + "//hot", use_password=False, overwrite=True, suppress=True)
    return made


def reads(chain: Any, netuid: int, coldkey: str) -> dict[str, Any]:
    """Return what the SDK reads, reduced to what JSON holds."""
    graph, full = chain.metagraph(netuid), chain.metagraph(netuid, lite=False)
    info = chain.get_metagraph_info(netuid)
    lite, neurons = chain.neurons_lite(netuid), chain.neurons(netuid)
    parameters = chain.get_subnet_hyperparameters(netuid)
    hotkey = lite[0].hotkey
    return {
        "hotkeys": list(graph.hotkeys),
        "permits": [bool(each) for each in graph.validator_permit],
        "weights_matrix": full.W.shape,
        "info": [info.netuid, info.tempo, info.num_uids, info.name],
        "lite": [[each.uid, each.hotkey, each.coldkey, each.stake.tao] for each in lite],
        "neurons": [[each.uid, each.validator_permit, list(each.weights)] for each in neurons],
        "neuron": chain.neuron_for_uid(1, netuid).hotkey,
        "parameters": [parameters.tempo, parameters.weights_rate_limit, parameters.commit_reveal_weights_enabled],
        "balance": chain.get_balance(coldkey).tao,
        "commitments": chain.get_all_commitments(netuid),
        "weights": chain.weights(netuid),
        "bonds": chain.bonds(netuid),
        "subnets": [each.netuid for each in chain.all_subnets()],
        "subnet_infos": [each.netuid for each in chain.get_all_subnets_info()],
        "subnet_info": chain.get_subnet_info(netuid).subnetwork_n,
        "delegates": chain.get_delegates(),
        "delegate": chain.get_delegate_by_hotkey(hotkey),
        "stakes": [[each.netuid, each.stake.tao] for each in chain.get_stake_info_for_coldkey(coldkey)],
        "next_epoch": chain.get_next_epoch_start_block(netuid),
        "price": chain.recycle(netuid).tao,
        "state": len(chain.query_runtime_api("SubnetInfoRuntimeApi", "get_subnet_state", [netuid])["hotkeys"]),
        "fee": chain.get_stake_add_fee(type(chain.recycle(netuid)).from_tao(1), netuid).tao,
    }


def main() -> None:
    """Do it all in the order in which the test reads it."""
    url, netuid, sealed = sys.argv[1], int(sys.argv[2]), bytes.fromhex(sys.argv[3])
    import bittensor
    from bittensor.core import subtensor as module

    chain = bittensor.Subtensor(network=url)
    validator, miner, outsider = map(wallet, ("//Bob", "//Charlie", "//Dave"))
    found: dict[str, Any] = {"version": bittensor.__version__}
    found["reads"] = reads(chain, netuid, validator.coldkeypub.ss58_address)

    def outcome(answer: Any) -> list[Any]:
        return [bool(answer.success), str(answer.message)]

    chain.substrate.rpc_request("dev_newBlock", [5])
    found["set_weights"] = outcome(
        chain.set_weights(wallet=validator, netuid=netuid, uids=[0, 1], weights=[0.25, 0.75], version_key=0)
    )
    found["weights"] = chain.weights(netuid)
    found["too_early"] = outcome(
        chain.set_weights(wallet=validator, netuid=netuid, uids=[1], weights=[1.0], version_key=0, max_attempts=1)
    )
    found["no_permit"] = outcome(
        chain.set_weights(wallet=miner, netuid=netuid, uids=[0], weights=[1.0], version_key=0, max_attempts=1)
    )
    found["set_commitment"] = outcome(chain.set_commitment(wallet=miner, netuid=netuid, data="in the clear"))
    found["commitments"] = chain.get_all_commitments(netuid)
    answer = chain.set_reveal_commitment(wallet=miner, netuid=netuid, data="for later", blocks_until_reveal=100)
    found["set_reveal_commitment"] = outcome(answer)
    found["sealed_bytes"] = len(answer.data["encrypted"])
    # The SDK seals to a round of today, which nobody here can open; these bytes open in the next block.
    module.get_encrypted_commitment = lambda *_: (sealed, 1000)
    found["again"] = outcome(chain.set_reveal_commitment(wallet=miner, netuid=netuid, data="-", blocks_until_reveal=1))
    chain.substrate.rpc_request("dev_newBlock", [2])
    found["revealed"] = chain.get_all_revealed_commitments(netuid)
    found["burned_register"] = outcome(chain.burned_register(wallet=outsider, netuid=netuid))
    found["uid"] = chain.get_uid_for_hotkey_on_subnet(outsider.hotkey.ss58_address, netuid)
    found["timestamp"] = str(chain.get_timestamp())
    json.dump(found, sys.stdout, default=str)


if __name__ == "__main__":
    main()
