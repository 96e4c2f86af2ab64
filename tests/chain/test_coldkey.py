"""`chain/coldkey.py`: the key that pays."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from chain.coldkey import coldkey_address, is_address, is_encrypted, load_coldkey
from chain.wallet import address_of_seed, create_wallet
from config.errors import WalletError

PASSWORD = "a test's password"
LOCKED = base64.b64decode(  # the key //Ann//cold, encrypted by the ecosystem's own tools
    "JE5BQ0xe8NVhLZPpL4NLoGZedkIG8UalvLbuSdbllrUQpJdhyAKXVwJAEdoM6imCSOwL4oSLNgyBVh6/bQB20QV34Hp/N1K9bZXf"
    "1TsMK/+ixUHQDGuJmo4DvcMgedrlYkub+pq2wcxnxWIQyGZhXXm88pFf61+paQGRVtIttRmMv/4CXM8qR5naEUdclZtk/3toelTv"
    "6+Nu6BQHtRtO3uF4jHcSnTKCzsTPwufENDsJjVCRLD45xpA/1145OlTueqW26RxusRK31AXIuvHoI3u68XHea8yDt38jwkXS6ukJ"
    "ONX1DFwWYp4gEQ0Ia3rHfTd3gr7qAZ4i2HX5IItiDcXXtFuNJedNl9Hk+fKspy+pIqdvt7IFjYfomeVL3/Z7KaKSiov5t730jYf8"
    "sGgdox6u9liqYfOUDtFh4kSbQtFfdsoW6HhEHoeLcCwJBHmzli4fQAnNj5s5Z0ekwvl4txTpBUXDadDgf07qL8fA9TIgM+r5txKx"
    "4AKzVoMJEi+qTszG3n1o2h35DwH4VVMr/NQEHu40rTx5mPel8n+qpcffwdHLk9bm8l2+8+4iqNWgz50="
)


@pytest.fixture
def wallets(tmp_path: Path) -> Path:
    """A wallet `open` and a wallet `locked`, whose coldkey is encrypted."""
    for name in ("open", "locked"):
        create_wallet(tmp_path, name, "default", seed="//Ann")
    (tmp_path / "locked" / "coldkey").write_bytes(LOCKED)
    return tmp_path


def test_an_open_coldkey_signs(wallets: Path) -> None:
    """Without encryption nothing else is needed, and a password does no harm."""
    for password in (None, "unused"):
        signer = load_coldkey(wallets, "open", password)
        assert signer.ss58_address == address_of_seed("//Ann//cold") == coldkey_address(wallets, "open")
        assert len(signer.sign(b"x")) == 64
    assert not is_encrypted(wallets, "open")


@pytest.mark.timeout(600)  # decrypting is meant to be slow
def test_an_encrypted_coldkey_needs_its_password(wallets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The address is there without it; signing is not, and nothing is ever asked for."""
    monkeypatch.setattr("getpass.getpass", lambda *_: pytest.fail("a prompt"))
    assert is_encrypted(wallets, "locked")
    assert coldkey_address(wallets, "locked") == address_of_seed("//Ann//cold")
    for password, code in ((None, "COLDKEY_ENCRYPTED"), ("another", "COLDKEY_PASSWORD_WRONG")):
        with pytest.raises(WalletError) as caught:
            load_coldkey(wallets, "locked", password)
        assert caught.value.code == code
    assert load_coldkey(wallets, "locked", PASSWORD).ss58_address == address_of_seed("//Ann//cold")


@pytest.mark.parametrize("damage", ["missing", "garbage", "public only", "no wallet", "a folder"])
def test_bad_coldkeys_are_one_error(wallets: Path, damage: str) -> None:
    """A file that is not there, or no key, is an error that names its path."""
    path = wallets / "open" / "coldkey"
    path.unlink()
    if damage == "garbage":
        path.write_bytes(b"\xff\x00")
    elif damage == "public only":
        path.write_bytes((wallets / "open" / "coldkeypub.txt").read_bytes())
    elif damage == "a folder":
        path.mkdir()
    with pytest.raises(WalletError) as caught:
        load_coldkey(wallets, "none" if damage == "no wallet" else "open", None)
    expected = "COLDKEY_UNREADABLE" if damage in ("garbage", "public only") else "COLDKEY_NOT_FOUND"
    assert caught.value.code == expected
    assert "coldkey" in caught.value.message


@pytest.mark.parametrize(
    ("text", "good"),
    [(address_of_seed("//Ann"), True), ("", False), ("Ann", False), (address_of_seed("//Ann")[:-1] + "1", False),
     ("0x" + "00" * 32, False), (" " + address_of_seed("//Ann"), False)],
)
def test_addresses(text: str, good: bool) -> None:
    """An address is the one spelling of an account."""
    assert is_address(text) is good
