"""SDK 11.1.0, SDK 10.5.0 and the command lines, each in its own interpreter, against a running node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chain.devnet import beacon
from chain.devnet.scale import byte_vector
from chain.devnet.server import Devnet
from tests.chain.devnet.support import MINER, NETUID, OTHER, VALIDATOR, address, hot
from tests.chain.sdk.install import interpreter
from tests.chain.sdk.support import LIMIT_SECONDS, needs, run, run_script

pytestmark = pytest.mark.timeout(LIMIT_SECONDS)
# The prefix of a text of 32 to 63 bytes is no UTF-8. With another one the runtime's bytes happen to be text, and the
# reader of SDK 10.5.0 raises for the whole subnet, here as on a public network.
REVEALED = "a text of forty bytes, sealed for now..."
HOTKEYS = [address(hot(VALIDATOR)), address(hot(MINER))]


@needs("11.1.0")
async def test_sdk_11_1(devnet: Devnet, tmp_path: Path) -> None:
    """SDK 11.1.0 connects, reads and submits."""
    found = await run_script("11.1.0", "sdk11", [devnet.url, str(NETUID), VALIDATOR, hot(VALIDATOR)], tmp_path)
    assert found["version"] == "11.1.0"
    assert (found["block"], found["tempo"], found["subnets"]) == (0, 10, [0, NETUID])
    assert found["hotkeys"] == found["neurons"] == HOTKEYS
    assert (found["permits"], found["full"]) == ([True, False], [[], []])
    assert (found["balance"], found["stakes"]) == (1_000 * 10**9, [1_000 * 10**9])
    assert (found["commitments"], found["before"]) == ([], {})
    assert found["set_weights"] == [True, "1-0001"]
    assert found["after"]["0"]["1"] == pytest.approx(0.75, abs=1e-4)
    assert (found["set_commitment"], found["committed"]) == (True, ["hello"])


@needs("10.5.0")
async def test_sdk_10_5(devnet: Devnet, tmp_path: Path) -> None:
    """SDK 10.5.0 reads every table, sets weights, commits in the clear and sealed, registers, and reads it all back."""
    sealed = beacon.seal(byte_vector(REVEALED.encode())).hex()
    found = await run_script("10.5.0", "sdk10", [devnet.url, str(NETUID), sealed], tmp_path)
    assert found["version"] == "10.5.0"
    _check_reads(found["reads"])
    assert found["set_weights"][0] is True, found["set_weights"]
    assert found["weights"] == [[0, [[0, 21845], [1, 65535]]]]
    assert found["too_early"][0] is False
    assert found["no_permit"][0] is False
    assert "NeuronNoValidatorPermit" in found["no_permit"][1]
    assert found["set_commitment"][0] is True
    assert found["commitments"] == {HOTKEYS[1]: "in the clear"}
    assert found["set_reveal_commitment"][0] is True
    assert found["sealed_bytes"] == len(beacon.seal(byte_vector(b"for later")))
    assert found["again"][0] is True
    (reveal,) = found["revealed"][HOTKEYS[1]]
    assert reveal[1] == REVEALED
    assert (found["burned_register"][0], found["uid"]) == (True, 2)


def _check_reads(reads: dict[str, Any]) -> None:
    assert (reads["hotkeys"], reads["permits"]) == (HOTKEYS, [True, False])
    assert reads["weights_matrix"] == [2, 2]
    assert reads["info"] == [NETUID, 10, 2, "devnet"]
    assert reads["lite"][0] == [0, HOTKEYS[0], address(VALIDATOR), 1_000.0]
    assert reads["neurons"] == [[0, True, []], [1, False, []]]
    assert reads["neuron"] == HOTKEYS[1]
    assert reads["parameters"] == [10, 3, False]
    assert reads["balance"] == 1_000.0
    assert (reads["commitments"], reads["weights"], reads["bonds"]) == ({}, [], [])
    assert reads["subnets"] == reads["subnet_infos"] == [0, NETUID]
    assert (reads["subnet_info"], reads["state"], reads["next_epoch"]) == (2, 2, 10)
    assert (reads["delegates"], reads["delegate"]) == ([], None)
    assert reads["stakes"] == [[NETUID, 1_000.0]]
    assert (reads["price"], reads["fee"]) == (0.1, 0.0)


@needs("10.5.0")
@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("subnets list", "devnet"),
        (f"subnets hyperparameters --netuid {NETUID}", "weights_rate_limit"),
        (f"wallet balance --ss58 {address(OTHER)}", "1,000.0000"),
        # It asks for storage that spec 461 no longer has, and says so as it would on a public network.
        (f"subnets metagraph --netuid {NETUID}", 'Storage function "SubtensorModule.RootClaimType" not found'),
    ],
)
async def test_btcli_9(devnet: Devnet, tmp_path: Path, command: str, expected: str) -> None:
    """The command line that went with SDK 9 and 10 reads what an operator asks for."""
    devnet.produce_block()
    arguments = [*command.split(), "--network", devnet.url]
    printed = "".join(await run(interpreter("10.5.0").parent / "btcli", arguments, tmp_path))
    assert expected in printed, printed


@pytest.mark.parametrize(
    ("version", "module"),
    [
        pytest.param("9.12.2", "bittensor_drand", marks=needs("9.12.2")),
        pytest.param("10.5.0", "bittensor_drand", marks=needs("10.5.0")),
        pytest.param("11.1.0", "bittensor_core", marks=needs("11.1.0")),
    ],
)
async def test_framing_of_sealed_texts(tmp_path: Path, version: str, module: str) -> None:
    """SDK 9 and 10, and the helper line 11 kept of them, seal a text behind its compact length: 1, 2 or 4 bytes."""
    prefixes = {0: 1, 63: 1, 64: 2, 16_383: 2, 16_384: 4}
    found = await run_script(version, "framing", [module, *map(str, prefixes)], tmp_path)
    bare = len(beacon.seal(b""))
    assert found == [bare + prefix + length for length, prefix in prefixes.items()]
