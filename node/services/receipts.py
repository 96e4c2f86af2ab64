"""Signs receipts with the node's receipt key, and writes the files of those that the store holds.

Invariants
1. The key is made once, from the system's randomness, readable by its owner only; a key that others can read or that
   is damaged is refused, never replaced.
2. A receipt's file is written after its row (`node.store.receipt_outbox`), and nothing is signed that names a receipt
   before that one's file is on disk: whatever a kill leaves in the folder is signed for good, and names nothing that is
   missing. The same statement gives the same file.
3. What older releases left in `receipts/` without a row is no receipt, and is moved to `unlisted/` at start.
4. The public half lies beside the key as `receipt.pub`, for whoever checks receipts. That of a key that was replaced
   is kept as `receipt.<its first digits>.pub`, because older receipts verify under nothing else.
"""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Iterable
from pathlib import Path

import structlog
from nacl.utils import random

from config.canonical import is_digest
from config.errors import GradeError, HostError
from node.store.engine import StateReplacedError, Store
from node.store.layout import StateLayout, sync_folder, unwritable, write_durably
from node.store.receipt_outbox import SealedReceipt, mark_delivered, undelivered
from node.store.receipt_rows import LEDGER_KIND, receipt_digests
from scoring.dsse import Statement, public_key, sign, verify
from scoring.receipts import VerdictPredicate, read_predicate

_SEED_BYTES = 32
_TOLD = 8  # digests of missing files in one log line


class ReceiptBook:
    """The signing key and the folder of receipts. All methods block for one small file."""

    def __init__(self, layout: StateLayout, seed: bytes) -> None:
        self._layout = layout
        self._seed = seed

    @classmethod
    def open(cls, layout: StateLayout) -> ReceiptBook:
        """Load the key, or make it on the first start. Raises `HostError` (RECEIPT_KEY_UNUSABLE)."""
        path = layout.receipt_key
        try:
            if not path.exists():
                write_durably(path, random(_SEED_BYTES).hex().encode() + b"\n")
            if stat.S_IMODE(path.stat().st_mode) & 0o077:
                raise _unusable(path, "others can read it")
            seed = bytes.fromhex(path.read_text("ascii").strip())
        except (OSError, ValueError) as error:  # a failing write is a HostError of its own
            raise _unusable(path, str(error)) from error
        if len(seed) != _SEED_BYTES:
            raise _unusable(path, "it is no Ed25519 seed of 32 bytes")
        book = cls(layout, seed)
        _keep_public(path.with_suffix(".pub"), book.public_key.hex())
        return book

    @property
    def public_key(self) -> bytes:
        """The 32 public bytes that receipts verify under."""
        return public_key(self._seed)

    def seal(self, statement: Statement) -> SealedReceipt:
        """Sign `statement`; nothing is stored."""
        return SealedReceipt(statement.predicate_type.rpartition(":")[2], sign(statement, self._seed))

    def write(self, receipts: Iterable[SealedReceipt]) -> None:
        """Write the files of receipts that the store holds. Raises `HostError` (STATE_UNWRITABLE)."""
        for receipt in receipts:
            path = self._layout.ledger / receipt.digest if receipt.kind == LEDGER_KIND else self.path(receipt.digest)
            if not path.exists():
                write_durably(path, receipt.envelope, mode=0o644)

    def waived(self, verdicts: tuple[str, ...]) -> tuple[str, ...] | None:
        """Return the sandbox layers that were waived in any of the attempts behind these verdict receipts, sorted.

        None when a receipt is gone, or was signed by a key that was replaced since: then nobody here can say.
        """
        layers: set[str] = set()
        try:
            for digest in verdicts:
                statement = verify(self.path(digest).read_bytes(), [self.public_key])
                layers.update(read_predicate(statement, VerdictPredicate).environment.layers_waived)
        except (OSError, GradeError):
            return None
        return tuple(sorted(layers))

    def path(self, digest: str) -> Path:
        """Return where the receipt with that digest lies."""
        return self._layout.receipts / f"{digest}.json"


async def deliver(store: Store, book: ReceiptBook) -> None:
    """Write the files of all receipts that the store holds and that may have none. Raises `HostError`."""
    waiting = await store.read(undelivered)
    if waiting:
        await asyncio.to_thread(book.write, waiting)
        await store.write(mark_delivered, [receipt.digest for receipt in waiting])


async def deliver_or_tell(store: Store, book: ReceiptBook) -> None:
    """As `deliver`; a disk that takes no files is told, and the receipts wait for the next time."""
    try:
        await deliver(store, book)
    except StateReplacedError:
        raise
    except HostError as error:
        structlog.get_logger().warning("receipts.waiting", code=error.code, message=error.message)


async def compare_files(store: Store) -> tuple[int, int]:
    """Move the files out of `receipts/` that no row names, and tell of rows whose file is gone; return how many of
    either. Raises `HostError` (STATE_UNWRITABLE).

    The files are listed before the rows are read: a command that decides meanwhile writes the row before the file.
    """
    layout = store.layout
    files = await asyncio.to_thread(lambda: [*layout.receipts.glob("*.json"), *layout.ledger.glob("*")])
    listed, waiting = await store.read(receipt_digests), await store.read(undelivered)
    missing = listed - {path.stem for path in files} - {receipt.digest for receipt in waiting}
    if missing:
        structlog.get_logger().warning(
            "receipts.missing", count=len(missing), digests=sorted(missing)[:_TOLD],
            hint=f"restore {layout.receipts} and {layout.ledger} from a backup or an export: nothing makes them again",
        )
    strays = [path for path in files if path.parent == layout.receipts and path.stem not in listed]
    await asyncio.to_thread(_set_aside, layout, strays)
    return len(strays), len(missing)


def _set_aside(layout: StateLayout, strays: list[Path]) -> None:
    """Releases that wrote the file first left such a file when they were killed before the row."""
    try:
        for path in strays:
            layout.unlisted.mkdir(mode=0o700, exist_ok=True)
            path.replace(layout.unlisted / path.name)
        if strays:
            sync_folder(layout.receipts)
    except OSError as error:
        raise unwritable(layout.unlisted, error) from error
    if strays:
        structlog.get_logger().warning("receipts.unlisted", moved=len(strays), to=str(layout.unlisted))


def _keep_public(path: Path, text: str) -> None:
    try:
        former = path.read_text("ascii", "replace").strip() if path.exists() else ""
        if former and former != text:
            structlog.get_logger().warning("receipt_key.replaced", former=former, present=text)
            if is_digest(former):  # 64 hexadecimal digits
                path.replace(path.with_name(f"receipt.{former[:16]}.pub"))
    except OSError as error:
        raise _unusable(path, str(error)) from error
    if former != text:
        write_durably(path, text.encode() + b"\n", mode=0o644)


def _unusable(path: Path, reason: str) -> HostError:
    return HostError(
        "RECEIPT_KEY_UNUSABLE", f"the receipt key {path} cannot be used: {reason}",
        hint="restore it from a backup and give it mode 0600; without a backup, move it away to start a new key",
    )
