"""A folder of published receipts, read and verified: a node's state folder, or what `cacheon receipt export` wrote.

`receipts/<digest>.json`, `ledger/<digest>`; behind them, where they are published, `attempts/**/<digest>.json.gz`,
`arenas/<digest>.toml` and `targets/<digest>.json`. No database is opened.

Invariants
1. A file is what its name says, byte for byte, or the whole folder is refused and the file named.
2. A receipt is believed under a key that the caller names or that the one hotkey of the folder vouches for.
3. A ledger that its node removed while the folder was read is not in it: a newer one was there before.
4. A folder may be hostile: only regular files are opened, without waiting, and never more is read, or unpacked, than
   the largest good file of its kind has.
"""

from __future__ import annotations

import hashlib
import os
import stat
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from chain.key_binding import verify_binding
from config.arena import Arena, parse_arena
from config.canonical import CanonicalJsonError, is_digest, read_json
from config.errors import ConfigurationError, GradeError, NotFoundError, SourceLocation
from config.key_binding import KEY_BINDING_V1, KeyBinding
from config.limits import EVIDENCE, RECEIPT_BYTES
from config.statement import open_envelope, read_statement
from scoring.published import Published, Receipt, gather, read_receipt

DOCUMENT_BYTES = 1024 * 1024  # an arena or a target
KEY_BYTES = 1024
_GZIP_WINDOW = 31  # zlib's word for "expect a gzip header"


@dataclass(frozen=True)
class Anchor:
    """What a folder is believed under: `keys` (32 bytes each), whose they should be ("" when that was not said), and
    how that is known. Without `bindings` nobody vouches that they are."""

    keys: tuple[bytes, ...]
    hotkey: str
    how: str
    bindings: tuple[KeyBinding, ...] = ()

    @property
    def vouched(self) -> bool:
        """Say whether a hotkey vouches for every key."""
        return {bytes.fromhex(one.receipt_key) for one in self.bindings} >= set(self.keys)


