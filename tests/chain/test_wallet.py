"""Keys in the ecosystem's layout."""

from __future__ import annotations

import importlib
import os
import stat
from pathlib import Path

import pytest

from chain.blocks import BlockRef
from chain.metagraph import Metagraph, Neuron
from chain.wallet import address_of_seed, create_wallet, load_hotkey, require_registered
from config.errors import ExitCode, WalletError


def test_a_created_wallet_is_the_ecosystems(tmp_path: Path) -> None:
    """The SDK's own wallet class reads the same keys from the same files."""
    files = create_wallet(tmp_path, "val", "hot", "//Val")
    wallet = importlib.import_module("bittensor").Wallet("val/hot", path=str(tmp_path))
    assert wallet.hotkey.ss58_address == files.hotkey_address == address_of_seed("//Val")
    assert wallet.coldkeypub.ss58_address == files.coldkey_address
    signer = load_hotkey(tmp_path, "val", "hot")
    assert signer.ss58_address == files.hotkey_address
    assert wallet.hotkey.verify(b"message", signer.sign(b"message"))


def test_key_files_are_private(tmp_path: Path) -> None:
    """Only the owner can read private keys, whatever the umask."""
    create_wallet(tmp_path, "val", "hot")
    for name in ("coldkey", "hotkeys/hot"):
        assert stat.S_IMODE((tmp_path / "val" / name).stat().st_mode) == 0o600


def test_creating_again_keeps_equal_keys_and_refuses_others(tmp_path: Path) -> None:
    """The same seed is idempotent; another key is never overwritten."""
    first = create_wallet(tmp_path, "val", "hot", "//Val")
    assert create_wallet(tmp_path, "val", "hot", "//Val") == first
    with pytest.raises(WalletError) as caught:
        create_wallet(tmp_path, "val", "hot", "//Other")
    assert caught.value.code == "WALLET_EXISTS"
    (tmp_path / "val" / "hotkeys" / "hot").write_text("garbage")
    with pytest.raises(WalletError) as caught:
        create_wallet(tmp_path, "val", "hot", "//Val")
    assert caught.value.code == "WALLET_EXISTS"


def test_random_wallets_differ(tmp_path: Path) -> None:
    """Without a seed the keys are fresh."""
    assert create_wallet(tmp_path, "a", "hot") != create_wallet(tmp_path, "b", "hot")


def test_a_malformed_seed_and_an_unwritable_place_are_named(tmp_path: Path) -> None:
    """Neither leaves an error of the key library."""
    with pytest.raises(WalletError) as caught:
        create_wallet(tmp_path, "val", "hot", "not a seed")
    assert caught.value.code == "WALLET_SEED_INVALID"
    (tmp_path / "file").write_text("")
    with pytest.raises(WalletError) as caught:
        create_wallet(tmp_path / "file", "val", "hot")
    assert caught.value.code == "WALLET_UNWRITABLE"


def test_missing_things_are_named_by_path(tmp_path: Path) -> None:
    """The wallet first, then the hotkey, each with its path and the chain exit code."""
    with pytest.raises(WalletError) as caught:
        load_hotkey(tmp_path, "val", "hot")
    assert caught.value.code == "WALLET_NOT_FOUND"
    assert caught.value.exit_code is ExitCode.CHAIN
    assert str(tmp_path / "val") in caught.value.message
    create_wallet(tmp_path, "val", "hot")
    with pytest.raises(WalletError) as caught:
        load_hotkey(tmp_path, "val", "cold-feet")
    assert caught.value.code == "HOTKEY_NOT_FOUND"
    assert str(tmp_path / "val" / "hotkeys" / "cold-feet") in caught.value.message


