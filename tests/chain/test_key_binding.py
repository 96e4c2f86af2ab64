"""The statement by which a hotkey vouches for a receipt key: who can make it, and what nobody can change in it."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chain.key_binding import binding_of, key_id_of, sign_binding, verify_binding
from chain.signer_frames import BindKey
from chain.signer_policy import judge_binding
from chain.wallet import address_of_seed, signer_of_seed
from config.canonical import canonical_json, sha256_hex
from config.errors import CacheonError, GradeError
from config.key_binding import KeyBinding, binding_payload
from config.statement import STATEMENT_TYPE, Statement, Subject, payload_of, pre_authentication, seal

GENESIS = "0x" + "ab" * 32
KEY = bytes(range(32))
SIGNER = signer_of_seed("//Validator")
BINDING = binding_of(SIGNER, KEY, GENESIS, 14)


@pytest.fixture(name="envelope", scope="module")
def _envelope() -> bytes:
    payload = binding_payload(BINDING)
    return seal(payload, BINDING.hotkey, bytes(SIGNER.sign(pre_authentication(payload))))


async def test_a_hotkey_vouches_for_a_key() -> None:
    """What comes out says which key, whose, on which chain and subnet, and verifies without anything else."""
    found = verify_binding(await sign_binding(SIGNER, BINDING))
    assert found == KeyBinding(KEY.hex(), address_of_seed("//Validator"), "sr25519", GENESIS, 14)
    assert key_id_of(found) == sha256_hex(KEY)


def test_what_is_signed_can_never_be_an_extrinsic() -> None:
    """The runtime verifies payloads above 256 bytes by their hash, so a signature over longer bytes is none."""
    least = KeyBinding("0" * 64, "1" * 40, "ed25519", "0x" + "0" * 64, 0)
    assert len(pre_authentication(binding_payload(least))) > 256


def signed(payload: bytes, key: str = BINDING.hotkey, seed: str = "//Validator") -> bytes:
    """An envelope around any payload, signed by a hotkey."""
    return seal(payload, key, bytes(signer_of_seed(seed).sign(pre_authentication(payload))))


def statement(**changes: Any) -> bytes:
    """The payload of the binding with top-level changes."""
    return canonical_json(json.loads(binding_payload(BINDING)) | changes)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (signed(binding_payload(BINDING), seed="//Thief"), "KEY_BINDING_FORGED"),
        (signed(binding_payload(BINDING), address_of_seed("//Thief"), "//Thief"), "KEY_BINDING_FORGED"),
        (seal(binding_payload(BINDING), BINDING.hotkey, b"short"), "KEY_BINDING_FORGED"),
        (signed(statement(subject=[{"name": "receipt-key", "digest": {"sha256": "0" * 64}}])), "RECEIPT_MALFORMED"),
        (signed(statement(predicateType="urn:cacheon:receipt:verdict.v1")), "RECEIPT_KIND"),
        (signed(statement(predicate=msgspec.to_builtins(BINDING) | {"netuid": -1})), "RECEIPT_MALFORMED"),
        (signed(statement(predicate=msgspec.to_builtins(BINDING) | {"more": 1})), "RECEIPT_MALFORMED"),
        (signed(statement(predicate={})), "RECEIPT_MALFORMED"),
        (b"{}", "RECEIPT_MALFORMED"),
    ],
)
def test_what_the_hotkey_did_not_say_is_refused(data: bytes, code: str) -> None:
    """Another signer, another subject, another kind, missing or strange fields."""
    with pytest.raises(GradeError) as refused:
        verify_binding(data)
    assert refused.value.code == code


def test_an_address_that_is_none_is_refused() -> None:
    """Text of the right form that is no address."""
    other = msgspec.structs.replace(BINDING, hotkey="1" * 48)
    subject = Subject("receipt-key", {"sha256": sha256_hex(KEY)})
    payload = payload_of(
        Statement(STATEMENT_TYPE, (subject,), "urn:cacheon:receipt:key-binding.v1", msgspec.to_builtins(other))
    )
    with pytest.raises(GradeError) as refused:
        verify_binding(signed(payload, "1" * 48))
    assert refused.value.code == "KEY_BINDING_FORGED"


@settings(deadline=None)
@given(at=st.integers(0, 10**6), byte=st.integers(0, 255))
def test_no_byte_of_it_can_be_changed(envelope: bytes, at: int, byte: int) -> None:
    """Every altered byte is noticed, with one of our errors."""
    at %= len(envelope)
    changed = envelope[:at] + bytes([byte]) + envelope[at + 1 :]
    if changed == envelope:
        return
    with pytest.raises(CacheonError):
        verify_binding(changed)


def test_the_signers_message_is_that_of_the_binding() -> None:
    """A signer process builds the statement from its own facts, and gets the same bytes."""
    message = judge_binding(
        BindKey(KEY, GENESIS), hotkey=BINDING.hotkey, scheme="sr25519", netuid=14, genesis_hash=GENESIS
    )
    assert message == pre_authentication(binding_payload(BINDING))
