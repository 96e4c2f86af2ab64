"""One pointer, one spelling; anything else in a commitment is named for what it is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chain.abi import Call, Storage
from chain.ledger_pointer import (
    URL_LIMIT,
    LedgerPointer,
    ledger_base_url,
    pointer_arguments,
    read_commitment,
)
from config.errors import ConfigurationError

POINTER = LedgerPointer("ab" * 32, "https://validator.example/ledger", "cd" * 32)
HEAD = bytes(8) + (77).to_bytes(4, "little")


def stored(*fields: bytes) -> bytes:
    """A stored registration of block 77."""
    return HEAD + bytes([len(fields) << 2]) + b"".join(fields)


def raw(data: bytes) -> bytes:
    """A `Raw` field."""
    return bytes([1 + len(data)]) + data


TEXT, DIGEST, KEY = raw(b"cacheon-ledger:1:https://v.example/l"), b"\x83" + bytes(32), raw(bytes(32))


@pytest.mark.parametrize("url", ["https://v.example/l", "https://" + "v" * 50 + ".example/" + "l" * (URL_LIMIT - 67)])
async def test_what_is_committed_is_read_back(world: Any, url: str) -> None:
    """The runtime stores the three fields as they were sent, up to the longest URL."""
    pointer = LedgerPointer(POINTER.digest, ledger_base_url(url, allow_loopback_http=False), POINTER.receipt_key)
    at = await world.client.finalized_head()
    signed = await world.client.sign(
        Call.SET_COMMITMENT, pointer_arguments(2, pointer), world.validator, nonce=0, at=at, period=16
    )
    await world.client.submit(signed.data)
    block = world.blocks()
    (value,) = await world.client.read_raw(
        block, [(Storage.COMMITMENT_OF, [2, world.validator.ss58_address])]
    )
    found = read_commitment(value)
    assert (found.kind, found.block, found.pointer) == ("ledger", block.number, pointer)
    assert pointer.document_url == f"{url}/{pointer.digest}"


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, "none"),
        (stored(), "other"),
        (stored(raw(b"hello")), "other"),
        (stored(TEXT, DIGEST), "other"),
        (stored(TEXT, DIGEST, raw(bytes(31))), "other"),
        (stored(DIGEST, TEXT, KEY), "other"),
        (stored(raw(b"cacheon-ledger:1:\xc3\xa4"), DIGEST, KEY), "other"),
        (stored(raw(b"cacheon-ledger:2:https://v.example"), DIGEST, KEY), "other-version"),
        (stored(b"\x86\x08ab" + bytes(8)), "sealed"),
        (stored(TEXT, b"\x89\x08ab" + bytes(8)), "sealed"),
        (stored(TEXT, DIGEST, KEY) + b"x", "other"),
        (HEAD + b"\x0c" + TEXT, "other"),
        (stored(TEXT, DIGEST, KEY), "ledger"),
    ],
)
def test_a_commitment_is_named_for_what_it_is(value: bytes | None, kind: str) -> None:
    """Only the exact spelling is a ledger; truncated, reordered, foreign and newer ones are not mistaken for it."""
    assert read_commitment(value).kind == kind


@given(st.binary(max_size=300))
def test_reading_never_raises(value: bytes) -> None:
    """Commitments are written by strangers."""
    read_commitment(HEAD + value)
    read_commitment(value)


@pytest.mark.parametrize(
    "url", ["", "http://v.example/l", "ftp://v.example", "https://v.example/" + "l" * URL_LIMIT]
)
def test_a_url_that_cannot_be_committed_is_refused(url: str) -> None:
    """Not public, not https, or too long for the commitment: an error with the key's name."""
    with pytest.raises(ConfigurationError) as caught:
        ledger_base_url(url, allow_loopback_http=False)
    assert caught.value.code == "LEDGER_URL_INVALID"
    assert "publication.ledger_url" in caught.value.message
