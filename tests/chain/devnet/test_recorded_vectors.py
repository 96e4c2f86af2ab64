"""What the SDK's authors recorded on a real Subtensor node of spec 461, against this node.

The vectors come with the SDK's source distribution; see tests/golden/sdk/NOTICE.
"""

from __future__ import annotations

import functools
import hashlib
import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from chain.devnet import runtime_api
from chain.devnet.codec import Codec, codec
from chain.devnet.extrinsics import Era, decode_extrinsic, inherent, read_era, signing_payload
from chain.devnet.genesis_document import NeuronSpec
from chain.devnet.scale import Reader
from tests.chain.devnet.support import MINER, VALIDATOR, Driver, Signing, address, compose, keypair, sign

_GOLDEN = Path(__file__).parents[2] / "golden" / "sdk"
NOBODY = "5C4hrfjw9DjXZTzV3MwzrrAr9P1MJhSrvWGWqi1eSuyUpnhM"  # the account of 32 zero bytes, the recorded uid 0
# The recorded node's subnet 1, as far as the recorded answers depend on it.
RECORDED_SUBNET = {
    "netuid": 1,
    "tempo": 100,
    "commit_reveal": True,
    "weights_rate_limit": 100,
    "min_allowed_weights": 0,
    "max_allowed_validators": 64,
    "owner": None,
    "neurons": (NeuronSpec(NOBODY, NOBODY, stake=1),),
}


def load(name: str) -> Any:
    return json.loads(lzma.decompress((_GOLDEN / name).read_bytes()))


@functools.cache
def vectors() -> dict[str, Any]:
    found: dict[str, Any] = load("bittensor-11.3.0.json.xz")
    return found


def raw(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix("0x"))


def plain(value: Any) -> Any:
    """Return a decoded value as JSON holds it: no bytes, no tuples, text keys."""
    if isinstance(value, bytes | bytearray):
        return "0x" + bytes(value).hex()
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    return value


def test_metadata_is_the_recorded_one(driver: Driver) -> None:
    """Both formats of the served metadata are byte for byte those of the recorded node."""
    recorded = vectors()["metadata"]
    served = runtime_api.invoke(driver.chain, "Metadata_metadata", b"", driver.chain.head)
    assert hashlib.sha256(Reader(served).sized_bytes()).hexdigest() == recorded["v14_sha256"]
    version = (15).to_bytes(4, "little")
    served = runtime_api.invoke(driver.chain, "Metadata_metadata_at_version", version, driver.chain.head)
    assert hashlib.sha256(Reader(served, 1).sized_bytes()).hexdigest() == recorded["v15_sha256"]


def test_storage_keys() -> None:
    """Every recorded storage key is the one this node reads and writes."""
    for case in vectors()["storage_keys"]:
        key = codec().key(case["pallet"], case["storage_function"], tuple(case["params"]))
        assert key.hex() == raw(case["key_hex"]).hex(), case


def test_storage_values_decode_and_encode() -> None:
    """Every recorded value decodes as recorded, a missing one to its default, and encodes to the recorded bytes."""
    for case in vectors()["storage_values"]:
        name = (case["pallet"], case["storage_function"])
        stored = None if case["raw_hex"] is None else raw(case["raw_hex"])
        value = codec().decode_value(*name, stored)
        assert plain(value) == case["decoded"], case
        if stored is not None:
            assert codec().encode_value(*name, value) == stored


def test_storage_maps(driver: Driver) -> None:
    """The recorded maps, written as raw storage, are listed with the recorded keys and values."""
    for case in vectors()["query_maps"]:
        pallet, item, params = case["pallet"], case["storage_function"], tuple(case["params"])
        prefix = raw(case["prefix_hex"])
        assert codec().key(pallet, item, params) == prefix
        changes = {raw(key): raw(value) for key, value in case["raw_changes"]}

        def write(context: Any, prefix: bytes = prefix, changes: dict[bytes, bytes] = changes) -> None:
            for key in context.state.raw_keys(prefix):
                context.state.put_raw(key, None)
            for key, value in changes.items():
                context.state.put_raw(key, value)

        driver.chain.build(write)
        view = driver.chain.view()
        assert view.raw_keys(prefix) == sorted(map(raw, case["raw_keys"]))
        found = [(key, codec().decode_value(pallet, item, value)) for key, value in view.entries(pallet, item, *params)]
        assert sorted(plain(found), key=str) == sorted(case["pairs"], key=str)


