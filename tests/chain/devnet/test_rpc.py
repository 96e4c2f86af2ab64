"""JSON-RPC over a bare websocket: errors, batches, subscriptions and the developer's methods."""

from __future__ import annotations

import json
import re
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from chain.devnet.beacon import seal
from chain.devnet.codec import codec
from chain.devnet.rpc import method_names
from chain.devnet.server import Devnet
from tests.chain.devnet.support import (
    MINER,
    NETUID,
    OTHER,
    VALIDATOR,
    RawClient,
    Signing,
    address,
    compose,
    genesis,
    hot,
    public,
    sign,
)

REMARK = compose("System", "remark", remark=b"r")
LAGGING = {"finality_lag": 2, "manual": True}


def hexed(raw: bytes) -> str:
    return "0x" + raw.hex()


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("no_such_method", [], -32601),
        ("chain_getBlockHash", [-1], -32602),
        ("chain_getBlockHash", [True], -32602),
        ("state_getStorage", [], -32602),
        ("state_getStorage", ["0xzz"], -32602),
        ("state_getStorage", ["0x00", "0x" + "11" * 32], 4003),
        ("state_getKeysPaged", ["0x", 1_001], 4002),
        ("state_call", ["NoApi_none", "0x"], -32000),
        ("state_call", ["SubnetInfoRuntimeApi_get_metagraph", "0x02"], -32602),
        ("account_nextIndex", ["not an address"], -32602),
        ("author_submitExtrinsic", ["0x1234"], 1002),
        ("dev_register", [9, address(OTHER), address(OTHER)], -32000),
        ("dev_newBlock", [0], -32602),
        ("dev_setStorage", [[["0x00"]]], -32602),
        ("dev_setItem", ["SubtensorModule", "NoItem", [], 1], -32602),
        ("dev_addSubnet", [{"netuid": 2}], -32000),
        ("dev_addSubnet", [{"surprise": 2}], -32602),
    ],
)
async def test_errors(raw: RawClient, method: str, params: list[Any], code: int) -> None:
    """Every mistake is one error object with its code, and the connection goes on."""
    assert (await raw.ask(method, *params))["error"]["code"] == code
    assert await raw.result("system_chain") == "Cacheon devnet"


@pytest.mark.parametrize(
    "message", ["{", "[]", "7", '{"id":1}', '{"id":1,"method":"system_name","params":{}}', "\x00", "[" * 50_000]
)
async def test_malformed_messages_get_an_answer(raw: RawClient, message: str) -> None:
    """Messages that are no requests are answered with an error."""
    await raw.connection.send(message)
    assert "error" in json.loads(await raw.connection.recv())


async def test_batches(raw: RawClient) -> None:
    """A batch is answered as one list in order, with errors in their places."""
    requests = [{"id": 1, "method": "system_name"}, {"id": 2, "method": "nope"}, {"id": 3, "method": "chain_getHead"}]
    await raw.connection.send(json.dumps(requests))
    answers = json.loads(await raw.connection.recv())
    assert [answer["id"] for answer in answers] == [1, 2, 3]
    assert "error" in answers[1]


async def test_batch_of_submissions_shares_a_block(raw: RawClient, devnet: Devnet) -> None:
    """In instant mode the extrinsics of one batch are sealed in one block."""
    extrinsics = [sign(devnet.chain, VALIDATOR, REMARK, Signing(nonce=number)) for number in range(3)]
    await raw.connection.send(
        json.dumps(
            [
                {"id": number, "method": "author_submitExtrinsic", "params": [hexed(item)]}
                for number, item in enumerate(extrinsics)
            ]
        )
    )
    await raw.connection.recv()
    assert devnet.chain.head.number == 1
    assert len(devnet.chain.head.extrinsics) == 4


