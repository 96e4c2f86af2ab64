"""`cacheon receipt verify`: a signed receipt, checked offline against a key that the caller names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from config.canonical import canonical_json, is_digest, sha256_hex
from config.errors import ConfigurationError, NotFoundError
from node.cli.output import Output, facts
from scoring.dsse import Statement, verify
from scoring.receipts import (
    CROWN_V1,
    VERDICT_V1,
    WEIGHTS_V1,
    CrownPredicate,
    VerdictPredicate,
    WeightsPredicate,
    read_predicate,
    recompute_weights,
)

if TYPE_CHECKING:
    from rich.console import Console

_KINDS: dict[str, type[msgspec.Struct]] = {
    VERDICT_V1: VerdictPredicate,
    CROWN_V1: CrownPredicate,
    WEIGHTS_V1: WeightsPredicate,
}
RECEIPT_BYTES = 16 * 1024 * 1024


class Verified(msgspec.Struct, frozen=True):
    """The result as `--json` shows it; `digest` is the SHA-256 of the envelope."""

    file: str
    digest: str
    kind: str
    subject: str
    predicate: dict[str, object]


def run(file: str, key: str, *, as_json: bool) -> None:
    """Verify one receipt. Raises `GradeError` for a forged or malformed one, `ConfigurationError` for a bad key."""
    if not is_digest(key):
        raise ConfigurationError(
            "RECEIPT_KEY_NOT_HEX",
            "the key is not 64 lower-case hexadecimal characters",
            hint="give the validator's 32-byte Ed25519 public key",
        )
    data = _read(Path(file))
    statement = verify(data, [bytes.fromhex(key)])
    kind = _KINDS.get(statement.predicate_type)
    predicate = read_predicate(statement, kind) if kind is not None else None
    if isinstance(predicate, WeightsPredicate):
        recompute_weights(predicate)
    result = Verified(file, sha256_hex(data), statement.predicate_type, _subject(statement), statement.predicate)
    Output("receipt verify", as_json=as_json).result(result, lambda console: _show(console, result))


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            return stream.read(RECEIPT_BYTES)
    except OSError as error:
        raise NotFoundError("RECEIPT_NOT_FOUND", f"{path} cannot be read: {error.strerror or error}") from error


def _subject(statement: Statement) -> str:
    return ", ".join(f"{subject.name} {' '.join(subject.digest.values())}" for subject in statement.subject)


def _show(console: Console, result: Verified) -> None:
    console.print("signature good", style="green")
    said = canonical_json(result.predicate).decode()
    facts(console, [("kind", result.kind), ("subject", result.subject), ("says", said)])
