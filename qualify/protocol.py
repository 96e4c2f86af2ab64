"""The control channel between the referee and an arm: fixed-size frames over a SOCK_SEQPACKET pair.

A call takes two rounds. PLACE tells where its tensors will lie: the arm builds the arguments, answers DONE and is
frozen; only then are the inputs written. GO runs the entry on them, and is what is timed: beside the entry it holds one
read and one write, so that there is next to nothing in it that an arm with a loop of its own could save.

Invariants
1. Every frame has exactly `FRAME_BYTES` bytes and one canonical encoding; any other message is malformed.
2. The arm may scribble anything on its end. Decoding never raises on hostile bytes, it returns a `Malformed`.
3. A reply is an answer only when it echoes the nonce of its round, which the arm cannot know beforehand.
4. Text in a frame is opaque: bounded, reduced to printable ASCII, shown to people, never parsed.
5. A call carries offsets, extents and scalars and nothing else: no seed, no expected value, no clock, no later call.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass

FRAME_BYTES = 512
NONCE_BYTES = 16
DIMENSIONS_MAX = 8  # extents in one call
TENSORS_MAX = 8  # tensors in one call
SCALARS_MAX = 2  # scalars in one call that its dimensions do not fix
TEXT_BYTES = 384

_MAGIC = b"CAC1"
_HEAD = struct.Struct("<4sBBH16s")  # magic, kind, detail, text length or count, nonce
_CALL = struct.Struct("<BBB5x8I8Q2d")  # dimensions, tensors and scalars used; extents, byte offsets, scalars

_NONCE = slice(_HEAD.size - NONCE_BYTES, _HEAD.size)


class FrameKind(enum.IntEnum):
    """What a frame says."""

    READY = 1  # arm -> referee: memory mapped, implementations loaded
    PLACE = 2  # referee -> arm: build the arguments of one call
    DONE = 3  # arm -> referee: what was asked is done
    FAILED = 4  # arm -> referee: the entry, or loading it, failed
    PREPARE = 5  # referee -> arm: run the load-time half of one implementation on one set of weights
    GO = 6  # referee -> arm: run the entry on the arguments that were placed


class Failure(enum.IntEnum):
    """Why an arm gave up; the arm's own claim, which can only hurt the arm that makes it."""

    IMPORT_FAILED = 1
    ENTRY_MISSING = 2
    EXCEPTION = 3
    OUT_OF_MEMORY = 4
    SIGNATURE = 5


@dataclass(frozen=True, slots=True)
class Call:
    """One call: which implementation, the extents in the slot's order, and where each tensor lies (bytes).

    `scalars` are those of `Slot.free_scalars`, in that order.

    With `prepare`, the tensors are one set of weights and its load-time half runs instead.
    """

    nonce: bytes
    implementation: int
    extents: tuple[int, ...]
    offsets: tuple[int, ...]
    prepare: bool = False
    scalars: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Reply:
    """A well-formed frame of an arm."""

    kind: FrameKind
    nonce: bytes
    failure: Failure | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Malformed:
    """Bytes that are no frame; `reason` is ours."""

    reason: str


def encode_call(call: Call) -> bytes:
    """Return the frame of `call`. Raises `ValueError` for a call outside the frame's bounds (a fault of ours)."""
    counts = len(call.extents), len(call.offsets), len(call.scalars)
    limits = DIMENSIONS_MAX, TENSORS_MAX, SCALARS_MAX
    if any(count > limit for count, limit in zip(counts, limits, strict=True)) or len(call.nonce) != NONCE_BYTES:
        raise ValueError("call does not fit a frame")
    extents = (*call.extents, *(0,) * (DIMENSIONS_MAX - len(call.extents)))
    offsets = (*call.offsets, *(0,) * (TENSORS_MAX - len(call.offsets)))
    kind = FrameKind.PREPARE if call.prepare else FrameKind.PLACE
    head = _HEAD.pack(_MAGIC, kind, call.implementation, 0, call.nonce)
    scalars = (*call.scalars, *(0.0,) * (SCALARS_MAX - len(call.scalars)))
    return _pad(head + _CALL.pack(*counts, *extents, *offsets, *scalars))


