"""chain-cost and chain-submit --pay against a real local chain, as a miner uses them."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from chain.payment import Payment
from config.errors import ChainError, NetworkError
from config.evaluation_cost import EvaluationCostSettings
from tests.node.cli.conftest import plain_environment

if TYPE_CHECKING:
    from tests.node.cli.conftest import RunCli

EXAMPLE = Path(__file__).parents[3] / "examples" / "silu_fast"
URL = "http://127.0.0.1:9/archive.tar.gz"
TAO = 1_000_000_000
PRICE = {"CACHEON_EVALUATION_COST__AMOUNT_RAO": str(TAO)}
PATIENCE = 240.0  # seconds for one command on a machine that has no time

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory, wallets: Path) -> Iterator[str]:
    """A chain with an owner to pay and a miner who can; its blocks are slow enough for any machine."""
    from chain.devnet.genesis_document import Genesis, NeuronSpec, OwnerSpec
    from chain.wallet import address_of_seed, create_wallet

    miner = create_wallet(wallets, "miner", "default", seed="//miner")
    genesis = Genesis(
        netuid=2, neurons=(NeuronSpec(miner.hotkey_address, miner.coldkey_address),),
        owner=OwnerSpec(address_of_seed("//Owner"), address_of_seed("//Owner//cold")),
        balances={miner.coldkey_address: 100, address_of_seed("//Owner//cold"): 1},
    )
    file = tmp_path_factory.mktemp("market") / "genesis.json"
    file.write_bytes(msgspec.json.encode(genesis))
    command = [sys.executable, "-m", "node.cli.main", "devnet", "--port", "0", "--block-time", "1",
               "--genesis", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as chain:
        assert chain.stdout is not None
        yield chain.stdout.readline().strip()
        chain.terminate()
        assert chain.wait(60) == 0


@pytest.fixture
def flags(market: str, wallets: Path) -> list[str]:
    """The flags that name chain and wallet."""
    return ["--network", "devnet", "--endpoint", market, "--netuid", "2", "--wallet-path", str(wallets),
            "--wallet", "miner"]


@pytest.fixture
def purse(tmp_path: Path) -> list[str]:
    """Where this test remembers payments."""
    return ["--state", str(tmp_path / "purse")]


def addresses() -> tuple[str, str, str]:
    """Return the miner's hotkey and coldkey, and the owner's coldkey."""
    from chain.wallet import address_of_seed

    return address_of_seed("//miner"), address_of_seed("//miner//cold"), address_of_seed("//Owner//cold")


def cost(cli: RunCli, flags: list[str]) -> dict[str, Any]:
    """What chain-cost says."""
    ran = cli("chain-cost", *flags, "--json", env=PRICE, timeout=PATIENCE)
    assert ran.code == 0, ran
    data: dict[str, Any] = ran.document["data"]
    return data


async def found(market: str, data: dict[str, Any]) -> object:
    """What a validator says of the payment that a submission made."""
    from chain.client import ChainClient
    from chain.payment import Claim
    from chain.payment_lookup import look_up_payment

    paid = data["payment"]
    claim = Claim(data["content_hash"], data["hotkey"], 2, data["reveal_block"], paid["block"], paid["index"])
    async with ChainClient([market]) as client:
        return await look_up_payment(client, claim, EvaluationCostSettings(amount_rao=TAO))


def test_chain_cost(cli: RunCli, flags: list[str]) -> None:
    """Price, destination, balance and the life of the quote, for a person and for a program."""
    _, payer, owner = addresses()
    told = cost(cli, flags)
    assert (told["amount_rao"], told["destination"], told["payer"]) == (TAO, owner, payer)
    assert told["quoted_until"] == told["block"] + 300
    assert told["spendable_rao"] <= 100 * TAO
    changing = cli("chain-cost", *flags, env={"CACHEON_EVALUATION_COST__CHANGES": "90000:1500000000"})
    assert "a submission costs  nothing" in changing.out
    assert "1.5 TAO (1500000000 rao) from block 90000" in changing.out
    poor = cli("chain-cost", *flags, "--wallet-path", "/nowhere", "--json", env=PRICE, timeout=PATIENCE)
    assert poor.code == 0
    assert (poor.document["data"]["payer"], poor.document["data"]["spendable_rao"]) == (None, None)


async def test_pay_and_submit(cli: RunCli, flags: list[str], purse: list[str], market: str, tmp_path: Path) -> None:
    """One command pays and commits; the pointer is good, the money is gone once, and nothing is left on record."""
    before = cost(cli, flags)["spendable_rao"]
    planned = cli("chain-submit", str(EXAMPLE), "--url", URL, "--pay", "--dry-run", *flags, *purse, "--json",
                  env=PRICE, timeout=PATIENCE).document["data"]
    assert planned["payment"]["amount_rao"] == TAO
    assert planned["payload"].startswith('{"v":1,')
    assert cost(cli, flags)["spendable_rao"] == before
    ran = cli("chain-submit", str(EXAMPLE), "--url", URL, "--pay", *flags, *purse, "--json",
              env=PRICE, timeout=PATIENCE)
    assert ran.code == 0, ran
    data = ran.document["data"]
    assert data["payment"]["amount_rao"] == TAO
    assert isinstance(await found(market, data), Payment)
    assert before - 2 * TAO < cost(cli, flags)["spendable_rao"] <= before - TAO
    assert [path.name for path in (tmp_path / "purse" / "payments").iterdir()] == ["lock"]


@pytest.mark.crash
def test_killed_while_paying(cli: RunCli, flags: list[str], purse: list[str], tmp_path: Path) -> None:
    """SIGKILL as soon as the payment is written down, wherever its bytes are: the next run pays nothing more."""
    before = cost(cli, flags)["spendable_rao"]
    command = [sys.executable, "-m", "node.cli.main", "chain-submit", str(EXAMPLE), "--url", URL, "--pay", *flags,
               *purse, "--json"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=plain_environment(**PRICE)) as first:
        while not list((tmp_path / "purse").glob("payments/*.json")):
            assert first.poll() is None, "it ended before it paid"
            time.sleep(0.01)
        first.kill()
    ran = cli(*command[3:], env=PRICE, timeout=PATIENCE)
    assert ran.code == 0, ran
    assert before - 2 * TAO < cost(cli, flags)["spendable_rao"] <= before - TAO


async def test_a_commitment_that_fails_after_paying(
    cli: RunCli, flags: list[str], market: str, wallets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error tells the command that submits without paying again, and that command does."""
    from node.cli.actions import submit
    from node.cli.options import ChainChoice
    from node.cli.paying import Wish

    async def lost(*_: Any, **__: Any) -> None:
        raise NetworkError("CHAIN_TIMEOUT", "No answer.", hint="Wait.")

    choice = ChainChoice(None, "devnet", (market,), 2, "miner", None, str(wallets))
    request = submit.Request(str(EXAMPLE), URL, choice, Wish(pay=True, state=str(tmp_path / "purse")), 10)
    with monkeypatch.context() as patch:
        patch.setenv("CACHEON_EVALUATION_COST__AMOUNT_RAO", str(TAO))
        patch.setattr(submit, "commit", lost)
        with pytest.raises(NetworkError) as caught:
            await submit_async(request)
    before = cost(cli, flags)["spendable_rao"]
    words = shlex.split(caught.value.hint.partition("`")[2].partition("`")[0])
    assert words[:2] == ["cacheon", "chain-submit"]
    assert "--payment-block" in words
    again = cli(*words[1:], "--json", env=PRICE, timeout=PATIENCE)
    assert again.code == 0, again
    assert cost(cli, flags)["spendable_rao"] > before - TAO // 2  # a fee at most
    kept = next(path for path in (tmp_path / "purse" / "payments").iterdir() if path.suffix == ".json")
    record = json.loads(kept.read_bytes())
    assert kept.stat().st_mode & 0o077 == 0
    assert [str(record["block"]), str(record["index"])] == [words[words.index("--payment-block") + 1],
                                                             words[words.index("--payment-index") + 1]]