@dataclass(frozen=True)
class ReceiptFolder:
    """The envelopes of a folder by digest, unverified, and the key bindings among them, verified."""

    root: Path
    envelopes: dict[str, bytes]
    bindings: dict[str, KeyBinding]
    paths: dict[str, Path] = field(default_factory=dict)

    def anchor(self, *, key: str | None = None, hotkey: str | None = None) -> Anchor:
        """Return the keys to believe: `key` (hex), or those that `hotkey`, or the folder's only hotkey, vouches for.

        Raises `ConfigurationError` (RECEIPT_KEY_NOT_HEX) and `GradeError` (KEY_BINDING_MISSING, KEY_BINDING_FOREIGN,
        RECEIPTS_MIXED).
        """
        if key is not None:
            own = tuple(one for one in self.bindings.values() if one.receipt_key == key and one.hotkey == hotkey)
            how = f"the key that was named; hotkey {hotkey} vouches for it" if own else "the key that was named"
            return Anchor((key_bytes(key),), hotkey or "", how, own)
        hotkeys = sorted({one.hotkey for one in self.bindings.values()})
        if hotkey is None and len(hotkeys) > 1:
            raise GradeError("RECEIPTS_MIXED", f"hotkeys {', '.join(hotkeys)} vouch for keys in {self.root}")
        if hotkey is not None and hotkeys and hotkeys != [hotkey]:
            raise GradeError(
                "KEY_BINDING_FOREIGN" if hotkey not in hotkeys else "RECEIPTS_MIXED",
                f"the receipts are vouched for by {', '.join(hotkeys)}, and {hotkey} was asked for",
            )
        own = tuple(self.bindings[name] for name in sorted(self.bindings))
        if own:
            how = f"hotkey {hotkeys[0]} vouches for {'it' if len(own) == 1 else 'them'}"
            return Anchor(tuple(bytes.fromhex(one.receipt_key) for one in own), hotkeys[0], how, own)
        kept = tuple(self._kept_keys())
        if kept and hotkey is None:
            return Anchor(kept, "", "the key files of this state folder")
        raise GradeError(
            "KEY_BINDING_MISSING", f"no hotkey vouches for a receipt key in {self.root}",
            hint="give the validator's receipt key with --key",
        )

    def published(self, anchor: Anchor) -> Published:
        """Verify every receipt and return them as one set. Raises `GradeError`."""
        return self.together(self.receipts(anchor), anchor)

    def together(self, receipts: Iterable[Receipt], anchor: Anchor) -> Published:
        """Return receipts that were verified as one set of one validator. Raises `GradeError`."""
        found = gather(receipts)
        named = {(one.policy.validator_hotkey, one.netuid) for one in found.weights.values()}
        if found.ledger is not None:
            named.add((found.ledger.hotkey, found.ledger.netuid))
        for binding in anchor.bindings:
            strange = named - {(binding.hotkey, binding.netuid)}
            if strange or (found.ledger is not None and found.ledger.genesis_hash != binding.genesis_hash):
                who = ", ".join(f"{hotkey} on subnet {netuid}" for hotkey, netuid in sorted(strange)) or "another chain"
                raise GradeError(
                    "RECEIPTS_MIXED", f"the key is that of {binding.hotkey} on subnet {binding.netuid}, the receipts "
                    f"are of {who}",
                )
        if anchor.hotkey and named and {hotkey for hotkey, _ in named} != {anchor.hotkey}:
            raise GradeError("RECEIPTS_MIXED", f"the receipts are not those of {anchor.hotkey}")
        return found

    def receipts(self, anchor: Anchor) -> Iterator[Receipt]:
        """Yield every receipt that is no key binding, verified. Raises `GradeError` that names the file."""
        for digest, data in self.envelopes.items():
            if digest in self.bindings:
                continue
            try:
                yield read_receipt(data, digest, anchor.keys)
            except GradeError as error:
                raise GradeError(
                    error.code, error.message, location=SourceLocation(str(self.paths[digest])), hint=error.hint,
                    blame=error.blame,
                ) from error

    def attempt(self, digest: str) -> bytes | None:
        """Return the canonical bytes of an attempt file, or None when it is not here."""
        path = self._attempts.get(digest)
        return None if path is None else _inflate(path)

    @cached_property
    def _attempts(self) -> dict[str, Path]:
        """The attempt files by digest, in the folder itself or, as a node keeps them, in folders of their own."""
        folder = self.root / "attempts"
        files = sorted([*folder.glob("*.json.gz"), *folder.glob("*/*.json.gz")], reverse=True)
        return {path.name.removesuffix(".json.gz"): path for path in files}

    def arena(self, digest: str) -> Arena | None:
        """Return an arena of the folder, or None. Raises `GradeError` (RECEIPT_DIGEST_DIFFERS)."""
        path = self.root / "arenas" / f"{digest}.toml"
        if not os.path.lexists(path):
            return None
        try:
            arena = parse_arena(_read_regular(path, DOCUMENT_BYTES), str(path))
        except ConfigurationError as error:
            raise _changed(path) from error
        if arena.digest != digest:
            raise _changed(path)
        return arena

    def target(self, digest: str) -> dict[str, object] | None:
        """Return a target document of the folder, or None. Raises `GradeError` (RECEIPT_DIGEST_DIFFERS)."""
        path = self.root / "targets" / f"{digest}.json"
        if not os.path.lexists(path):
            return None
        try:
            document = read_json(_read_regular(path, DOCUMENT_BYTES), require_canonical=True)
        except CanonicalJsonError as error:
            raise _changed(path) from error
        return document if isinstance(document, dict) else {}

    def _kept_keys(self) -> Iterator[bytes]:
        for path in sorted((self.root / "keys").glob("receipt*.pub")):
            text = _read_regular(path, KEY_BYTES).decode("ascii", "replace").strip()
            if is_digest(text):
                yield bytes.fromhex(text)


