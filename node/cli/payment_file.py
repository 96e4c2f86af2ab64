"""Payments that this machine has signed, one small file each, so that none is ever made twice.

Invariants
1. A file is written completely and durably, or not at all, before the payment that it holds is submitted.
2. One process at a time pays from one folder; another is refused at once.
3. A file that cannot be read stops everything: whether money moved is not guessed.
4. Files are closed to other users. They hold no key; whoever has one can only hand in the very payment it holds.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from chain.paying import SignedPayment
from config.errors import HostError
from node.store.layout import write_durably


class PaymentFile:
    """The record of one submission's payment; a `chain.paying.PaymentRecord`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> SignedPayment | None:
        """Return the payment on record, or None. Raises `HostError` (PAYMENT_RECORD_UNREADABLE)."""
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=SignedPayment, strict=True)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as error:
            raise HostError(
                "PAYMENT_RECORD_UNREADABLE", f"the record of a payment at {self.path} cannot be read: {error}",
                hint="do not pay again before you know what became of it: its hash may be on a block explorer",
            ) from error

    def write(self, payment: SignedPayment) -> None:
        """Write the payment down. Raises `HostError` (PAYMENT_RECORD_UNWRITABLE)."""
        try:
            write_durably(self.path, msgspec.json.format(msgspec.json.encode(payment), indent=2) + b"\n")
        except (OSError, HostError) as error:
            raise HostError(
                "PAYMENT_RECORD_UNWRITABLE", f"the payment cannot be written down at {self.path}: {error}",
                hint="make room, or name another folder with `--state DIR`",
            ) from error

    def discard(self) -> None:
        """Forget the payment."""
        self.path.unlink(missing_ok=True)


@contextmanager
def payments_of(state: Path, genesis_hash: str, netuid: int, hotkey: str, content_hash: str) -> Iterator[PaymentFile]:
    """Hold the folder of payments and yield the file of one submission.

    Raises `HostError` (PAYMENT_RECORD_UNWRITABLE, PAYMENT_RUNNING).
    """
    folder = state / "payments"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise HostError(
            "PAYMENT_RECORD_UNWRITABLE", f"payments cannot be written down in {folder}: {error.strerror or error}",
            hint="name another folder with `--state DIR`",
        ) from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise HostError(
                "PAYMENT_RUNNING", f"another process is paying from {folder} right now",
                hint="wait until it is done; it knows its own payment, and so does the next run",
            ) from error
        yield PaymentFile(folder / f"{genesis_hash.removeprefix('0x')[:16]}-{netuid}-{hotkey}-{content_hash}.json")
    finally:
        os.close(lock)
