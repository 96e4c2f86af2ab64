"""The command line and the genesis document."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chain.devnet.command import configure, main, parser
from chain.devnet.config import DevnetConfig
from chain.devnet.genesis_document import Genesis, load_genesis
from chain.devnet.startup import open_chain
from config.errors import ConfigurationError
from tests.chain.devnet.support import MINER, OWNER, VALIDATOR, address, genesis, hot


def parsed(*arguments: str) -> DevnetConfig:
    return configure(parser().parse_args(arguments))


def test_options_build_a_genesis() -> None:
    """Accounts, neurons, owner and hyperparameters given as options make a genesis document."""
    config = parsed(
        *("--netuid", "9", "--tempo", "7", "--no-commit-reveal", "--version-key", "3"),
        *("--account", f"{address(VALIDATOR)}=12", "--owner", f"{address(hot(OWNER))}:{address(OWNER)}"),
        *("--neuron", f"{address(hot(VALIDATOR))}:{address(VALIDATOR)}:permit:500"),
        *("--neuron", f"{address(hot(MINER))}:{address(MINER)}"),
    )
    spec = config.genesis
    assert spec is not None
    assert (spec.netuid, spec.tempo, spec.commit_reveal, spec.version_key) == (9, 7, False, 3)
    assert spec.balances == {address(VALIDATOR): 12}
    assert [(neuron.permit, neuron.stake) for neuron in spec.neurons] == [(True, 500), (False, 0)]
    assert spec.owner is not None
    assert spec.owner.coldkey == address(OWNER)


def test_no_genesis_option_means_no_genesis() -> None:
    """Run-time options alone leave the genesis to the state file or the default."""
    config = parsed("--port", "0", "--block-time", "0", "--finality-lag", "3")
    assert (config.genesis, config.instant, config.finality_lag) == (None, True, 3)


def test_options_override_the_document(tmp_path: Path) -> None:
    """Options change single values of a genesis file and add to its accounts."""
    path = tmp_path / "genesis.json"
    path.write_text(json.dumps({"netuid": 4, "tempo": 30, "balances": {address(MINER): 1}}))
    spec = parsed("--genesis", str(path), "--tempo", "31", "--account", f"{address(VALIDATOR)}=2").genesis
    assert spec is not None
    assert (spec.netuid, spec.tempo) == (4, 31)
    assert spec.balances == {address(MINER): 1, address(VALIDATOR): 2}


@pytest.mark.parametrize(
    "option", ["--account=x", "--account=a=b", "--neuron=a", "--neuron=a:b:chief", "--neuron=a:b:1:2"]
)
def test_malformed_options(option: str) -> None:
    """Options that are not in their form are refused with GENESIS_INVALID."""
    with pytest.raises(ConfigurationError) as caught:
        parsed(option)
    assert caught.value.code == "GENESIS_INVALID"


@pytest.mark.parametrize(
    ("text", "code"),
    [("{", "GENESIS_INVALID"), ('{"netuids": 2}', "GENESIS_INVALID"), ('{"netuid": "2"}', "GENESIS_INVALID")],
)
def test_malformed_documents(tmp_path: Path, text: str, code: str) -> None:
    """Broken JSON, unknown fields and wrong types are refused with the file's name."""
    path = tmp_path / "genesis.json"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load_genesis(path)
    assert caught.value.code == code
    assert caught.value.location is not None
    with pytest.raises(ConfigurationError, match="more than"):
        load_genesis(Path("/dev/zero"))
    with pytest.raises(ConfigurationError) as missing:
        load_genesis(tmp_path / "nowhere.json")
    assert missing.value.code == "GENESIS_UNREADABLE"


@pytest.mark.parametrize(
    "changes",
    [
        {"balances": {"5bad": 1}},
        {"netuid": 0},
        {"neurons": genesis().neurons * 2},
        {"subnets": (genesis(),)},
        {"tempo": 70_000},
        {"balances": {address(MINER): -1}},
        {"max_allowed_uids": len(genesis().neurons) - 1},
    ],
    ids=["bad address", "root", "neuron twice", "subnet twice", "tempo too large", "negative balance",
         "more neurons than places"],
)
def test_impossible_genesis(changes: dict[str, object]) -> None:
    """A genesis that cannot be built is refused with GENESIS_INVALID before anything listens."""
    with pytest.raises(ConfigurationError) as caught, open_chain(DevnetConfig(genesis=genesis(**changes))):
        pass
    assert caught.value.code == "GENESIS_INVALID"


def test_same_document_makes_different_chains() -> None:
    """Two chains from one document are told apart by their genesis hash once time has passed."""
    hashes = set()
    for moment in (1, 2):
        with open_chain(DevnetConfig(genesis=Genesis()), clock=lambda moment=moment: moment) as chain:
            hashes.add(chain.genesis_hash)
    assert len(hashes) == 2


def test_refusal_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    """A refused start writes one error document and returns the exit code of its family."""
    assert main(["--host", "8.8.8.8"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert json.loads(captured.err)["code"] == "DEVNET_SETTINGS_INVALID"
