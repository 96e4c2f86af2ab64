"""chain-package, chain-submit and chain-status against a real local chain, as a miner uses them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from node.cli.actions.chain_status import next_steps
from node.cli.options import ChainChoice
from node.cli.standings import Standing

if TYPE_CHECKING:
    from tests.node.cli.conftest import RunCli

EXAMPLE = Path(__file__).parents[3] / "examples" / "silu_fast"
URL = "http://127.0.0.1:9/archive.tar.gz"
NETUID = "2"


@pytest.fixture
def flags(endpoint: str, wallets: Path) -> list[str]:
    """The flags that name chain and wallet."""
    return [
        "--network",
        "devnet",
        "--endpoint",
        endpoint,
        "--netuid",
        NETUID,
        "--wallet-path",
        str(wallets),
        "--wallet",
        "miner",
    ]


def test_package_lists_what_the_hash_covers(cli: RunCli, tmp_path: Path) -> None:
    """The archive is written under its hash, twice the same, and every file is listed."""
    first = cli("chain-package", str(EXAMPLE), "--json").document["data"]
    second = cli("chain-package", str(EXAMPLE), "--out", "again.tar.gz", "--json").document["data"]
    assert first["archive"] == str(tmp_path / f"{first['content_hash']}.tar.gz")
    assert Path(first["archive"]).read_bytes() == (tmp_path / "again.tar.gz").read_bytes()
    assert second["archive_sha256"] == first["archive_sha256"]
    assert {file["path"] for file in first["files"]} >= {"manifest.toml", "kernels/silu_and_mul.py"}


def test_package_refuses_like_a_validator(cli: RunCli, tmp_path: Path) -> None:
    """A bundle that a validator would refuse is refused with code, place and exit code 3."""
    bundle = tmp_path / "bundle"
    (bundle / "kernels").mkdir(parents=True)
    for name in ("manifest.toml", "metadata/silu.json"):
        (bundle / name).parent.mkdir(exist_ok=True)
        (bundle / name).write_bytes((EXAMPLE / name).read_bytes())
    (bundle / "kernels" / "silu_and_mul.py").write_text(
        "import subprocess\n\n\ndef silu_and_mul(x, out):\n    pass\n", "utf-8"
    )
    packed = cli("chain-package", str(bundle), "--json")
    assert packed.code == 3
    assert packed.document["error"]["blame"] == "miner"
    assert packed.document["error"]["location"] == "kernels/silu_and_mul.py:1"
    submitted = cli("chain-submit", str(bundle), "--url", URL, "--network", "devnet", "--dry-run", "--json")
    assert submitted.document["error"] == packed.document["error"]


@pytest.mark.parametrize(
    "command",
    [("chain-submit", str(EXAMPLE), "--url", "https://example.com/a.tar.gz"), ("chain-status",), ("chain-cost",)],
    ids=lambda one: one[0],
)
def test_no_subnet_is_named(cli: RunCli, command: tuple[str, ...]) -> None:
    """The root network is never meant: the command says how to name a subnet before it reads a wallet or the chain."""
    ran = cli(*command, "--network", "finney", "--json")
    assert ran.code == 2
    assert ran.document["error"]["code"] == "SUBNET_NOT_NAMED"
    assert "--netuid" in ran.document["error"]["hint"]


def _standing(stage: str, code: str) -> Standing:
    return Standing(
        id=stage, hotkey="h", content_hash="c", url="", stage=stage, block=3, rounds_left=0, code=code, blame="",
        detail="", weight_ppm=0, final=True,
    )


def test_what_to_do_next_is_said() -> None:
    """Every code of the rows can be explained, and who asked the chain alone hears where verdicts are."""
    failed, revealed = _standing("failed", "NOT_FASTER"), _standing("revealed", "")
    (step,) = next_steps((failed, failed), asked_a_node=True)
    assert "cacheon explain NOT_FASTER" in step
    (step,) = next_steps((revealed,), asked_a_node=False)
    assert "--node URL" in step
    assert next_steps((revealed,), asked_a_node=True) == []


def test_package_of_nothing(cli: RunCli) -> None:
    """A folder that does not exist is a usage error."""
    ran = cli("chain-package", "nowhere")
    assert ran.code == 2
    assert ran.err.startswith("error[BUNDLE_FOLDER_MISSING]")


@pytest.mark.parametrize(
    ("out", "code"), [("/proc/none/a.tar.gz", "OUTPUT_UNWRITABLE"), (str(EXAMPLE / "a.tar.gz"), "OUTPUT_INSIDE_BUNDLE")]
)
def test_a_bad_place_for_the_archive_is_no_rejection(cli: RunCli, out: str, code: str) -> None:
    """Where the archive cannot be written the command line is at fault, not the bundle."""
    ran = cli("chain-package", str(EXAMPLE), "--out", out)
    assert ran.code == 2
    assert ran.err.startswith(f"error[{code}]")


def test_dry_run_signs_nothing(cli: RunCli) -> None:
    """--dry-run needs neither chain nor wallet and shows the exact payload."""
    ran = cli("chain-submit", str(EXAMPLE), "--url", URL, "--network", "devnet", "--dry-run", "--json")
    data = ran.document["data"]
    assert ran.code == 0
    assert data["payload"] == f'{{"v":1,"h":"{data["content_hash"]}","u":"{URL}"}}'
    assert data["payload_bytes"] == len(data["payload"])


def test_loopback_urls_are_for_the_devnet_only(cli: RunCli) -> None:
    """On a public network a plain loopback URL is refused before anything is signed."""
    ran = cli("chain-submit", str(EXAMPLE), "--url", URL, "--network", "finney", "--dry-run")
    assert ran.code == 2
    assert ran.err.startswith("error[PAYLOAD_INVALID]")


def test_submit_and_follow(cli: RunCli, flags: list[str]) -> None:
    """A submission is sealed, then revealed; --watch ends when it is, and every line is an envelope."""
    submitted = cli(  # opened only after hours, however slow this machine is
        "chain-submit", str(EXAMPLE), "--url", URL, "--blocks-until-reveal", "100000", *flags, "--json"
    ).document
    assert submitted["ok"], submitted
    identity, content_hash = submitted["data"]["id"], submitted["data"]["content_hash"]
    sealed = cli("chain-status", identity, *flags, "--json")
    assert sealed.code == 7
    assert [row["stage"] for row in sealed.document["data"]] == ["sealed"]
    again = cli("chain-submit", str(EXAMPLE), "--url", URL, *flags, "--json").document  # replaces the sealed one
    assert again["data"]["id"] == identity
    watched = cli("chain-status", identity, "--watch", *flags, "--json")
    lines = [json.loads(line) for line in watched.out.splitlines()]
    assert watched.code == 0
    assert all(line["schema"] == "cacheon.chain-status-event.v1" and line["ok"] for line in lines[:-1])
    assert lines[-1]["schema"] == "cacheon.chain-status.v1"
    (row,) = lines[-1]["data"]
    assert (row["stage"], row["content_hash"], row["url"]) == ("revealed", content_hash, URL)
    assert lines[-2]["data"] == row
    table = cli("chain-status", *flags)
    assert table.code == 0
    assert "revealed" in table.out
    assert content_hash in table.out


def test_the_next_command_is_for_the_same_chain() -> None:
    """What chain-submit suggests can be pasted: it names the same chain, quoted for a shell."""
    choice = ChainChoice(config="my node.toml", endpoints=("ws://a", "ws://b"), netuid=2, wallet="alice")
    assert choice.chain_flags() == ("--config 'my node.toml'", "--netuid 2", "--endpoint ws://a", "--endpoint ws://b")


def test_unregistered_hotkey(cli: RunCli, flags: list[str]) -> None:
    """A hotkey that the subnet does not know is a wallet error, and nothing is committed."""
    ran = cli("chain-submit", str(EXAMPLE), "--url", URL, *flags, "--wallet", "stranger", "--json")
    assert ran.code == 4
    assert ran.document["error"]["code"] == "HOTKEY_NOT_REGISTERED"
    assert ran.document["error"]["hint"]


def test_missing_wallet(cli: RunCli, flags: list[str]) -> None:
    """A wallet that does not exist is named by its path."""
    ran = cli("chain-submit", str(EXAMPLE), "--url", URL, *flags, "--wallet", "nobody", "--json")
    assert ran.code == 4
    assert ran.document["error"]["code"] == "WALLET_NOT_FOUND"
    assert "nobody" in ran.document["error"]["message"]


def test_wrong_netuid(cli: RunCli, flags: list[str]) -> None:
    """A subnet that does not exist is a chain error that lists those that do."""
    for command in (("chain-submit", str(EXAMPLE), "--url", URL), ("chain-status",)):
        ran = cli(*command, *flags, "--netuid", "77", "--json")
        assert ran.code == 4
        assert ran.document["error"]["code"] == "SUBNET_NOT_FOUND"
        assert NETUID in ran.document["error"]["message"]


def test_unreachable_endpoint(cli: RunCli, flags: list[str]) -> None:
    """A chain that does not answer is a network error: try again later."""
    for command in (("chain-submit", str(EXAMPLE), "--url", URL), ("chain-status",)):
        arguments = [text if not text.startswith("ws://") else "ws://127.0.0.1:9" for text in flags]
        ran = cli(*command, *arguments, "--json")
        assert ran.code == 5
        assert ran.document["error"]["code"] == "CHAIN_UNREACHABLE"


def test_a_bad_id_is_refused(cli: RunCli, flags: list[str]) -> None:
    """Text that is neither an id nor a hash is a usage error."""
    ran = cli("chain-status", "hotkey:nonsense", *flags)
    assert ran.code == 2
    assert ran.err.startswith("error[SUBMISSION_ID_INVALID]")


def test_port_in_use(cli: RunCli, endpoint: str) -> None:
    """A second chain on the same port says so."""
    ran = cli("devnet", "--port", endpoint.rpartition(":")[2])
    assert ran.code == 6
    assert ran.err.startswith("error[PORT_IN_USE]")


def test_wallets_go_by_the_ecosystems_names(cli: RunCli, endpoint: str, wallets: Path) -> None:
    """The other spellings and the variables name the same wallet, and a flag goes before a variable."""
    chain = ["--network", "devnet", "--endpoint", endpoint, "--netuid", NETUID, "--json"]
    variables = {"BT_WALLET": "nobody", "BT_WALLET_PATH": str(wallets), "BT_WALLET_HOTKEY": "default"}
    named = cli("chain-status", *chain, "--wallet-hotkey", "default", env=variables)
    assert (named.code, named.document["error"]["code"]) == (4, "WALLET_NOT_FOUND")
    assert str(wallets / "nobody") in named.document["error"]["message"]
    submitted = cli("chain-submit", str(EXAMPLE), "--url", URL, *chain, "--wallet-name", "stranger", env=variables)
    assert (submitted.code, submitted.document["error"]["code"]) == (4, "HOTKEY_NOT_REGISTERED")
