"""The journal of weight publications: what was intended, byte for byte, and what is known about it.

Invariants
1. The journal is append-only. A record names the digest of the record before it, and is appended only if that one is
   still the newest (compare and swap), so two writers can never both sign for one epoch.
2. An `intent` holds the signed bytes. It is written before anything is submitted; every later record of the same
   publication carries the same bytes.
3. `intent` and `submitted` are open; `confirmed`, `dropped` and `expired` are final. Only `expired`, the proof that
   the bytes can never be included, allows another publication in the same epoch.
4. A field added later counts in a record's digest only when it is set, so journals of earlier releases stay unbroken.
"""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec

from chain.pending import PendingExtrinsic
from config.canonical import domain_digest
from config.errors import Blame, InternalError

Status = Literal["intent", "submitted", "confirmed", "dropped", "expired"]
_ADDED_LATER = ("mechanism", "spec_version")


class PublicationRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One state of one publication. Heights are blocks; `epoch` is the chain's, at inclusion once that is known."""

    publication_id: str
    epoch: int
    vector_digest: str
    status: Status
    netuid: int
    hotkey: str
    uids: tuple[int, ...]
    values: tuple[int, ...]
    hotkeys: tuple[str, ...]  # whom each uid stood for when it was signed
    extrinsic_hex: str
    extrinsic_hash: str
    nonce: int
    era_end_block: int
    version_key: int
    commit_reveal: bool
    submit_block: int  # finalized head at signing; inclusion can only be above it
    included_block: int | None = None
    confirmed_block: int | None = None
    reason: str = ""
    prior_digest: str = ""
    mechanism: int = 0
    spec_version: int = 0  # runtime that the signature names, 0 = not recorded

    @property
    def pending(self) -> PendingExtrinsic:
        """The signed extrinsic of this publication."""
        return PendingExtrinsic(
            data=bytes.fromhex(self.extrinsic_hex),
            hash=self.extrinsic_hash,
            hotkey=self.hotkey,
            nonce=self.nonce,
            signed_block=self.submit_block,
            era_end_block=self.era_end_block,
            spec_version=self.spec_version,
        )

    @property
    def is_open(self) -> bool:
        """Whether the publication's fate is still to be read from the chain."""
        return self.status in ("intent", "submitted")


class PublicationJournal(Protocol):
    """Durable storage of records; each method is one short transaction that never blocks the event loop."""

    async def records(self) -> tuple[PublicationRecord, ...]:
        """Return all records, oldest first."""
        ...

    async def head(self) -> PublicationRecord | None:
        """Return the newest record."""
        ...

    async def append(self, record: PublicationRecord, expected_head: str | None) -> None:
        """Append durably if the newest record's digest is `expected_head` (None = the journal is empty).

        Raises `journal_moved()` otherwise.
        """
        ...


def record_digest(record: PublicationRecord) -> str:
    """Return the digest that names a record, and through `prior_digest` everything before it."""
    document = msgspec.to_builtins(record)
    for name in _ADDED_LATER:
        if not document[name]:
            del document[name]
    return domain_digest("cacheon.publication-record", document)


def publication_id(extrinsic_hash: str, epoch: int, vector_digest: str) -> str:
    """Return the name of the publication that signed these bytes for this vector and epoch."""
    return domain_digest(
        "cacheon.publication", {"epoch": epoch, "extrinsic_hash": extrinsic_hash, "vector_digest": vector_digest}
    )


def journal_moved() -> InternalError:
    """Return the error of a journal whose newest record is not the expected one."""
    return InternalError(
        "PUBLICATION_JOURNAL_MOVED",
        "The publication journal was written by someone else in the meantime.",
        hint="Only one node may use a state folder; stop the other one.",
        blame=Blame.OPERATOR,
    )