def test_events_decode_and_encode() -> None:
    """The recorded block's events decode as recorded and encode to the recorded bytes."""
    recorded = vectors()["events"]
    events = codec().decode_value("System", "Events", raw(recorded["raw_hex"]))
    assert plain(events) == recorded["decoded"]


def test_constants() -> None:
    """The recorded constants have the recorded values."""
    for case in vectors()["constants"]:
        assert codec().constant(case["module"], case["name"]) == case["decoded"]


def composed(made: Codec, case: dict[str, Any]) -> bytes:
    """Return a recorded call; the recorder wrote nested calls in words."""
    people = {"alice": 0, "bob": 1, "charlie": 2}
    who = {name: vectors()["ss58"][index]["address"] for name, index in people.items()}

    def pay(name: str, value: int) -> bytes:
        return made.compose_call("Balances", "transfer_keep_alive", {"dest": who[name], "value": value})

    nested: dict[str, Any] = {
        "sudo": lambda: {"call": made.compose_call("System", "remark", {"remark": "0xdeadbeef"})},
        "batch": lambda: {"calls": [pay("bob", 1), pay("charlie", 2)]},
        "proxy": lambda: {"real": who["alice"], "force_proxy_type": "Transfer", "call": pay("bob", 1)},
    }
    params = nested[case["function"]]() if case["function"] in nested else case["params"]
    return made.compose_call(case["module"], case["function"], params)


@pytest.mark.parametrize("number", range(10))
def test_calls(number: int) -> None:
    """A recorded call is composed to the recorded bytes, and its first two bytes name it."""
    case = vectors()["calls"][number]
    data = composed(codec(), case)
    assert data.hex() == raw(case["data_hex"]).hex()
    assert codec().call_name(data[:2]) == (case["module"], case["function"])
    decoded = codec().decode_call(data)
    assert (decoded["call_module"], decoded["call_function"]) == (case["module"], case["function"])


def test_signed_extrinsics_are_taken_apart() -> None:
    """Signer, signature, era, nonce, tip, call and hash of the recorded extrinsics are found in their bytes."""
    for case in vectors()["extrinsics"]:
        found = decode_extrinsic(raw(case["extrinsic_hex"]), codec())
        assert found.signer == raw(case["public_key_hex"])
        assert (found.signature, found.signature_kind) == (raw(case["signature_hex"]), case["signature_version"])
        assert (found.nonce, found.tip, found.call) == (case["nonce"], case["tip"], raw(case["call_data_hex"]))
        assert found.hash == raw(case["extrinsic_hash"])
        if case["era"] == "00":
            assert found.era == Era(0, 0)
        else:
            period, current = case["era"]["period"], case["era"]["current"]
            assert found.era == Era(period, current % period)


def test_signed_bytes() -> None:
    """What this node takes for the signed bytes of an extrinsic is what was recorded, immortal and mortal."""
    network = vectors()["network"]
    base = decode_extrinsic(raw(vectors()["extrinsics"][0]["extrinsic_hex"]), codec())
    for case in vectors()["signature_payloads"]:
        mortal = case["era"] != "00"
        era_hash = raw(case["era_birth_block_hash"] if mortal else network["genesis_hash"])
        payload = raw(case["payload_hex"])
        call = raw(case["call_data_hex"])
        extra = payload[len(call) : len(payload) - 4 - 4 - 32 - 32 - 1]
        if mortal:
            era = read_era(Reader(extra))
            assert era.birth(case["era"]["current"]) == case["era"]["current"]
        signed = type(base)(**{
            **{name: getattr(base, name) for name in base.__struct_fields__}, "call": call, "extra": extra,
        })
        assert signing_payload(signed, raw(network["genesis_hash"]), era_hash).hex() == payload.hex()