def decode_call(frame: bytes) -> Call:
    """Read a call frame, inside the arm. Raises `ValueError` when it is none (the referee is trusted)."""
    if len(frame) != FRAME_BYTES:
        raise ValueError("not a frame")
    magic, kind, implementation, _, nonce = _HEAD.unpack_from(frame)
    if magic != _MAGIC or kind not in (FrameKind.PLACE, FrameKind.PREPARE):
        raise ValueError("not a call frame")
    n_extents, n_offsets, n_scalars, *numbers = _CALL.unpack_from(frame, _HEAD.size)
    extents = tuple(numbers[:n_extents])
    offsets = tuple(numbers[DIMENSIONS_MAX : DIMENSIONS_MAX + n_offsets])
    scalars = tuple(numbers[DIMENSIONS_MAX + TENSORS_MAX :][:n_scalars])
    return Call(nonce, implementation, extents, offsets, kind == FrameKind.PREPARE, scalars)


def encode_go(nonce: bytes) -> bytes:
    """Return the frame that lets a placed call run."""
    return _pad(_HEAD.pack(_MAGIC, FrameKind.GO, 0, 0, nonce))


def is_go(frame: bytes) -> bool:
    """Say whether a frame of the referee is GO; made to be quick, it runs inside the timed interval."""
    return frame[4] == FrameKind.GO


def nonce_of(frame: bytes) -> bytes:
    """Return the nonce of a frame of the referee."""
    return frame[_NONCE]


def answer_go(frame: bytes) -> bytes:
    """Return the DONE frame that answers a GO frame; made to be quick, it runs inside the timed interval."""
    return _DONE_PREFIX + frame[_NONCE] + _DONE_PADDING


def encode_reply(reply: Reply) -> bytes:
    """Return the frame of `reply`, cutting its text to `TEXT_BYTES`."""
    text = reply.text.encode("ascii", "replace")[:TEXT_BYTES]
    head = _HEAD.pack(_MAGIC, reply.kind, reply.failure or 0, len(text), reply.nonce)
    return _pad(head + text)


def decode_reply(frame: bytes) -> Reply | Malformed:
    """Read what an arm sent. Never raises, whatever the bytes are."""
    if len(frame) != FRAME_BYTES:
        return Malformed(f"message of {len(frame)} bytes instead of {FRAME_BYTES}")
    magic, kind, detail, length, nonce = _HEAD.unpack_from(frame)
    if magic != _MAGIC:
        return Malformed("message without the frame mark")
    if kind not in (FrameKind.READY, FrameKind.DONE, FrameKind.FAILED):
        return Malformed(f"frame kind {kind} is not one an arm may send")
    failed = kind == FrameKind.FAILED
    if failed != (detail in Failure.__members__.values()) or (not failed and (detail or length)):
        return Malformed("frame fields contradict its kind")
    if length > TEXT_BYTES or frame[_HEAD.size + length :].strip(b"\0"):
        return Malformed("text of a frame is longer than allowed, or its padding is not zero")
    raw = frame[_HEAD.size : _HEAD.size + length]
    return Reply(FrameKind(kind), nonce, Failure(detail) if failed else None, printable(raw))


def printable(raw: bytes) -> str:
    """Return hostile bytes as printable ASCII; everything else becomes `?`."""
    return "".join(chr(byte) if 32 <= byte < 127 else "?" for byte in raw)


def _pad(body: bytes) -> bytes:
    return body + bytes(FRAME_BYTES - len(body))


_DONE_PREFIX = encode_reply(Reply(FrameKind.DONE, bytes(NONCE_BYTES)))[: _HEAD.size - NONCE_BYTES]
_DONE_PADDING = bytes(FRAME_BYTES - _HEAD.size)
