"""`cacheon receipt verify`: signed receipts, checked offline against a key that the caller or the hotkey names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from chain.key_binding import verify_binding
from config.canonical import canonical_json, sha256_hex
from config.errors import GradeError, NotFoundError
from config.key_binding import KEY_BINDING_V1, KeyBinding
from config.limits import RECEIPT_BYTES
from config.statement import open_envelope, read_statement
from node.cli.output import Output, facts, table
from node.receipt_folder import key_bytes, open_folder
from scoring.published import read_receipt

if TYPE_CHECKING:
    from rich.console import Console


class Verified(msgspec.Struct, frozen=True):
    """The result as `--json` shows it; `digest` is the SHA-256 of the envelope."""

    file: str
    digest: str
    kind: str
    subject: str
    predicate: dict[str, object]


class VerifiedFolder(msgspec.Struct, frozen=True):
    """The result for a folder: how many receipts of each kind, all of them good, and whose."""

    folder: str
    hotkey: str
    receipt_keys: tuple[str, ...]
    kinds: dict[str, int]


def run(file: str, key: str | None, binding: str | None, hotkey: str | None, *, as_json: bool) -> None:
    """Verify receipts. Raises `GradeError` for a forged or malformed one, `ConfigurationError` for a bad key."""
    named = _binding(binding, hotkey) if binding is not None else None
    if named is not None:
        key = named.receipt_key
    if Path(file).is_dir():
        _folder(file, key, hotkey, as_json=as_json)
        return
    data = _read(Path(file))
    statement = read_statement(open_envelope(data).payload)  # which kind it says it is decides what must have signed it
    if statement.predicate_type == KEY_BINDING_V1:
        _require_hotkey(verify_binding(data), hotkey)
    else:
        if key is None:
            raise GradeError(
                "KEY_BINDING_MISSING", "it is not said which key must have signed the receipt",
                hint="give --key HEX, or --binding FILE with the validator's key binding",
            )
        read_receipt(data, sha256_hex(data), [key_bytes(key)])
    subject = ", ".join(f"{one.name} {' '.join(one.digest.values())}" for one in statement.subject)
    result = Verified(file, sha256_hex(data), statement.predicate_type, subject, statement.predicate)
    Output("receipt verify", as_json=as_json).result(result, lambda console: _show(console, result))


def _folder(folder: str, key: str | None, hotkey: str | None, *, as_json: bool) -> None:
    source = open_folder(folder)
    anchor = source.anchor(key=key, hotkey=hotkey)
    kinds = {KEY_BINDING_V1: len(source.bindings)} if source.bindings else {}
    receipts = tuple(source.receipts(anchor))
    for receipt in receipts:
        kinds[receipt.kind] = kinds.get(receipt.kind, 0) + 1
    source.together(receipts, anchor)
    result = VerifiedFolder(
        folder, anchor.hotkey, tuple(one.hex() for one in anchor.keys), dict(sorted(kinds.items()))
    )
    Output("receipt verify", as_json=as_json).result(result, lambda console: _show_folder(console, result, anchor.how))


def _binding(file: str, hotkey: str | None) -> KeyBinding:
    return _require_hotkey(verify_binding(_read(Path(file))), hotkey)


def _require_hotkey(binding: KeyBinding, hotkey: str | None) -> KeyBinding:
    if hotkey is not None and binding.hotkey != hotkey:
        raise GradeError(
            "KEY_BINDING_FOREIGN", f"the key is vouched for by {binding.hotkey}, and {hotkey} was asked for"
        )
    return binding


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            data = stream.read(RECEIPT_BYTES + 1)
    except OSError as error:
        raise NotFoundError("RECEIPT_NOT_FOUND", f"{path} cannot be read: {error.strerror or error}") from error
    if len(data) > RECEIPT_BYTES:
        raise GradeError("RECEIPT_MALFORMED", f"{path} has more than {RECEIPT_BYTES} bytes, which no receipt has")
    return data


def _show(console: Console, result: Verified) -> None:
    console.print("signature good", style="green")
    said = canonical_json(result.predicate).decode()
    facts(console, [("kind", result.kind), ("subject", result.subject), ("says", said)])


def _show_folder(console: Console, result: VerifiedFolder, how: str) -> None:
    console.print("all receipts good", style="green")
    facts(console, [("signed by", f"{', '.join(result.receipt_keys)}: {how}")])
    console.print(table(("kind", "receipts"), [(kind, str(count)) for kind, count in result.kinds.items()]))