async def test_future_extrinsic_makes_no_empty_blocks(raw: RawClient, devnet: Devnet) -> None:
    """In instant mode an extrinsic that has to wait for its predecessor does not seal blocks."""
    waiting = sign(devnet.chain, VALIDATOR, REMARK, Signing(nonce=1))
    await raw.result("author_submitAndWatchExtrinsic", hexed(waiting))
    assert await raw.drain() == ["future"]
    assert devnet.chain.head.number == 0
    assert await raw.result("author_pendingExtrinsics") == [hexed(waiting)]
    await raw.result("author_submitExtrinsic", hexed(sign(devnet.chain, VALIDATOR, REMARK, Signing(nonce=0))))
    statuses = await raw.drain()
    assert [list(status) for status in statuses] == [["inBlock"], ["finalized"]]
    assert devnet.chain.head.number == 1


@pytest.mark.parametrize("devnet", [LAGGING], indirect=True)
async def test_watch_tells_the_whole_story(raw: RawClient, devnet: Devnet) -> None:
    """A watched extrinsic is ready, in a block, and final two blocks later; then its subscription is over."""
    extrinsic = sign(devnet.chain, VALIDATOR, REMARK)
    identity = await raw.result("author_submitAndWatchExtrinsic", hexed(extrinsic))
    assert await raw.drain() == ["ready"]
    block = devnet.produce_block()
    assert await raw.drain() == [{"inBlock": block.hash_hex}]
    devnet.produce_block()
    assert await raw.drain() == []
    devnet.produce_block()
    assert await raw.drain() == [{"finalized": block.hash_hex}]
    assert await raw.result("author_unwatchExtrinsic", identity) is False


@pytest.mark.parametrize("devnet", [{"manual": True}], indirect=True)
async def test_watchers_of_lost_extrinsics_hear_it(raw: RawClient, devnet: Devnet) -> None:
    """A replaced extrinsic is `usurped`; one that can no longer pay is `invalid`."""
    first = sign(devnet.chain, VALIDATOR, REMARK, Signing(nonce=0))
    await raw.result("author_submitAndWatchExtrinsic", hexed(first))
    await raw.drain()
    better = sign(devnet.chain, VALIDATOR, REMARK, Signing(nonce=0, tip=1))
    await raw.result("author_submitExtrinsic", hexed(better))
    assert await raw.drain() == [{"usurped": None}]
    await raw.result("author_submitAndWatchExtrinsic", hexed(sign(devnet.chain, OTHER, REMARK)))
    await raw.result("dev_setBalance", address(OTHER), 0)
    assert await raw.drain() == ["ready", "invalid"]


@pytest.mark.parametrize("devnet", [LAGGING], indirect=True)
async def test_only_final_blocks_are_announced_as_final(raw: RawClient, devnet: Devnet) -> None:
    """Finalized heads come one by one, trailing the head by the lag; new heads come at once."""
    await raw.result("chain_subscribeFinalizedHeads")
    await raw.drain()
    for _ in range(5):
        devnet.produce_block()
    assert [int(head["number"], 16) for head in await raw.drain()] == [1, 2, 3]
    final = await raw.result("chain_getFinalizedHead")
    assert final == devnet.chain.blocks[3].hash_hex
    identity = await raw.result("chain_subscribeNewHeads")
    devnet.produce_block()
    heads = await raw.drain()
    assert [int(head["number"], 16) for head in heads] == [5, 6, 4]
    assert await raw.result("chain_unsubscribeNewHeads", identity) is True
    devnet.produce_block()
    assert [int(head["number"], 16) for head in await raw.drain()] == [5]


async def test_headers_chain_and_hash(raw: RawClient, devnet: Devnet) -> None:
    """A header's parent is the hash of the block before, and unknown hashes are null."""
    await raw.result("dev_newBlock", 3)
    hashes = await raw.result("chain_getBlockHash", [0, 1, 2, 3, 4])
    assert hashes[4] is None
    for number in range(1, 4):
        header = await raw.result("chain_getHeader", hashes[number])
        assert (header["parentHash"], int(header["number"], 16)) == (hashes[number - 1], number)
    assert await raw.result("chain_getHeader", "0x" + "00" * 32) is None
    assert await raw.result("chain_getBlock", "0x" + "00" * 32) is None
    assert await raw.result("chain_getBlockHash", hex(2)) == hashes[2]


