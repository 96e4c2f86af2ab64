"""One finalized reveal: where it happened, whose it is, what it says, and why it cannot be used, if so.

Invariants
1. Order: (block, event index, sub-index, hotkey, content hash). The event index is that of the hotkey's first reveal
   event in the block and so orders hotkeys; several reveals of one hotkey in one block are ordered by payload bytes.
2. A reveal belongs to a hotkey and its registration: the same hotkey registered anew is somebody else.
3. Any bytes become a `Reveal`; what cannot be used has a reason code. Nothing here raises for what a stranger sent.
4. A payload is either bare or preceded by its own length, never ambiguously so (`chain.scale.strip_length_prefix`).
"""

from __future__ import annotations

import msgspec

from chain.blocks import BlockRef
from chain.payload import Payload, arrival_problem, decode_payload
from chain.reveal_rows import RawReveal
from chain.scale import strip_length_prefix
from config.canonical import domain_digest, sha256_hex
from config.limits import CHAIN


class Reveal(msgspec.Struct, frozen=True):
    """One finalized reveal. `reason` is "" for a usable one, else a code; unusable fields are "" or None."""

    block: int
    block_hash: str
    event_index: int
    sub_index: int
    hotkey: str
    registered_block: int | None  # when the hotkey was registered, as of this block; None = it is not
    payload_hex: str  # unframed; at most the largest legal payload is kept
    payload_digest: str  # sha256 of the whole unframed payload
    content_hash: str = ""
    url: str = ""
    payment_block: int | None = None
    payment_index: int | None = None
    reason: str = ""

    @property
    def order_key(self) -> tuple[int, int, int, str, str]:
        """The one order of reveals."""
        return (self.block, self.event_index, self.sub_index, self.hotkey, self.content_hash)

    @property
    def submission_id(self) -> str:
        """The digest that names this submission forever."""
        return domain_digest(
            "cacheon.submission",
            {
                "block": self.block,
                "block_hash": self.block_hash,
                "content_hash": self.content_hash,
                "event_index": self.event_index,
                "hotkey": self.hotkey,
                "payload_digest": self.payload_digest,
                "registered_block": self.registered_block,
                "sub_index": self.sub_index,
                "url": self.url,
            },
        )


class RevealFailure(msgspec.Struct, frozen=True):
    """A commitment that the chain could not open at its round; it carries no payload and is no submission."""

    block: int
    event_index: int
    hotkey: str
    reveal_round: int


def reveal_of(block: BlockRef, raw: RawReveal, registered: int | None, *, allow_loopback_http: bool) -> Reveal:
    """Return what `raw` means in `block`, for a hotkey registered in block `registered` (None = not registered)."""
    payload = b"" if raw.data is None else strip_length_prefix(raw.data)
    reveal = Reveal(
        block=block.number,
        block_hash=block.hash,
        event_index=raw.event_index,
        sub_index=raw.sub_index,
        hotkey=raw.hotkey,
        registered_block=registered,
        payload_hex=payload[: CHAIN.payload_bytes].hex(),
        payload_digest=sha256_hex(payload),
    )
    problem = arrival_problem(raw.hotkey, block.number) or raw.reason
    if problem:
        return msgspec.structs.replace(reveal, reason=problem)
    decoded = decode_payload(payload, allow_loopback_http=allow_loopback_http)
    if not isinstance(decoded, Payload):
        return msgspec.structs.replace(reveal, reason=decoded.code)
    return msgspec.structs.replace(
        reveal,
        content_hash=decoded.content_hash,
        url=decoded.url,
        payment_block=decoded.payment_block,
        payment_index=decoded.payment_index,
        reason="REVEAL_HOTKEY_UNREGISTERED" if registered is None else "",
    )
