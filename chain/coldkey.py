"""The key that holds a miner's money, in the ecosystem's own files: `<path>/<wallet>/coldkey` and `coldkeypub.txt`.

Invariants
1. Nothing here prompts; a password is handed in or an error says that one is needed.
2. The address is read from the public file, so that nobody has to decrypt anything to look at a balance.
3. Errors of the key library do not leave this module.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from chain.codec import SS58_FORMAT
from chain.signer import Signer
from config.errors import WalletError

_HINT = "Check `--wallet` and `--wallet-path`, or create the keys with `btcli wallet create`."


def is_address(text: str) -> bool:
    """Say whether `text` is an SS58 address of an account."""
    core: Any = importlib.import_module("bittensor_core")
    try:
        return bool(core.ss58_encode(bytes(core.ss58_decode(text)), SS58_FORMAT) == text)
    except (ValueError, TypeError):
        return False


def coldkey_address(wallet_path: str | Path, wallet: str) -> str:
    """Return the address of a wallet's coldkey.

    Raises `WalletError`: COLDKEY_NOT_FOUND, COLDKEY_UNREADABLE.
    """
    path = _directory(wallet_path, wallet) / "coldkeypub.txt"
    _require_file(path)
    return str(_open(path, None).ss58_address)


def is_encrypted(wallet_path: str | Path, wallet: str) -> bool:
    """Say whether a wallet's coldkey needs a password. Raises `WalletError`: COLDKEY_NOT_FOUND, COLDKEY_UNREADABLE."""
    path = _directory(wallet_path, wallet) / "coldkey"
    _require_file(path)
    try:
        return bool(_keyfile(path).is_encrypted())
    except Exception as error:
        raise _unreadable(path, str(error)) from error


def load_coldkey(wallet_path: str | Path, wallet: str, password: str | None) -> Signer:
    """Return the signer of a wallet's coldkey; decrypting one takes several seconds of work.

    Raises `WalletError`: COLDKEY_NOT_FOUND, COLDKEY_ENCRYPTED (no password given), COLDKEY_PASSWORD_WRONG,
    COLDKEY_UNREADABLE.
    """
    path = _directory(wallet_path, wallet) / "coldkey"
    if is_encrypted(wallet_path, wallet) and password is None:
        raise WalletError(
            "COLDKEY_ENCRYPTED", f"The coldkey at {path} is encrypted, and no password was given.",
            hint="Give `--password-env NAME` or `--password-file FILE`, or run the command on a terminal.",
        )
    keypair = _open(path, password)
    try:
        keypair.sign(b"")
    except ValueError as error:  # what the key library raises for a public-only key
        raise _unreadable(path, "it holds no private key") from error
    signer: Signer = keypair
    return signer


def _directory(wallet_path: str | Path, wallet: str) -> Path:
    return Path(wallet_path).expanduser() / wallet


def _require_file(path: Path) -> None:
    try:
        found = bool(path.parent.name) and path.is_file()
    except OSError as error:  # a folder on the way is closed to this user
        raise _unreadable(path, error.strerror or str(error)) from error
    if not found:
        raise WalletError("COLDKEY_NOT_FOUND", f"There is no coldkey at {path}.", hint=_HINT)


def _keyfile(path: Path) -> Any:
    return importlib.import_module("bittensor.keyfiles").Keyfile(path, path.name)


def _open(path: Path, password: str | None) -> Any:
    wrong = importlib.import_module("bittensor_core").WrongPasswordError
    try:
        return _keyfile(path).get_keypair(password)
    except wrong as error:
        raise WalletError("COLDKEY_PASSWORD_WRONG", f"The password does not open the coldkey at {path}.") from error
    except Exception as error:
        # The key library raises its own and built-in errors for damaged files; none of them may leave this room.
        raise _unreadable(path, str(error)) from error


def _unreadable(path: Path, why: str) -> WalletError:
    return WalletError("COLDKEY_UNREADABLE", f"The coldkey at {path} cannot be read: {why}.", hint=_HINT)
