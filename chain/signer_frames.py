"""What a node and a signer process say to each other over a unix socket.

Invariants
1. A frame is a 4-byte big-endian length and that many bytes of JSON, at most `FRAME_BYTES`; nothing longer is read.
2. Documents are decoded strictly: unknown keys, missing keys and other types are refused.
3. A request names what is to be signed, never the bytes to sign: era, tip and the chain are put in by the signer.
"""

from __future__ import annotations

import struct
from typing import TypeAlias, TypeVar

import msgspec

T = TypeVar("T")

FRAME_BYTES = 64 * 1024  # a weight commit is at most 5,000 bytes, a commitment of fields about 2,000
HEADER = struct.Struct(">I")


class Hello(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="hello"):
    """Asks whose key it is."""


class SignCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="sign_call"):
    """Asks for the signature of an extrinsic with these SCALE bytes of a call.

    The era is the mortal one of `era_period` blocks that holds block `era_block`; `era_block_hash` is the hash of the
    block where it begins.
    """

    call: bytes
    spec_version: int
    transaction_version: int
    genesis_hash: str
    nonce: int
    era_period: int
    era_block: int
    era_block_hash: str


class BindKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="bind_key"):
    """Asks for the signature that vouches for a receipt key (`config.key_binding`), by its 32 public bytes.

    `genesis_hash` is the chain that who asks is on.
    """

    receipt_key: bytes
    genesis_hash: str


class Identity(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="identity"):
    """Whose key it is, and for which subnet it signs."""

    ss58_address: str
    public_key: bytes
    crypto_type: int
    netuid: int


class Signature(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="signature"):
    """The 64-byte signature."""

    signature: bytes


class Refusal(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="refusal"):
    """Why there is none: a code, a sentence, and whether the same request may succeed later."""

    code: str
    message: str
    retry: bool = False


Request: TypeAlias = Hello | SignCall | BindKey
Answer: TypeAlias = Identity | Signature | Refusal


class FrameError(ValueError):
    """Bytes that are no frame of this protocol; for use inside this room."""


def pack(document: Request | Answer) -> bytes:
    """Return a document as one frame."""
    body = msgspec.json.encode(document)
    if len(body) > FRAME_BYTES:
        raise FrameError(f"a frame of {len(body)} bytes; at most {FRAME_BYTES} are sent")
    return HEADER.pack(len(body)) + body


def length_of(header: bytes) -> int:
    """Return the length that a frame's header announces. Raises `FrameError`."""
    (length,) = HEADER.unpack(header)
    if not 0 < length <= FRAME_BYTES:
        raise FrameError(f"a frame of {length} bytes; 1 to {FRAME_BYTES} are read")
    return int(length)


def read_request(body: bytes) -> Request:
    """Return the request in a frame. Raises `FrameError`."""
    return _decode(body, _REQUEST)


def read_answer(body: bytes) -> Answer:
    """Return the answer in a frame. Raises `FrameError`."""
    return _decode(body, _ANSWER)


_REQUEST: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Hello | SignCall | BindKey)
_ANSWER: msgspec.json.Decoder[Answer] = msgspec.json.Decoder(Identity | Signature | Refusal)


def _decode(body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise FrameError(" ".join(str(error).split())[:200]) from error
