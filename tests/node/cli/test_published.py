"""Published receipts as an observer has them: verified, explained, recomputed, and refused after one changed byte."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from chain.key_binding import binding_of
from chain.wallet import address_of_seed, signer_of_seed
from config.canonical import sha256_hex
from config.key_binding import binding_payload
from config.statement import pre_authentication, seal
from scoring.dsse import public_key
from tests.node.cli.test_evidence import to_toml
from tests.scoring.receipts_world import GENESIS_HASH, ReceiptsWorld, two_crowns

if TYPE_CHECKING:
    from tests.node.cli.conftest import RunCli

pytestmark = pytest.mark.timeout(600)  # each test runs commands as processes
VALIDATOR = address_of_seed("//Validator")


def bound(world: ReceiptsWorld, seed: str = "//Validator", netuid: int = 2) -> str:
    """Publish the key binding of the world's receipt key by a hotkey; return its digest."""
    signer = signer_of_seed(seed)
    binding = binding_of(signer, public_key(world.secret), GENESIS_HASH, netuid)
    payload = binding_payload(binding)
    data = seal(payload, binding.hotkey, bytes(signer.sign(pre_authentication(payload))))
    world.envelopes[sha256_hex(data)] = data
    return sha256_hex(data)


@pytest.fixture(name="original", scope="module")
def _original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of everything that a validator publishes."""
    world = two_crowns(validator=VALIDATOR)
    bound(world)
    return world.write(tmp_path_factory.mktemp("published"), to_toml(world.arena_document))


@pytest.fixture(name="folder")
def _folder(original: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may change; the command runs beside it."""
    shutil.copytree(original, tmp_path / "out")
    return tmp_path / "out"


def refused(cli: RunCli, *arguments: str) -> tuple[int, str]:
    """The exit code and the error code of a refusal."""
    ran = cli(*arguments, "--json", timeout=300)
    return ran.code, ran.document["error"]["code"]


def test_an_observer_recomputes_the_weights_from_the_folder_alone(cli: RunCli, folder: Path) -> None:
    """Without a node, a database or a chain: the vector, what proves it, and what that does not prove."""
    ran = cli("weights", "recompute", "out", "--hotkey", VALIDATOR, "--json", timeout=300)
    assert ran.code == 0, ran.out
    data = ran.document["data"]
    assert (data["hotkey"], data["epoch"], data["block"]) == (VALIDATOR, 3, 300)
    assert sum(ppm for _, ppm in data["entries"]) == 1_000_000
    assert [one["claim"]["hotkey"] for one in data["crowns"]] == ["5Bob"]
    assert [verdict["regraded"] for verdict in data["crowns"][0]["verdicts"]] == [True, True]
    assert any("2 of 2 attempt files graded again" in one for one in data["proves"])
    assert data["does_not_prove"]
    plain = cli("weights", "recompute", "out", "--epoch", "1", timeout=300)
    assert plain.out.startswith("vector reproduced")
    assert "5Burn" in plain.out


def test_attempt_files_that_are_not_there_are_told(cli: RunCli, folder: Path) -> None:
    """Then verdicts are only signed."""
    shutil.rmtree(folder / "attempts")
    data = cli("weights", "recompute", "out", "--json", timeout=300).document["data"]
    assert [verdict["regraded"] for verdict in data["crowns"][0]["verdicts"]] == [False, False]
    assert any("their attempt files are not here" in one for one in data["does_not_prove"])