@pytest.mark.parametrize("content", [b"", b"garbage", b'{"ss58Address": 7}', b"\xff\x00"])
def test_a_damaged_hotkey_is_unreadable(tmp_path: Path, content: bytes) -> None:
    """Whatever the file holds, the error is ours."""
    create_wallet(tmp_path, "val", "hot")
    (tmp_path / "val" / "hotkeys" / "hot").write_bytes(content)
    with pytest.raises(WalletError) as caught:
        load_hotkey(tmp_path, "val", "hot")
    assert caught.value.code == "HOTKEY_UNREADABLE"


def test_a_closed_hotkey_is_told_from_a_damaged_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When permissions are in the way the hint is about permissions, as which user, and not about making a key."""
    create_wallet(tmp_path, "miner", "default", seed="//miner")

    def closed(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_dir", closed)
    with pytest.raises(WalletError) as caught:
        load_hotkey(tmp_path, "miner", "default")
    assert caught.value.code == "HOTKEY_UNREADABLE"
    assert f"uid {os.geteuid()}" in caught.value.hint
    assert "btcli" not in caught.value.hint


def test_a_public_key_cannot_sign(tmp_path: Path) -> None:
    """A file with a public key only is not a hotkey."""
    create_wallet(tmp_path, "val", "hot")
    public = (tmp_path / "val" / "coldkeypub.txt").read_bytes()
    (tmp_path / "val" / "hotkeys" / "hot").write_bytes(public)
    with pytest.raises(WalletError, match="no private key"):
        load_hotkey(tmp_path, "val", "hot")


def test_an_encrypted_hotkey_is_refused_without_asking(tmp_path: Path) -> None:
    """No prompt, ever: the error says what to do."""
    create_wallet(tmp_path, "val", "hot", "//Val")
    path = tmp_path / "val" / "hotkeys" / "hot"
    core = importlib.import_module("bittensor_core")
    path.write_bytes(bytes(core.encrypt_keyfile_data(path.read_bytes(), "secret")))
    with pytest.raises(WalletError) as caught:
        load_hotkey(tmp_path, "val", "hot")
    assert caught.value.code == "HOTKEY_ENCRYPTED"


def test_registration_is_checked_against_a_metagraph() -> None:
    """A registered hotkey gives its neuron, another one the error."""
    neuron = Neuron(0, "known", "cold", False, 1, 0)
    graph = Metagraph(2, BlockRef(9, "0x"), (neuron,), "", "")
    assert require_registered(graph, "known") is neuron
    with pytest.raises(WalletError) as caught:
        require_registered(graph, "unknown")
    assert caught.value.code == "HOTKEY_NOT_REGISTERED"
    assert "block 9" in caught.value.message


def test_a_coldkey_is_never_used_as_a_hotkey(tmp_path: Path) -> None:
    """The wallet's own coldkey under a hotkey's name is refused, whatever put it there."""
    create_wallet(tmp_path, "val", "hot", "//Val")
    (tmp_path / "val" / "hotkeys" / "wrong").write_bytes((tmp_path / "val" / "coldkey").read_bytes())
    with pytest.raises(WalletError) as caught:
        load_hotkey(tmp_path, "val", "wrong")
    assert caught.value.code == "HOTKEY_IS_COLDKEY"
    (tmp_path / "val" / "hotkeys" / "public").write_bytes((tmp_path / "val" / "coldkeypub.txt").read_bytes())
    with pytest.raises(WalletError) as caught:
        load_hotkey(tmp_path, "val", "public")
    assert caught.value.code == "HOTKEY_UNREADABLE"


@pytest.mark.parametrize(
    ("wallet", "hotkey"), [("val", "../coldkey"), ("../val", "hot"), ("..", "hot"), ("val/hot", "x")]
)
def test_paths_are_no_names(tmp_path: Path, wallet: str, hotkey: str) -> None:
    """A name leads to no other file than the wallet's own hotkeys."""
    create_wallet(tmp_path, "val", "hot", "//Val")
    with pytest.raises(WalletError) as caught:
        load_hotkey(tmp_path, wallet, hotkey)
    assert caught.value.code == "WALLET_NAME_INVALID"
