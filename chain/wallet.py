"""Keys in the ecosystem's own layout: `<path>/<wallet>/hotkeys/<hotkey>`, `coldkey`, `coldkeypub.txt`.

Invariants
1. The files are the SDK's; wallets made by the ecosystem's tools work here and the other way round.
2. Nothing ever prompts. An encrypted hotkey is an error that says so.
3. A missing thing is named by its path, the wallet before the hotkey.
4. `create_wallet` writes unencrypted keys. It serves development chains and tests.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

import msgspec

from chain.blocks import BlockRef
from chain.metagraph import Metagraph, Neuron
from chain.signer import Signer
from config.errors import WalletError

_HINT = "Check `chain.wallet_path`, `chain.wallet` and `chain.hotkey`, or create the key with `btcli wallet create`."


class WalletFiles(msgspec.Struct, frozen=True):
    """A wallet on disk: its folder and the addresses of its two keys."""

    directory: str
    hotkey_address: str
    coldkey_address: str


def load_hotkey(wallet_path: str | Path, wallet: str, hotkey: str) -> Signer:
    """Return the signer of a hotkey file.

    Raises `WalletError`: WALLET_NAME_INVALID, WALLET_NOT_FOUND, HOTKEY_NOT_FOUND, HOTKEY_ENCRYPTED, HOTKEY_UNREADABLE,
    HOTKEY_IS_COLDKEY.
    """
    for name in (wallet, hotkey):
        if "/" in name or name in (".", ".."):
            raise WalletError(
                "WALLET_NAME_INVALID", f"{name!r} is no name of a wallet or a hotkey.",
                hint="Give names, as `btcli wallet list` shows them, and the folder with `--wallet-path`.",
            )
    directory = Path(wallet_path).expanduser() / wallet
    path = directory / "hotkeys" / hotkey
    try:
        if not wallet or not directory.is_dir():
            raise WalletError("WALLET_NOT_FOUND", f"There is no wallet at {directory}.", hint=_HINT)
        if not hotkey or not path.is_file():
            raise WalletError("HOTKEY_NOT_FOUND", f"There is no hotkey at {path}.", hint=_HINT)
    except OSError as error:  # a folder on the way is closed to this user
        raise _unreadable(path, error.strerror or str(error), error) from error
    try:
        keyfile = importlib.import_module("bittensor.keyfiles").Keyfile(path, hotkey)
        encrypted = keyfile.is_encrypted()
        keypair: Any = None if encrypted else keyfile.get_keypair()
    except Exception as error:
        # The key library raises its own and built-in errors for damaged files; none of them may leave this room.
        raise _unreadable(path, str(error), error) from error
    if encrypted:
        raise WalletError(
            "HOTKEY_ENCRYPTED",
            f"The hotkey at {path} is encrypted, and this program never asks for a password.",
            hint="Give the node an unencrypted hotkey of its own; the coldkey is not needed.",
        )
    if not _can_sign(keypair):
        raise _unreadable(path, "it holds no private key")
    if keypair.ss58_address == _coldkey_address(directory / "coldkeypub.txt"):
        raise WalletError(
            "HOTKEY_IS_COLDKEY", f"The file {path} holds the wallet's coldkey, where its hotkey is expected.",
            hint="Take it off this machine: whoever has the coldkey owns everything. Make a hotkey of its own.",
        )
    signer: Signer = keypair
    return signer


def create_wallet(wallet_path: str | Path, wallet: str, hotkey: str, seed: str | None = None) -> WalletFiles:
    """Write an unencrypted wallet and return its addresses.

    `seed` is a key URI such as `//Alice`; the hotkey is `<seed>` itself and the coldkey `<seed>//cold`, so the same
    seed gives the same keys. Without one the keys are random. Existing equal keys are left alone.

    Raises `WalletError` (WALLET_EXISTS) instead of replacing another key; WALLET_UNWRITABLE,
    WALLET_SEED_INVALID.
    """
    core: Any = importlib.import_module("bittensor_core")
    base = core.Keypair.generate_mnemonic(12) if seed is None else seed
    try:
        hot, cold = core.Keypair.create_from_uri(base), core.Keypair.create_from_uri(f"{base}//cold")
    except ValueError as error:
        raise WalletError("WALLET_SEED_INVALID", f"The seed is not a key URI: {error}.") from error
    directory = Path(wallet_path).expanduser() / wallet
    public = core.Keypair(ss58_address=cold.ss58_address, public_key=bytes(cold.public_key))
    try:
        _write(directory / "hotkeys" / hotkey, hot)
        _write(directory / "coldkey", cold)
        _write(directory / "coldkeypub.txt", public)
    except OSError as error:
        raise WalletError("WALLET_UNWRITABLE", f"The wallet at {directory} cannot be written: {error}.") from error
    return WalletFiles(str(directory), str(hot.ss58_address), str(cold.ss58_address))


def signer_of_seed(seed: str) -> Signer:
    """Return the signer of a key URI such as `//Alice`: for development chains."""
    signer: Signer = importlib.import_module("bittensor_core").Keypair.create_from_uri(seed)
    return signer


def address_of_seed(seed: str) -> str:
    """Return the hotkey address that `create_wallet` gives for `seed`."""
    return str(signer_of_seed(seed).ss58_address)


def require_registered(metagraph: Metagraph, hotkey: str) -> Neuron:
    """Return the neuron of `hotkey`; raises `WalletError` (HOTKEY_NOT_REGISTERED)."""
    neuron = metagraph.by_hotkey(hotkey)
    if neuron is None:
        raise not_registered(hotkey, metagraph.netuid, metagraph.block)
    return neuron


def not_registered(hotkey: str, netuid: int, block: BlockRef) -> WalletError:
    """Return the error for a hotkey that a subnet does not know at `block`."""
    return WalletError(
        "HOTKEY_NOT_REGISTERED",
        f"Hotkey {hotkey} is not registered on subnet {netuid} at block {block.number}.",
        hint="Register it (`btcli subnet register`), or check `chain.hotkey` and `chain.netuid`.",
    )


def _write(path: Path, keypair: Any) -> None:
    keyfiles = importlib.import_module("bittensor.keyfiles")
    keyfile = keyfiles.Keyfile(path, path.name)
    if not keyfile.exists_on_device():
        keyfile.set_keypair(keypair, encrypt=False, overwrite=False)
        return
    try:
        same = not keyfile.is_encrypted() and keyfile.get_keypair().ss58_address == keypair.ss58_address
    except (ValueError, keyfiles.KeyfileError):
        same = False
    if not same:
        raise WalletError("WALLET_EXISTS", f"{path} holds another key and is not replaced.")


def _coldkey_address(path: Path) -> str:
    try:
        found = msgspec.json.decode(path.read_bytes())
        return str(found["ss58Address"])
    except (OSError, msgspec.MsgspecError, KeyError, TypeError):
        return ""  # there need not be one


def _can_sign(keypair: Any) -> bool:
    try:
        return bool(keypair.sign(b""))
    except ValueError:  # what the key library raises for a public-only key
        return False


def _unreadable(path: Path, why: str, error: Exception | None = None) -> WalletError:
    closed = isinstance(error, PermissionError) or (error is not None and isinstance(error.__cause__, PermissionError))
    way_in = f"Let uid {os.geteuid()}, as which this runs, read the file and enter the folders above it."
    hint = way_in if closed else _HINT
    return WalletError("HOTKEY_UNREADABLE", f"The hotkey at {path} cannot be read: {why}.", hint=hint)
