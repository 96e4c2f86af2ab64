"""The wallet: a key that signs, files that are closed, and no coldkey lying open."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from chain.wallet import create_wallet
from config.errors import WalletError
from config.settings import ChainSettings, Settings
from node.doctor.check import Finding, State, Subject
from node.doctor.wallet import judge_coldkey, judge_hotkey_file, look_wallet, require_hotkey


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings with an unencrypted wallet, as development chains have."""
    create_wallet(tmp_path, "validator", "default", seed="//validator")
    return Settings(chain=ChainSettings(wallet_path=str(tmp_path), wallet="validator"))


def found(settings: Settings) -> dict[str, Finding]:
    """Findings by name."""
    return {finding.name: finding for finding in look_wallet(Subject(settings))}


@pytest.mark.parametrize(
    ("finding", "state"),
    [
        (judge_hotkey_file(0o600, 5, 0o700, 5), State.PASS),
        (judge_hotkey_file(0o400, 5, 0o755, 5), State.PASS),
        (judge_hotkey_file(0o644, 5, 0o700, 5), State.WARN),
        (judge_hotkey_file(0o660, 5, 0o700, 5), State.WARN),
        (judge_hotkey_file(0o600, 5, 0o777, 5), State.WARN),
        (judge_hotkey_file(0o600, 0, 0o700, 5), State.WARN),
        (judge_coldkey(False, b""), State.PASS),
        (judge_coldkey(True, b'{"accountId": "0'), State.WARN),
        (judge_coldkey(True, b" \n{"), State.WARN),
        (judge_coldkey(True, b"$NACL\x00\x01"), State.PASS),
        (judge_coldkey(True, b""), State.PASS),
    ],
)
def test_values(finding: Finding, state: State) -> None:
    """Files that others can read or replace and an open coldkey warn with a fix."""
    assert finding.state is state
    assert bool(finding.fix) == (state is State.WARN)


def test_a_wallet_of_a_development_chain(settings: Settings) -> None:
    """The address is shown, nothing else of the key is, and the open coldkey is named."""
    lines = found(settings)
    assert [line.state for line in lines.values()] == [State.PASS, State.PASS, State.WARN]
    assert lines["wallet.hotkey"].seen.startswith("5")
    secret = (Path(settings.chain.wallet_path) / "validator/hotkeys/default").read_text()
    assert not any(word in line.seen for line in lines.values() for word in secret.split('"') if len(word) > 40
                   and word not in lines["wallet.hotkey"].seen)


def test_open_files_are_seen(settings: Settings) -> None:
    """The real mode of the file counts."""
    (Path(settings.chain.wallet_path) / "validator/hotkeys/default").chmod(0o644)
    assert found(settings)["wallet.permissions"].state is State.WARN


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"wallet": "nobody"}, "WALLET_NOT_FOUND"),
        ({"hotkey": "nobody"}, "HOTKEY_NOT_FOUND"),
        ({"wallet_path": "~nosuchuser/wallets"}, "WALLET_NOT_FOUND"),
        ({"wallet_path": "/dev/null/wallets"}, "WALLET_NOT_FOUND"),
    ],
)
def test_a_wallet_that_is_not_there(settings: Settings, change: dict[str, str], code: str) -> None:
    """What is missing is the node's own error, and what can still be looked at is."""
    broken = msgspec.structs.replace(settings, chain=msgspec.structs.replace(settings.chain, **change))
    line = found(broken)["wallet.hotkey"]
    assert (line.state, line.error.code if line.error else "") == (State.FAIL, code)
    with pytest.raises(WalletError):
        require_hotkey(broken)


def test_a_damaged_hotkey(settings: Settings) -> None:
    """A file that is no key fails, and its permissions are still judged."""
    (Path(settings.chain.wallet_path) / "validator/hotkeys/default").write_bytes(b"\x00\xff")
    lines = found(settings)
    assert (lines["wallet.hotkey"].state, lines["wallet.permissions"].state) == (State.FAIL, State.PASS)


def test_a_node_without_a_wallet_observes(settings: Settings) -> None:
    """No wallet on purpose is a warning that says what follows, and no key is looked for."""
    chain = msgspec.structs.replace(settings.chain, wallet="")
    (line,) = found(msgspec.structs.replace(settings, chain=chain)).values()
    assert line.state is State.WARN
    assert "observes" in line.seen


def test_a_signer_that_is_away_fails(settings: Settings, tmp_path: Path) -> None:
    """Where a signer is named, the wallet's files are not looked at."""
    chain = msgspec.structs.replace(settings.chain, signer_socket=str(tmp_path / "nobody.sock"))
    (line,) = found(msgspec.structs.replace(settings, chain=chain)).values()
    assert (line.state, line.error.code if line.error else "") == (State.FAIL, "SIGNER_UNREACHABLE")