def open_folder(folder: str | Path) -> ReceiptFolder:
    """Read a folder's receipts and ledgers.

    Raises `NotFoundError` (RECEIPT_NOT_FOUND) and `GradeError` (RECEIPT_DIGEST_DIFFERS, RECEIPT_UNREADABLE,
    RECEIPT_MALFORMED, KEY_BINDING_FORGED).
    """
    root = Path(folder)
    if not (root / "receipts").is_dir():
        raise NotFoundError(
            "RECEIPT_NOT_FOUND", f"{root} has no folder `receipts`",
            hint="give a folder that `cacheon receipt export` wrote, or a node's state folder",
        )
    envelopes: dict[str, bytes] = {}
    paths: dict[str, Path] = {}
    for path in sorted([*(root / "receipts").glob("*"), *(root / "ledger").glob("*")]):
        if path.name.startswith("."):
            continue  # a write that is under way
        name = path.name.removesuffix(".json")
        if not is_digest(name):
            raise _unreadable(path, "it is not named by a digest")
        try:
            envelopes[name] = read_named(path, name)
        except GradeError:
            if os.path.lexists(path):
                raise
            continue
        paths[name] = path
    bindings: dict[str, KeyBinding] = {}
    for name, data in envelopes.items():
        try:
            if read_statement(open_envelope(data).payload).predicate_type == KEY_BINDING_V1:
                bindings[name] = verify_binding(data)
        except GradeError as error:
            raise GradeError(error.code, error.message, location=SourceLocation(str(paths[name]))) from error
    return ReceiptFolder(root, envelopes, bindings, paths)


def key_bytes(text: str) -> bytes:
    """Return a receipt key that was given as text. Raises `ConfigurationError` (RECEIPT_KEY_NOT_HEX)."""
    if not is_digest(text):
        raise ConfigurationError(
            "RECEIPT_KEY_NOT_HEX", "the key is not 64 lower-case hexadecimal characters",
            hint="give the validator's 32-byte Ed25519 public key",
        )
    return bytes.fromhex(text)


def read_named(path: Path, digest: str) -> bytes:
    """Return the bytes of a file that is named by their digest. Raises `GradeError` (RECEIPT_DIGEST_DIFFERS,
    RECEIPT_UNREADABLE)."""
    data = _read_regular(path, RECEIPT_BYTES)
    if hashlib.sha256(data).hexdigest() != digest:
        raise _changed(path)
    return data


def _changed(path: Path) -> GradeError:
    return GradeError(
        "RECEIPT_DIGEST_DIFFERS", f"{path.name} is not the file that its name says", location=SourceLocation(str(path))
    )


def _unreadable(path: Path, why: str) -> GradeError:
    return GradeError("RECEIPT_UNREADABLE", f"{path} cannot be read: {why}", location=SourceLocation(str(path)))


def _inflate(path: Path) -> bytes:
    """Return what is in a gzip file, never much more than the limit allows; the reader checks digest and size."""
    data = _read_regular(path, EVIDENCE.attempt_bytes)
    try:
        return inflate(data)
    except (zlib.error, ValueError) as error:
        raise _unreadable(path, str(error)) from error


def inflate(data: bytes) -> bytes:
    """Return what is in a gzip file's bytes, never much more than an attempt file may have.

    Raises `zlib.error`, and `ValueError` for a truncated file or one with bytes after its end.
    """
    machine = zlib.decompressobj(_GZIP_WINDOW)
    unpacked = machine.decompress(data, EVIDENCE.attempt_bytes + 1)
    if len(unpacked) <= EVIDENCE.attempt_bytes and (not machine.eof or machine.unused_data):
        raise ValueError("it is a truncated gzip file, or has bytes after its end")
    return unpacked


def _read_regular(path: Path, limit: int) -> bytes:
    """Return a regular file's bytes. Raises `GradeError` (RECEIPT_UNREADABLE) for all else, and for a larger one."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as stream:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise _unreadable(path, "it is no regular file")
            data = stream.read(limit + 1)
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from error
    if len(data) > limit:
        raise _unreadable(path, f"it has more than {limit} bytes")
    return data
