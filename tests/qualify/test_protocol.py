"""The control channel: one encoding per frame, and nothing an arm sends can raise."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qualify.protocol import (
    FRAME_BYTES,
    Call,
    Failure,
    FrameKind,
    Malformed,
    Reply,
    answer_go,
    decode_call,
    decode_reply,
    encode_call,
    encode_go,
    encode_reply,
    is_go,
    nonce_of,
    printable,
)

NONCE = bytes(range(16))


def test_a_call_survives_the_channel() -> None:
    """Extents, offsets and scalars arrive as they were sent, to the last bit."""
    call = Call(NONCE, 2, (512, 4096), (64, 1 << 33, 128), scalars=(1e-6,))
    assert decode_call(encode_call(call)) == call


def test_go_is_told_from_a_call_and_answered_with_its_nonce() -> None:
    """The quick forms that run inside the timed interval are the ordinary ones."""
    assert is_go(encode_go(NONCE))
    assert not is_go(encode_call(Call(NONCE, 0, (1,), (0,))))
    assert nonce_of(encode_go(NONCE)) == NONCE
    assert answer_go(encode_go(NONCE)) == encode_reply(Reply(FrameKind.DONE, NONCE))


@pytest.mark.parametrize(
    "reply",
    [
        Reply(FrameKind.READY, NONCE),
        Reply(FrameKind.DONE, NONCE),
        Reply(FrameKind.FAILED, NONCE, Failure.EXCEPTION, "ValueError: no"),
    ],
)
def test_a_reply_survives_the_channel(reply: Reply) -> None:
    """Every kind an arm may send is read back."""
    assert decode_reply(encode_reply(reply)) == reply


@given(st.binary(max_size=FRAME_BYTES + 40))
def test_no_bytes_raise(message: bytes) -> None:
    """Whatever hostile code writes is a reply or malformed."""
    assert isinstance(decode_reply(message), Reply | Malformed)


@given(st.integers(0, FRAME_BYTES - 1), st.integers(1, 255))
def test_an_encoding_is_unique(place: int, change: int) -> None:
    """Changing any byte outside the nonce gives another message or a malformed one, never the same."""
    good = encode_reply(Reply(FrameKind.DONE, NONCE))
    bad = bytearray(good)
    bad[place] ^= change
    assert decode_reply(bytes(bad)) != decode_reply(good)


@pytest.mark.parametrize("size", [0, 1, FRAME_BYTES - 1, FRAME_BYTES + 1])
def test_other_sizes_are_malformed(size: int) -> None:
    """A frame has one size."""
    assert isinstance(decode_reply(bytes(size)), Malformed)


def test_an_arm_may_not_send_a_call() -> None:
    """CALL frames only travel to the arm."""
    assert isinstance(decode_reply(encode_call(Call(NONCE, 0, (), ()))), Malformed)


def test_text_is_cut_and_reduced_to_printable_ascii() -> None:
    """Control characters and terminal escapes of hostile text never reach a terminal."""
    reply = decode_reply(encode_reply(Reply(FrameKind.FAILED, NONCE, Failure.EXCEPTION, "\x1b[2J" + "a" * 999)))
    assert isinstance(reply, Reply)
    assert reply.text.startswith("?[2Ja")
    assert len(reply.text) < FRAME_BYTES
    assert printable(b"\x00\xff ok") == "?? ok"


def test_a_call_outside_the_frame_is_our_fault() -> None:
    """The encoder refuses what does not fit instead of cutting it."""
    with pytest.raises(ValueError, match="does not fit"):
        encode_call(Call(NONCE, 0, (1,) * 9, ()))
    with pytest.raises(ValueError, match="not a frame"):
        decode_call(b"short")
    with pytest.raises(ValueError, match="not a call"):
        decode_call(encode_reply(Reply(FrameKind.DONE, NONCE)))