async def test_an_endpoint_that_names_its_own_account_is_paid_nothing(
    cli: RunCli, flags: list[str], market: str, wallets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is paid is read twice, the second time elsewhere; when the two differ nothing is signed."""
    from chain import paying
    from chain.wallet import address_of_seed
    from node.cli.actions import submit
    from node.cli.options import ChainChoice
    from node.cli.paying import Wish

    honest, asked = paying.quote_for, []

    async def quote_for(*arguments: Any, **keywords: Any) -> Any:
        quote = await honest(*arguments, **keywords)
        asked.append(quote)
        return msgspec.structs.replace(quote, destination=address_of_seed("//Thief")) if len(asked) == 1 else quote

    choice = ChainChoice(None, "devnet", (market,), 2, "miner", None, str(wallets))
    request = submit.Request(str(EXAMPLE), URL, choice, Wish(pay=True, state=str(tmp_path / "purse")), 10)
    before = cost(cli, flags)["spendable_rao"]
    with monkeypatch.context() as patch:
        patch.setenv("CACHEON_EVALUATION_COST__AMOUNT_RAO", str(TAO))
        patch.setattr(paying, "quote_for", quote_for)
        with pytest.raises(ChainError) as caught:
            await submit_async(request)
    assert caught.value.code == "PAYMENT_DESTINATION_UNSURE"
    assert (len(asked), cost(cli, flags)["spendable_rao"]) == (2, before)
    assert not list((tmp_path / "purse").glob("payments/*.json"))


async def submit_async(request: Any) -> None:
    """Run chain-submit's body in a thread: it makes an event loop of its own."""
    import asyncio

    from node.cli.actions import submit

    await asyncio.to_thread(submit.run, request, dry_run=False, as_json=True)


def test_an_unregistered_hotkey_pays_nothing(cli: RunCli, flags: list[str], purse: list[str], tmp_path: Path) -> None:
    """What the chain would refuse afterwards is refused before the payment."""
    ran = cli("chain-submit", str(EXAMPLE), "--url", URL, "--pay", *flags, "--wallet", "stranger", *purse, "--json",
              env=PRICE, timeout=PATIENCE)
    assert ran.document["error"]["code"] == "HOTKEY_NOT_REGISTERED"
    assert not (tmp_path / "purse").exists()


def test_nothing_due_nothing_paid(cli: RunCli, flags: list[str], purse: list[str]) -> None:
    """--pay on a subnet where submissions are free plans to pay nothing."""
    ran = cli("chain-submit", str(EXAMPLE), "--url", URL, "--pay", "--dry-run", *flags, *purse, "--json",
              timeout=PATIENCE)
    assert ran.code == 0, ran
    assert ran.document["data"]["payment"]["amount_rao"] == 0


def test_a_wrong_pointer_is_refused_before_committing(cli: RunCli, flags: list[str]) -> None:
    """The validator's own check runs first, with the validator's codes."""
    ran = cli("chain-submit", str(EXAMPLE), "--url", URL, "--payment-block", "1", "--payment-index", "0", *flags,
              "--json", env=PRICE, timeout=PATIENCE)
    assert ran.code == 4
    assert ran.document["error"]["code"] == "EVALUATION_COST_MALFORMED"
    assert ran.document["error"]["blame"] == "miner"


@pytest.mark.parametrize(
    "options",
    [
        ("--pay", "--payment-block", "1", "--payment-index", "0"), ("--payment-block", "1"), ("--payment-index", "0"),
        ("--pay", "--payment-block", "1"),
    ],
)
def test_contradictions(cli: RunCli, options: tuple[str, ...]) -> None:
    """One cannot pay and have paid, and half a pointer points nowhere."""
    ran = cli("chain-submit", str(EXAMPLE), "--url", URL, "--network", "devnet", *options, "--json")
    assert (ran.code, ran.document["error"]["code"]) == (2, "USAGE")


def test_nothing_is_paid_for_what_a_validator_refuses(cli: RunCli, tmp_path: Path) -> None:
    """A bundle with findings, one whose target no arena measures, and a URL without room for a pointer: no chain is
    asked, no key is opened."""
    nowhere = ["--network", "devnet", "--endpoint", "ws://127.0.0.1:9", "--wallet-path", "/nowhere", "--json"]
    empty = tmp_path / "empty"
    empty.mkdir()
    refused = cli("chain-submit", str(empty), "--url", URL, "--pay", *nowhere, env=PRICE)
    assert refused.code == 3
    arena = Path(__file__).parents[3] / "config" / "arenas" / "cpu-small.toml"
    other = tmp_path / "other.toml"
    before, mark, rest = arena.read_text("utf-8").partition("[[workloads]]\n")
    tables = [table for table in rest.split("[[workloads]]\n") if "activation.silu_and_mul" not in table]
    other.write_text(before + "".join(mark + table for table in tables), "utf-8")
    settings = {**PRICE, "CACHEON_QUALIFY__ARENA": str(other)}
    unserved = cli("chain-submit", str(EXAMPLE), "--url", URL, "--pay", *nowhere, env=settings)
    assert unserved.document["error"]["code"] == "PAYMENT_TARGET_NOT_SERVED", unserved
    long = "https://example.com/" + "a" * 665
    assert cli("chain-submit", str(EXAMPLE), "--url", long, "--dry-run", "--network", "finney", "--json").code == 0
    tight = cli("chain-submit", str(EXAMPLE), "--url", long, "--pay", *nowhere, env=PRICE)
    assert tight.document["error"]["code"] == "PAYLOAD_UNSEALABLE"


@pytest.fixture
def locked(wallets: Path, tmp_path: Path) -> Path:
    """A folder of wallets whose `miner` has an encrypted coldkey; the password is not needed to see that."""
    for name in ("hotkeys/default", "coldkeypub.txt"):
        copy = tmp_path / "locked" / "miner" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((wallets / "miner" / name).read_bytes())
    (tmp_path / "locked" / "miner" / "coldkey").write_bytes(b"$NACL" + b"\0" * 100)
    return tmp_path / "locked"


@pytest.mark.parametrize("how", [(), ("--password-env", "NO_SUCH_NAME"), ("--password-file", "no-such-file")])
def test_an_encrypted_coldkey_never_prompts(
    cli: RunCli, flags: list[str], purse: list[str], locked: Path, how: tuple[str, ...], tmp_path: Path
) -> None:
    """Without a terminal, and with --json in any case, a password that is not given is an error; nothing is signed."""
    ran = cli("chain-submit", str(EXAMPLE), "--url", URL, "--pay", *flags, "--wallet-path", str(locked), *purse,
              *how, "--json", env=PRICE, timeout=PATIENCE)
    assert ran.code == 4
    assert ran.document["error"]["code"] == ("COLDKEY_PASSWORD_MISSING" if how else "COLDKEY_ENCRYPTED")
    assert not list((tmp_path / "purse" / "payments").glob("*.json"))