def test_block_is_read() -> None:
    """The recorded block's inherents have the form of this node's, and its signed extrinsic is understood."""
    block = vectors()["block"]
    extrinsics = [raw(text) for text in block["raw"]["block"]["extrinsics"]]
    assert extrinsics[0] == inherent(Reader(extrinsics[0], 2).rest)
    assert extrinsics[0][2:4] == b"\x02\x00"
    expected = block["decoded_extrinsics"][2]
    found = decode_extrinsic(extrinsics[2], codec())
    assert (found.pallet, found.function) == (expected["call"]["call_module"], expected["call"]["call_function"])
    assert found.hash == raw(expected["extrinsic_hash"])
    assert address(VALIDATOR) != expected["address"] == vectors()["ss58"][0]["address"]


@pytest.mark.parametrize("driver", [RECORDED_SUBNET], indirect=True)
@pytest.mark.parametrize("number", range(4))
def test_runtime_calls(driver: Driver, number: int) -> None:
    """From the recorded subnet this node answers the recorded runtime calls with the recorded bytes."""
    case = vectors()["runtime_calls"][number]
    if case["api"] == "AccountNonceApi":
        driver.chain.build(
            lambda context: context.state.put_raw(
                raw(vectors()["storage_values"][0]["key_hex"]), raw(vectors()["storage_values"][0]["raw_hex"])
            )
        )
    name = f"{case['api']}_{case['method']}"
    answer = runtime_api.invoke(driver.chain, name, raw(case["encoded_params_hex"]), driver.chain.head)
    output = codec().api_method(case["api"], case["method"])["output"]
    assert plain(codec().decode(output, answer)) == case["decoded"]
    assert answer.hex() == raw(case["raw_hex"]).hex()


def test_events_of_a_transfer(driver: Driver) -> None:
    """A transfer leaves the same events in the same order as on the recorded node."""
    recorded = [(each["module_id"], each["event_id"]) for each in vectors()["receipt"]["triggered_events"]]
    call = compose("Balances", "transfer_keep_alive", dest=address(MINER), value=10**9)
    assert driver.send(VALIDATOR, call) == ""
    events = [event for event in driver.events() if event["extrinsic_idx"] == 1]
    assert [(event["module_id"], event["event_id"]) for event in events] == recorded
    for event, known in zip(events, vectors()["receipt"]["triggered_events"], strict=True):
        mine, theirs = event["attributes"], known["attributes"]
        assert set(mine) == set(theirs), event["event_id"]


def test_payment_info_has_the_recorded_fields(driver: Driver) -> None:
    """The fee estimate has the fields that were recorded."""
    extrinsic = sign(driver.chain, VALIDATOR, compose("System", "remark", remark=b"x"), Signing())
    data = extrinsic + len(extrinsic).to_bytes(4, "little")
    answer = runtime_api.invoke(driver.chain, "TransactionPaymentApi_query_info", data, driver.chain.head)
    output = codec().api_method("TransactionPaymentApi", "query_info")["output"]
    assert sorted(codec().decode(output, answer)) == vectors()["payment_info"]["keys"]


def test_addresses() -> None:
    """The recorded development accounts are the keys these tests sign with."""
    for case in vectors()["ss58"]:
        assert codec().encode("AccountId32", case["address"]) == raw(case["public_key_hex"])
    assert keypair("//Alice").ss58_address == vectors()["ss58"][0]["address"]


def test_every_type_decodes_as_recorded() -> None:
    """One recorded sample of each of the metadata's types decodes to the recorded value."""
    shapes = load("shapes-461.json.xz")
    assert len(shapes["types"]) == 788
    wrong = [
        name
        for number, name, data, decoded in shapes["types"]
        if plain(codec().decode(f"scale_info::{number}", raw(data))) != decoded
    ]
    assert wrong == []
