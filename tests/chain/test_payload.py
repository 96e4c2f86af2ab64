"""The reveal payload codec."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chain.payload import (
    SEALABLE_BYTES,
    Payload,
    PayloadRefusal,
    arrival_problem,
    decode_payload,
    encode_payload,
    longest_url,
    sealable_payload,
)
from config.errors import ConfigurationError

VECTORS = json.loads((Path(__file__).parents[1] / "golden" / "payload_vectors.json").read_text())
ENCODE = [vector for vector in VECTORS if vector["kind"] == "encode"]
DECODE = [vector for vector in VECTORS if vector["kind"] == "decode"]
HASH = "0123456789abcdef" * 4
URL = "https://downloads.example.org/b.tar.gz"


@pytest.mark.parametrize("vector", ENCODE, ids=[v["name"] for v in ENCODE])
def test_encode_vectors(vector: dict[str, Any]) -> None:
    """Every recorded payload encodes to the recorded bytes or is refused."""
    given_ = vector["input"]
    payload = Payload(
        given_["content_hash"], given_["url"], given_.get("payment_block"), given_.get("payment_extrinsic_index")
    )
    if vector["accept"]:
        assert encode_payload(payload) == vector["output"].encode()
    else:
        with pytest.raises(ConfigurationError) as caught:
            encode_payload(payload)
        assert caught.value.code == "PAYLOAD_INVALID"


@pytest.mark.parametrize("vector", DECODE, ids=[v["name"] for v in DECODE])
def test_decode_vectors(vector: dict[str, Any]) -> None:
    """Every recorded reveal is a submission exactly when the record says so.

    Deliberate differences: bytes are decoded, not text (so the recorded wrong type is any other type), and an absent
    payment pointer is None, not (0, 0).
    """
    data = vector["data"].encode() if isinstance(vector["data"], str) else vector["data"]
    decoded = decode_payload(data)
    accepted = isinstance(decoded, Payload) and arrival_problem(vector["hotkey"], vector["block"]) == ""
    assert accepted is vector["accept"]
    if isinstance(decoded, Payload) and vector["accept"]:
        assert (decoded.content_hash, decoded.url) == (vector["result"]["h"], vector["result"]["u"])
        assert (decoded.payment_block or 0, decoded.payment_index or 0) == (
            vector["result"]["payment_block"],
            vector["result"]["payment_index"],
        )


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (None, "PAYLOAD_NOT_BYTES"),
        ("text", "PAYLOAD_NOT_BYTES"),
        (b"", "PAYLOAD_EMPTY"),
        (b"{" + b" " * 1024, "PAYLOAD_TOO_LARGE"),
        ("é".encode(), "PAYLOAD_NOT_ASCII"),
        (b"\xff\xfe", "PAYLOAD_NOT_ASCII"),
        (b"hello", "PAYLOAD_NOT_JSON"),
        (b'{"v":1,"v":1}', "PAYLOAD_NOT_JSON"),
        (b"7", "PAYLOAD_FIELDS"),
        (b'{"v":true}', "PAYLOAD_VERSION"),
        (b'{"v":3}', "PAYLOAD_VERSION"),
        (json.dumps({"v": 1, "h": HASH, "u": URL, "x": 1}).encode(), "PAYLOAD_FIELDS"),
        (json.dumps({"v": 1, "h": "00", "u": URL}).encode(), "PAYLOAD_HASH"),
        (json.dumps({"v": 1, "h": [HASH], "u": URL}).encode(), "PAYLOAD_HASH"),
        (json.dumps({"v": 1, "h": HASH, "u": "file:///x"}).encode(), "PAYLOAD_URL"),
        (json.dumps({"v": 2, "h": HASH, "u": URL, "p": 1}).encode(), "PAYLOAD_POINTER"),
        (json.dumps({"v": 2, "h": HASH, "u": URL, "p": {"b": None, "i": None}}).encode(), "PAYLOAD_POINTER"),
        (json.dumps({"v": 2, "h": HASH, "u": URL, "p": {"b": 2**32, "i": 0}}).encode(), "PAYLOAD_POINTER"),
        (json.dumps({"v": 2, "h": HASH, "u": URL, "p": {"b": 1, "i": 2**63}}).encode(), "PAYLOAD_POINTER"),
        (json.dumps({"v": 1, "h": HASH, "u": URL}).encode(), "PAYLOAD_NOT_CANONICAL"),
        (json.dumps({"v": 1, "h": HASH, "u": URL}, separators=(",", ":")).encode() + b"\n", "PAYLOAD_NOT_CANONICAL"),
        (json.dumps({"h": HASH, "v": 1, "u": URL}, separators=(",", ":")).encode(), "PAYLOAD_NOT_CANONICAL"),
    ],
)
def test_refusals_have_stable_codes(data: object, code: str) -> None:
    """Each way of being wrong has its own code, and the first broken rule wins."""
    decoded = decode_payload(data)
    assert isinstance(decoded, PayloadRefusal)
    assert decoded.code == code
    assert decoded.message


def test_payload_at_the_cap_is_accepted_and_one_byte_more_is_not() -> None:
    """The cap of 1024 bytes counts the encoded form."""
    room = 1024 - len(encode_payload(Payload(HASH, "https://h/")))
    largest = Payload(HASH, "https://h/" + "x" * room)
    assert decode_payload(encode_payload(largest)) == largest
    with pytest.raises(ConfigurationError, match="1025 of 1024"):
        encode_payload(Payload(HASH, largest.url + "x"))


@pytest.mark.parametrize(("pointer", "longest"), [((None, None), 695), ((9, 0), 677), ((2**32 - 1, 2**32 - 1), 659)])
def test_the_longest_url_fits_exactly(pointer: tuple[int | None, int | None], longest: int) -> None:
    """A URL of the length that is named can be committed; one character more is refused with that length."""
    head = "https://h.example/"
    fits = Payload(HASH, head + "a" * (longest - len(head)), *pointer)
    assert len(sealable_payload(fits)) == SEALABLE_BYTES
    assert longest_url(fits) == longest
    with pytest.raises(ConfigurationError) as caught:
        sealable_payload(msgspec.structs.replace(fits, url=fits.url + "a"))
    assert caught.value.code == "PAYLOAD_UNSEALABLE"
    assert f"the URL has {longest + 1} characters, and {longest} fit" in caught.value.message
    assert len(encode_payload(msgspec.structs.replace(fits, url=fits.url + "a"))) == SEALABLE_BYTES + 1


def test_loopback_http_is_a_devnet_affair() -> None:
    """The same bytes are a payload on a devnet and a refusal elsewhere."""
    payload = Payload(HASH, "http://127.0.0.1:9/b.tar.gz")
    data = encode_payload(payload, allow_loopback_http=True)
    assert decode_payload(data, allow_loopback_http=True) == payload
    assert isinstance(decode_payload(data), PayloadRefusal)


@given(st.binary(max_size=1200))
def test_decoding_never_raises(data: bytes) -> None:
    """Arbitrary bytes give a payload or a refusal, never an exception."""
    assert isinstance(decode_payload(data), Payload | PayloadRefusal)


@given(
    st.text(alphabet="0123456789abcdef", min_size=64, max_size=64),
    st.text(alphabet=st.characters(min_codepoint=0x21, max_codepoint=0x7E, exclude_characters="#"), max_size=80),
    st.one_of(st.none(), st.tuples(st.integers(1, 2**32 - 1), st.integers(0, 2**32 - 1))),
)
def test_round_trip(content_hash: str, tail: str, pointer: tuple[int, int] | None) -> None:
    """Whatever encodes decodes to itself."""
    block, index = pointer or (None, None)
    payload = Payload(content_hash, f"https://h.example/{tail}", block, index)
    assert decode_payload(encode_payload(payload)) == payload