def flip(path: Path) -> None:
    """Change one bit of one byte of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("receipts", {"RECEIPT_DIGEST_DIFFERS"}),
        ("attempts", {"RECEIPT_UNREADABLE", "ATTEMPT_DIGEST_MISMATCH"}),
        ("arenas", {"RECEIPT_DIGEST_DIFFERS"}),
        ("targets", {"RECEIPT_DIGEST_DIFFERS"}),
    ],
)
def test_one_changed_byte_is_refused(cli: RunCli, folder: Path, kind: str, expected: set[str]) -> None:
    """In any file that the vector rests on."""
    for path in (folder / kind).iterdir():
        flip(path)
    code, error = refused(cli, "weights", "recompute", "out")
    assert (code, error in expected) == (3, True), error


def test_a_changed_byte_under_a_new_name_is_refused_too(cli: RunCli, folder: Path) -> None:
    """Who renames the file to fit meets the signature."""
    path = next(path for path in (folder / "receipts").iterdir() if b"keyid" in path.read_bytes())
    document = json.loads(path.read_bytes())
    payload = document["payload"]
    document["payload"] = payload[:40] + ("A" if payload[40] != "A" else "B") + payload[41:]
    data = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    path.unlink()
    (folder / "receipts" / f"{sha256_hex(data)}.json").write_bytes(data)
    code, error = refused(cli, "weights", "recompute", "out")
    assert code == 3
    assert error in {"RECEIPT_FORGED", "RECEIPT_MALFORMED", "KEY_BINDING_FORGED"}


def test_whose_receipts_they_are_is_asked_first(cli: RunCli, folder: Path, tmp_path: Path) -> None:
    """Another hotkey, no binding, two hotkeys, a key of somebody else: a code each."""
    other = address_of_seed("//Other")
    assert refused(cli, "weights", "recompute", "out", "--hotkey", other) == (3, "KEY_BINDING_FOREIGN")
    assert refused(cli, "weights", "recompute", "out", "--key", "00" * 32) == (3, "RECEIPT_UNTRUSTED")
    assert refused(cli, "weights", "recompute", "out", "--key", "xyz") == (2, "RECEIPT_KEY_NOT_HEX")
    assert refused(cli, "weights", "recompute", "nowhere") == (7, "RECEIPT_NOT_FOUND")
    world = two_crowns(validator=VALIDATOR)
    world.write(tmp_path / "unbound")
    assert refused(cli, "weights", "recompute", "unbound") == (3, "KEY_BINDING_MISSING")
    key = public_key(world.secret).hex()
    assert cli("weights", "recompute", "unbound", "--key", key, timeout=300).code == 3  # attempts without their arena
    shutil.rmtree(tmp_path / "unbound" / "attempts")
    assert cli("weights", "recompute", "unbound", "--key", key, timeout=300).code == 0
    bound(world, "//Other")
    world.write(tmp_path / "stolen")
    assert refused(cli, "weights", "recompute", "stolen") == (3, "RECEIPTS_MIXED")
    bound(world)
    world.write(tmp_path / "both")
    assert refused(cli, "weights", "recompute", "both") == (3, "RECEIPTS_MIXED")
    (folder / "receipts" / "notes.txt").write_text("not a receipt")
    assert refused(cli, "weights", "recompute", "out") == (3, "RECEIPT_UNREADABLE")


def test_explain_says_why_each_hotkey_gets_what_it_gets(cli: RunCli, folder: Path) -> None:
    """Numbers that add up, and sentences that hold them."""
    ran = cli("weights", "explain", "--state", "out", "--json", timeout=300)
    derivation = ran.document["data"]["derivation"]
    total = derivation["total_credit"]
    assert sum(row["ppm"] for row in derivation["rows"]) == 1_000_000
    for row in derivation["rows"]:
        own = sum(one["standing_credit"] for one in row["crowns"]) + row["burned_credit"]
        assert (row["credit"], row["total_credit"]) == (own, total)
        assert row["ppm"] == own * 1_000_000 // total + row["rounded_up"]
    assert derivation["policy"]["undistributed"] == "burn"
    plain = cli("weights", "explain", "--state", "out", timeout=300).out
    for words in ("crown of norm.rmsnorm", "credit lost to decay burns", "5Burn", "is left and"):
        assert words in plain


def test_explain_answers_for_one_hotkey(cli: RunCli, folder: Path) -> None:
    """For one that is paid, one whose crown was taken away, and one that never had any."""
    bob = cli("weights", "explain", "--state", "out", "--hotkey", "5Bob", timeout=300).out
    assert "5Bob: " in bob
    assert "5Burn: " not in bob
    ann: dict[str, Any] = cli(
        "weights", "explain", "--state", "out", "--hotkey", "5Ann", "--json", timeout=300
    ).document["data"]
    assert ann["derivation"]["rows"] == []
    assert [(one["ended"], one["by_hotkey"]) for one in ann["former_crowns"]] == [("RETIRE", "5Bob")]
    then = cli("weights", "explain", "--state", "out", "--hotkey", "5Ann", "--epoch", "2", timeout=300).out
    assert "5Ann: " in then
    nobody = cli("weights", "explain", "--state", "out", "--hotkey", "5Nobody", timeout=300).out
    assert "5Nobody gets nothing in this vector" in nobody
    assert "it holds no crown" in nobody


def test_receipts_are_verified_one_by_one_and_by_the_folder(cli: RunCli, folder: Path) -> None:
    """Under the key, or under the binding that names it; the binding verifies by itself."""
    data = cli("receipt", "verify", "out", "--hotkey", VALIDATOR, "--json", timeout=300).document["data"]
    assert {kind.rpartition(":")[2]: count for kind, count in data["kinds"].items()} == {
        "crown.v1": 2, "key-binding.v1": 1, "ledger.v1": 3, "verdict.v1": 4, "weights.v1": 3,
    }
    names = {path.name: json.loads(path.read_bytes()) for path in (folder / "receipts").iterdir()}
    binding = next(name for name, one in names.items() if one["signatures"][0]["keyid"] == VALIDATOR)
    other = next(name for name in names if name != binding)
    good = cli("receipt", "verify", f"out/receipts/{binding}", "--hotkey", VALIDATOR, "--json")
    assert good.document["data"]["predicate"]["hotkey"] == VALIDATOR
    by_binding = ("receipt", "verify", f"out/receipts/{other}", "--binding", f"out/receipts/{binding}")
    assert cli(*by_binding).code == 0
    stranger = address_of_seed("//Other")
    assert refused(cli, *by_binding, "--hotkey", stranger) == (3, "KEY_BINDING_FOREIGN")
    assert refused(cli, "receipt", "verify", f"out/receipts/{other}") == (3, "KEY_BINDING_MISSING")


def test_export_hands_on_what_is_public_and_nothing_else(cli: RunCli, folder: Path, tmp_path: Path) -> None:
    """No key and no database; again it writes only what is new; never into the node's own folder."""
    (folder / "keys").mkdir()
    (folder / "keys" / "receipt.key").write_text("00" * 32)
    attempts = list((folder / "attempts").iterdir())
    for path in attempts:
        (folder / "attempts" / f"attempt-{path.name[:8]}").mkdir()
        path.rename(folder / "attempts" / f"attempt-{path.name[:8]}" / path.name)
    stray = folder / "attempts" / "running" / f"{'0' * 64}.json.gz"
    stray.parent.mkdir()
    stray.write_bytes(gzip.compress(b"{}"))
    data = cli("receipt", "export", "given", "--state", "out", "--json", timeout=300).document["data"]
    assert (data["attempts"], data["arenas"], data["targets"], data["hotkey"]) == (4, 1, 1, VALIDATOR)
    given = tmp_path / "given"
    assert sorted(path.name for path in given.iterdir()) == ["arenas", "attempts", "ledger", "receipts", "targets"]
    assert not list(given.rglob(stray.name))
    again = cli("receipt", "export", "given", "--state", "out", "--json", timeout=300)
    assert (data["new"] > 0, again.document["data"]["new"]) == (True, 0)
    assert cli("weights", "recompute", "given", "--hotkey", VALIDATOR, timeout=300).code == 0
    small = cli("receipt", "export", "small", "--state", "out", "--without-attempts", "--json", timeout=300)
    assert small.document["data"]["attempts"] == 0
    assert refused(cli, "receipt", "export", "out/published", "--state", "out") == (6, "EXPORT_UNWRITABLE")