async def test_paged_keys(raw: RawClient, devnet: Devnet) -> None:
    """Pages of keys continue strictly after the last key and cover the map exactly once."""
    await raw.result("dev_newBlock", 25)
    prefix = hexed(codec().key("Drand", "Pulses"))
    found: list[str] = []
    while page := await raw.result("state_getKeysPaged", prefix, 10, found[-1] if found else None):
        found += page
    assert len(found) == len(set(found)) == 26
    assert found == sorted(found)
    (changes,) = await raw.result("state_queryStorageAt", found[:2])
    assert [key for key, value in changes["changes"] if value] == found[:2]


async def test_developer_methods(raw: RawClient, devnet: Devnet) -> None:
    """The developer's methods change the chain in blocks of their own."""
    assert (await raw.result("dev_register", NETUID, address(hot(OTHER)), address(OTHER)))["uid"] == 2
    await raw.result("dev_setPermit", NETUID, address(hot(OTHER)), True)
    await raw.result("dev_setStake", NETUID, address(hot(OTHER)), 5)
    await raw.result("dev_setBalance", address(OTHER), 77)
    await raw.result("dev_setItem", "SubtensorModule", "WeightsVersionKey", [NETUID], 9)
    key = hexed(codec().key("SubtensorModule", "Tempo", (NETUID,)))
    await raw.result("dev_setStorage", [[key, "0x0300"]])
    await raw.result("dev_addSubnet", {"netuid": 5, "neurons": [{"hotkey": address(MINER), "coldkey": address(MINER)}]})
    view = devnet.chain.view()
    assert view.get("SubtensorModule", "ValidatorPermit", NETUID) == [True, False, True]
    assert view.get("SubtensorModule", "TotalHotkeyAlpha", public(hot(OTHER)), NETUID) == 5
    assert view.get("System", "Account", public(OTHER))["data"]["free"] == 77
    assert view.get("SubtensorModule", "WeightsVersionKey", NETUID) == 9
    assert view.get("SubtensorModule", "Tempo", NETUID) == 3
    assert view.get("SubtensorModule", "SubnetworkN", 5) == 1
    assert devnet.chain.head.number == 7
    assert (await raw.ask("dev_register", NETUID, address(hot(OTHER)), address(OTHER)))["error"]["code"] == -32000
    assert devnet.chain.head.number == 7


@pytest.mark.parametrize("devnet", [{"dev_rpc": False}], indirect=True)
async def test_developer_methods_can_be_switched_off(raw: RawClient) -> None:
    """Without developer RPC the methods do not exist, not even in the list."""
    assert (await raw.ask("dev_newBlock"))["error"]["code"] == -32601
    assert not [name for name in (await raw.result("rpc_methods"))["methods"] if name.startswith("dev_")]


@pytest.mark.parametrize("devnet", [{"keep_state": 5, "genesis": genesis()}], indirect=True)
async def test_pruned_state_says_so(raw: RawClient) -> None:
    """Storage of a pruned block is refused in the words that make clients try an archive."""
    await raw.result("dev_newBlock", 20)
    old = await raw.result("chain_getBlockHash", 3)
    answer = await raw.ask("state_getStorage", hexed(codec().key("System", "Number")), old)
    assert "State already discarded for " in answer["error"]["message"]
    recent = await raw.result("chain_getBlockHash", 17)
    assert await raw.result("state_getStorage", hexed(codec().key("System", "Number")), recent) == "0x11000000"


