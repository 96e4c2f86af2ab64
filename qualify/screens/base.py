"""A screen: one question about a bundle, asked the same way by every validator and by the miner's own tools.

Invariants
1. A screen is a value with a name; running it gives a receipt and never raises for what a bundle does.
2. `failed` is the bundle's fault. What is ours or the machine's is `undecided`, or an error of another family.
3. A receipt is canonical JSON: integers in the unit their name carries, and text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Literal, Protocol, TypeVar

import msgspec

from config.canonical import CanonicalJsonError, canonical_json, read_json, sha256_hex
from config.errors import ErrorDocument, GradeError
from scoring.attempt import DigestOrNone, Nanoseconds

ReceiptSchema = Literal["cacheon.screen-receipt.v1"]
RECEIPT_SCHEMA: ReceiptSchema = "cacheon.screen-receipt.v1"

Emit = Callable[[dict[str, object]], None]  # takes progress events
Outcome = Literal["passed", "failed", "not_applicable", "undecided"]
Facts = Mapping[str, int | str]
ScreenName = Annotated[str, msgspec.Meta(pattern="^[a-z_]{1,32}$")]


class Examined(msgspec.Struct, frozen=True):
    """What a screen found out; `message` is one sentence, the rest is empty unless it applies."""

    outcome: Outcome
    message: str
    facts: Facts = {}
    code: str = ""
    blame: str = ""
    hint: str = ""
    location: str = ""  # `path:line` inside the bundle
    further: tuple[ErrorDocument, ...] = ()  # findings of the same screen beyond the first


class Matter(msgspec.Struct, frozen=True):
    """What a receipt is about. A field is empty where a screen runs before it is known."""

    content_hash: str = ""
    target_id: str = ""
    arena_digest: str = ""
    incumbent_digest: str = ""
    environment_digest: str = ""


class ScreenReceipt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one screen said about one bundle."""

    schema: ReceiptSchema
    screen: ScreenName
    outcome: Outcome
    code: str  # of a failed or undecided screen
    blame: str
    message: str
    hint: str
    location: str
    further: tuple[ErrorDocument, ...]
    facts: dict[str, int | str]
    elapsed_ns: Nanoseconds
    content_hash: DigestOrNone
    target_id: str
    arena_digest: DigestOrNone
    incumbent_digest: DigestOrNone
    environment_digest: DigestOrNone

    @property
    def ends(self) -> bool:
        """Whether no later screen may run."""
        return self.outcome in ("failed", "undecided")


_Subject_contra = TypeVar("_Subject_contra", contravariant=True)


class Screen(Protocol[_Subject_contra]):
    """One question about a subject."""

    @property
    def name(self) -> str:
        """The name that stands in receipts, events and tables."""
        ...

    def run(self, subject: _Subject_contra, /) -> ScreenReceipt:
        """Ask. Raises `HostError`, `InternalError` and `ConfigurationError` only."""
        ...


def make_receipt(screen: str, found: Examined, matter: Matter, elapsed_ns: int) -> ScreenReceipt:
    """Return the receipt of one run of a screen."""
    return ScreenReceipt(
        schema=RECEIPT_SCHEMA,
        screen=screen,
        outcome=found.outcome,
        code=found.code,
        blame=found.blame,
        message=found.message,
        hint=found.hint,
        location=found.location,
        further=found.further,
        facts={name: found.facts[name] for name in sorted(found.facts)},
        elapsed_ns=elapsed_ns,
        content_hash=matter.content_hash,
        target_id=matter.target_id,
        arena_digest=matter.arena_digest,
        incumbent_digest=matter.incumbent_digest,
        environment_digest=matter.environment_digest,
    )


def encode_receipt(receipt: ScreenReceipt) -> bytes:
    """Return the canonical bytes of a receipt."""
    return canonical_json(msgspec.to_builtins(receipt))


def receipt_digest(receipt: ScreenReceipt) -> str:
    """Return the identity of a receipt: the SHA-256 of its canonical bytes."""
    return sha256_hex(encode_receipt(receipt))


def read_receipt(data: bytes) -> ScreenReceipt:
    """Read a receipt strictly. Raises `GradeError` (SCREEN_RECEIPT_MALFORMED)."""
    try:
        return msgspec.convert(read_json(data, require_canonical=True), ScreenReceipt, strict=True)
    except (CanonicalJsonError, msgspec.ValidationError) as error:
        raise GradeError("SCREEN_RECEIPT_MALFORMED", f"the screen receipt is malformed: {error}") from error
