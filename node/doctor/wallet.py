"""The wallet: a hotkey that can sign, and files that nobody else can read; a signer process; or neither.

Invariants
1. Key files are opened by the chain room only; here their permissions are looked at, and whether a coldkey is open.
2. Nothing of a key is ever shown but its address.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from chain.signer import Signer
from chain.signer_client import SocketSigner
from chain.wallet import load_hotkey
from config.errors import CacheonError, WalletError
from config.settings import Settings
from node.doctor.check import Finding, Subject, failed, passed, settings_of, skipped, warned

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_WRITABLE = stat.S_IWGRP | stat.S_IWOTH


def require_signer(settings: Settings) -> Signer | None:
    """Return what signs for the node: a signer process, the hotkey's file, or (`chain.wallet` is "") nothing.

    Raises `WalletError`, and `NetworkError` (SIGNER_UNREACHABLE).
    """
    chain = settings.chain
    if chain.signer_socket:
        return SocketSigner.connect(chain.signer_socket, chain.netuid)
    return require_hotkey(settings) if chain.wallet else None


def require_hotkey(settings: Settings) -> Signer:
    """Load the node's hotkey from its file. Raises `WalletError`."""
    chain = settings.chain
    return load_hotkey(wallet_folder(settings), chain.wallet, chain.hotkey)


def wallet_folder(settings: Settings) -> Path:
    """Return the folder of wallets. Raises `WalletError` (WALLET_NOT_FOUND) when it lies in a home that is unknown."""
    try:
        return Path(settings.chain.wallet_path).expanduser()
    except RuntimeError as error:
        raise WalletError(
            "WALLET_NOT_FOUND", f"uid {os.geteuid()} has no home folder, so {settings.chain.wallet_path} means nothing",
            hint="set `chain.wallet_path` to an absolute path",
        ) from error


def judge_hotkey_file(mode: int, owner: int, folder_mode: int, uid: int) -> Finding:
    """Judge who can read or replace the hotkey file."""
    name = "wallet.permissions"
    if mode & _OTHERS:
        return warned(name, f"the hotkey file has mode {mode:04o}: others can use it", "chmod 600 the hotkey file")
    if folder_mode & _WRITABLE:
        return warned(
            name, f"the folder of hotkeys has mode {folder_mode:04o}: others can replace the key",
            "chmod 700 the wallet and its `hotkeys` folder",
        )
    if owner != uid:
        return warned(
            name, f"the hotkey file belongs to uid {owner}, this is uid {uid}", "give it to the user that runs the node"
        )
    return passed(name, f"mode {mode:04o}, owner uid {owner}")


def judge_coldkey(present: bool, beginning: bytes) -> Finding:
    """Judge a coldkey on this machine by the first bytes of its file; b"" when they cannot be read."""
    name = "wallet.coldkey"
    if not present:
        return passed(name, "no coldkey on this machine; none is needed")
    if beginning.lstrip().startswith(b"{"):  # an open key file is a JSON object, an encrypted one never is
        return warned(
            name, "an unencrypted coldkey lies on this machine; the node never needs it",
            "move the coldkey off this machine, and treat it as known to whoever was here",
        )
    what = "an encrypted coldkey" if beginning else "a coldkey that this user cannot read"
    return passed(name, f"{what} lies on this machine; none is needed")


def look_wallet(subject: Subject) -> tuple[Finding, ...]:
    """The hotkey signs, and its files are closed."""
    settings = settings_of(subject)
    if settings.chain.signer_socket or not settings.chain.wallet:
        return (_look_signer(settings),)
    try:
        folder = wallet_folder(settings) / settings.chain.wallet
        hotkey = passed("wallet.hotkey", f"{require_hotkey(settings).ss58_address} can sign")
    except CacheonError as error:
        hotkey = failed("wallet.hotkey", error)
        if error.code == "WALLET_NOT_FOUND":
            return (hotkey,)
    return hotkey, _look_permissions(folder / "hotkeys" / settings.chain.hotkey), _look_coldkey(folder / "coldkey")


def _look_signer(settings: Settings) -> Finding:
    try:
        signer = require_signer(settings)
    except CacheonError as error:
        return failed("wallet.hotkey", error)
    if signer is None:
        return warned(
            "wallet.hotkey", "no wallet is named: the node observes and judges, and publishes no weights",
            "set `chain.signer_socket`, or `chain.wallet` and `chain.hotkey`, if it should publish",
        )
    return passed("wallet.hotkey", f"the signer at {settings.chain.signer_socket} signs for {signer.ss58_address}")


def _look_permissions(path: Path) -> Finding:
    try:
        file, folder = path.stat(), path.parent.stat()
    except OSError:
        return skipped("wallet.permissions", "there is no hotkey file to look at")
    return judge_hotkey_file(stat.S_IMODE(file.st_mode), file.st_uid, stat.S_IMODE(folder.st_mode), os.geteuid())


def _look_coldkey(path: Path) -> Finding:
    try:
        if not path.is_file():
            return judge_coldkey(False, b"")
        with path.open("rb") as file:
            return judge_coldkey(True, file.read(16))
    except OSError:
        return judge_coldkey(True, b"")