async def test_metadata_is_the_real_one(raw: RawClient) -> None:
    """Both metadata formats are served, and the versions are listed."""
    assert (await raw.result("state_getMetadata")).startswith("0x6d6574610e")
    served = await raw.result("state_call", "Metadata_metadata_at_version", "0x0f000000")
    assert served[:2] == "0x"
    assert "6d6574610f" in served[:24]
    assert await raw.result("state_call", "Metadata_metadata_at_version", "0x63000000") == "0x00"
    assert await raw.result("state_call", "Metadata_metadata_versions", "0x") == "0x080e0000000f000000"


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("AccountNonceApi_account_nonce", public(VALIDATOR)),
        ("NeuronInfoRuntimeApi_get_neurons", b"\x02\x00"),
        ("NeuronInfoRuntimeApi_get_neurons_lite", b"\x02\x00"),
        ("NeuronInfoRuntimeApi_get_neuron", b"\x02\x00\x01\x00"),
        ("NeuronInfoRuntimeApi_get_neuron_lite", b"\x02\x00\x63\x00"),
        ("SubnetInfoRuntimeApi_get_metagraph", b"\x02\x00"),
        ("SubnetInfoRuntimeApi_get_all_metagraphs", b""),
        ("SubnetInfoRuntimeApi_get_mechagraph", b"\x02\x00\x00"),
        ("SubnetInfoRuntimeApi_get_selective_mechagraph", b"\x02\x00\x00\x08\x00\x00\x49\x00"),
        ("SubnetInfoRuntimeApi_get_subnet_hyperparams", b"\x02\x00"),
        ("SubnetInfoRuntimeApi_get_subnet_hyperparams_v2", b"\x02\x00"),
        ("SubnetInfoRuntimeApi_get_subnet_hyperparams_v3", b"\x02\x00"),
        ("SubnetInfoRuntimeApi_get_dynamic_info", b"\x02\x00"),
        ("SubnetInfoRuntimeApi_get_all_dynamic_info", b""),
        ("SubnetInfoRuntimeApi_get_next_epoch_start_block", b"\x02\x00"),
        ("SwapRuntimeApi_current_alpha_price", b"\x02\x00"),
        ("SwapRuntimeApi_current_alpha_price_all", b""),
        ("SubnetRegistrationRuntimeApi_get_network_registration_cost", b""),
        ("TransactionPaymentCallApi_query_call_info", REMARK + b"\x10\x00\x00\x00"),
    ],
)
async def test_runtime_apis_decode_by_the_metadata(raw: RawClient, devnet: Devnet, name: str, arguments: bytes) -> None:
    """Every implemented runtime API answers bytes that decode exactly as the metadata says."""
    call = compose("Commitments", "set_commitment", netuid=NETUID, info={"fields": [[{"Raw1": b"x"}]]})
    await raw.result("author_submitExtrinsic", hexed(sign(devnet.chain, hot(MINER), call)))
    answer = bytes.fromhex((await raw.result("state_call", name, hexed(arguments)))[2:])
    api, _, method = name.partition("_")
    codec().decode(codec().api_method(api, method)["output"], answer)


async def test_hostile_ciphertexts_do_not_stop_the_chain(raw: RawClient, devnet: Devnet) -> None:
    """Truncated and flipped ciphertexts fail their own reveal; blocks go on."""
    good = seal(b"payload")
    for number, bad in enumerate((good[:-1], good[:60], good[:40] + b"\xff" + good[41:], b"\x00")):
        call = compose(
            "Commitments",
            "set_commitment",
            netuid=NETUID,
            info={"fields": [[{"TimelockEncrypted": {"encrypted": bad, "reveal_round": 1000}}]]},
        )
        await raw.result("author_submitExtrinsic", hexed(sign(devnet.chain, hot(MINER), call)))
        await raw.result("dev_newBlock")
        assert devnet.chain.head.number == 2 * number + 2


def test_every_method_the_sdk_names_is_offered() -> None:
    """No method that the SDK or its command line asks for by name is missing."""
    root = resources.files("bittensor")
    texts = [path.read_text() for path in Path(str(root)).rglob("*.py")]
    named = {
        name
        for text in texts
        for name in re.findall(r"\"((?:author|chain|state|system|account)_[a-z]+[A-Z]\w*)\"", text)
    }
    assert {"author_submitAndWatchExtrinsic", "state_getKeysPaged", "account_nextIndex"} <= named
    assert named <= set(method_names(dev=False))
