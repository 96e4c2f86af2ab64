"""Receipts are signed, bound to their inputs, and recomputable by a stranger."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nacl.signing import SigningKey

from config.canonical import canonical_json, sha256_hex
from config.errors import CacheonError, GradeError, InternalError
from scoring import dsse
from scoring.attempt import attempt_digest, encode_attempt
from scoring.grade import grade
from scoring.projection import WeightPolicy, project
from scoring.receipts import (
    CrownPredicate,
    VerdictPredicate,
    WeightsPredicate,
    crown_statement,
    present_claimants,
    read_predicate,
    recompute_weights,
    verdict_statement,
    weights_statement,
)
from scoring.settle import Candidate, CrownState, FinalizedOrder, live_claims, plan
from tests.scoring.support import FakeReferee, make_arena

SECRET = bytes(range(32))
KEY = dsse.public_key(SECRET)
ARENA = make_arena()
ATTEMPT = FakeReferee(ARENA).measure()
STATEMENT = verdict_statement(ATTEMPT, attempt_digest(encode_attempt(ATTEMPT)), grade(ATTEMPT, ARENA))
ENVELOPE = dsse.sign(STATEMENT, SECRET)


def crown_plan() -> Any:
    """Return a settlement that crowns one submission."""
    order = FinalizedOrder(5, 1, 0, "5Miner", "b" * 64)
    return plan(CrownState(), [Candidate("s", order, "norm", ("norm",), "t" * 64, 1_400_000, ())])


def weights_predicate() -> WeightsPredicate:
    """Return the predicate of the vector that follows from one crown."""
    settled = crown_plan()
    claims = live_claims(settled.state)
    policy = WeightPolicy(1000, "burn", "5Burn", "5Validator")
    present = present_claimants(claims, ["5Other", "5Miner"])
    vector = project(claims, block=1005, present=present, policy=policy).vector
    return WeightsPredicate(vector, vector.digest, 2, 3, claims, present, policy, settled.state.head, ("c" * 64,))


def test_a_receipt_is_verified_by_the_standard_construction() -> None:
    """Any DSSE and Ed25519 implementation can check it: the signature covers the pre-authentication encoding."""
    envelope = json.loads(ENVELOPE)
    payload = base64.b64decode(envelope["payload"])
    kind = envelope["payloadType"]
    message = f"DSSEv1 {len(kind)} {kind} {len(payload)} ".encode() + payload
    SigningKey(SECRET).verify_key.verify(message, base64.b64decode(envelope["signatures"][0]["sig"]))
    statement = json.loads(payload)
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["subject"] == [{"digest": {"sha256": ATTEMPT.identity.content_hash}, "name": "bundle"}]
    assert envelope["signatures"][0]["keyid"] == sha256_hex(KEY)


def test_a_verdict_receipt_binds_what_the_verdict_rests_on() -> None:
    """Attempt, target, arena, incumbent, environment, policy and verdict survive the round trip."""
    predicate = read_predicate(dsse.verify(ENVELOPE, [KEY]), VerdictPredicate)
    assert predicate.attempt_digest == attempt_digest(encode_attempt(ATTEMPT))
    assert predicate.verdict == grade(ATTEMPT, ARENA)
    assert predicate.environment == ATTEMPT.environment
    assert (predicate.arena_digest, predicate.incumbent_digest) == (ARENA.digest, ATTEMPT.identity.incumbent_digest)


def test_a_crown_receipt_names_its_event_and_verdicts() -> None:
    """A crown leads back to the receipts of two verdicts."""
    event = crown_plan().events[0]
    statement = dsse.verify(dsse.sign(crown_statement(event, ("1" * 64, "2" * 64)), SECRET), [KEY])
    predicate = read_predicate(statement, CrownPredicate)
    assert (predicate.event, predicate.event_digest) == (event, event.digest)
    with pytest.raises(GradeError) as refused:
        crown_statement(msgspec.structs.replace(event, type="RETIRE"), ("1" * 64, "2" * 64))
    assert refused.value.code == "RECEIPT_NOT_A_CROWN"


def test_weights_are_recomputed_from_the_receipt_alone() -> None:
    """The vector follows, bit for bit, from what the receipt says."""
    predicate = weights_predicate()
    statement = dsse.verify(dsse.sign(weights_statement(predicate), SECRET), [KEY])
    again = recompute_weights(read_predicate(statement, WeightsPredicate))
    assert again.vector == predicate.vector
    assert again.vector.entries == (("5Burn", 500_000), ("5Miner", 500_000))


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"present": ()}, "RECEIPT_WEIGHTS_WRONG"),
        ({"claims": ()}, "RECEIPT_WEIGHTS_WRONG"),
        ({"targets": ()}, "RECEIPT_WEIGHTS_WRONG"),
        ({"vector_digest": "0" * 64}, "RECEIPT_WEIGHTS_WRONG"),
        ({"policy": WeightPolicy(1000, "renormalise", "5Burn", "5Validator")}, "WEIGHTS_POLICY_DIFFERS"),
    ],
)
def test_a_vector_that_does_not_follow_is_refused(changes: dict[str, Any], code: str) -> None:
    """A validator cannot sign weights that its own inputs do not give."""
    with pytest.raises(GradeError) as refused:
        weights_statement(msgspec.structs.replace(weights_predicate(), **changes))
    assert refused.value.code == code


def test_inputs_from_which_nothing_follows_are_refused_with_a_code() -> None:
    """A claim from the future makes a receipt that is refused, not a defect of the reader."""
    good = weights_predicate()
    later = msgspec.structs.replace(good.claims[0], crowned_block=10**9)
    with pytest.raises(GradeError) as refused:
        recompute_weights(msgspec.structs.replace(good, claims=(later,)))
    assert refused.value.code == "CLAIM_FROM_FUTURE"
    worthless = msgspec.structs.replace(good.claims[0], speedup_ppm=1_000_000)
    with pytest.raises(GradeError) as refused:
        recompute_weights(msgspec.structs.replace(good, claims=(worthless,)))
    assert refused.value.code == "CLAIM_WORTHLESS"
    with pytest.raises(GradeError) as refused:
        recompute_weights(msgspec.structs.replace(good, claims=good.claims * 2))
    assert refused.value.code == "CLAIM_DUPLICATE"


def test_a_receipt_from_before_later_fields_existed_still_verifies() -> None:
    """Documents without `targets` and `replaces` read, and recompute, as before."""
    document = msgspec.to_builtins(weights_predicate())
    older = {name: value for name, value in document.items() if name not in ("targets", "replaces")}
    statement = dsse.Statement(dsse.STATEMENT_TYPE, (), "urn:cacheon:receipt:weights.v1", older)
    again = read_predicate(dsse.verify(dsse.sign(statement, SECRET), [KEY]), WeightsPredicate)
    assert recompute_weights(again).vector == again.vector


def test_reversed_bounds_make_no_receipt() -> None:
    """An interval that encloses nothing has a code, and is never signed."""
    reversed_bounds = msgspec.structs.replace(grade(ATTEMPT, ARENA), lower_ppm=2_000_000, upper_ppm=1_000_000)
    with pytest.raises(GradeError) as refused:
        verdict_statement(ATTEMPT, "a" * 64, reversed_bounds)
    assert refused.value.code == "VERDICT_INTERVAL_REVERSED"


def forged(**changes: Any) -> bytes:
    """Return the good envelope with top-level fields replaced."""
    return canonical_json(json.loads(ENVELOPE) | changes)


def repacked(statement: dict[str, Any]) -> bytes:
    """Return an envelope around another payload under the old signature."""
    return forged(payload=base64.b64encode(canonical_json(statement)).decode())


PAYLOAD = json.loads(base64.b64decode(json.loads(ENVELOPE)["payload"]))


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "RECEIPT_MALFORMED"),
        (b"{}", "RECEIPT_MALFORMED"),
        (ENVELOPE + b"\n", "RECEIPT_MALFORMED"),
        (b"[" * 100_000, "RECEIPT_MALFORMED"),
        (forged(payloadType="text/plain"), "RECEIPT_MALFORMED"),
        (forged(payload="%%%"), "RECEIPT_MALFORMED"),
        (forged(signatures=[]), "RECEIPT_UNTRUSTED"),
        (repacked(PAYLOAD | {"predicateType": "x"}), "RECEIPT_FORGED"),
        (forged(signatures=[{"keyid": dsse.key_id(KEY), "sig": "AAAA"}]), "RECEIPT_KEY_INVALID"),
        (forged(signatures=[{"keyid": dsse.key_id(KEY), "sig": "é"}]), "RECEIPT_MALFORMED"),
    ],
)
def test_a_changed_receipt_is_refused_with_a_code(data: bytes, code: str) -> None:
    """Nothing is read from a receipt whose signature does not hold."""
    with pytest.raises(GradeError) as refused:
        dsse.verify(data, [KEY])
    assert refused.value.code == code


def test_only_named_keys_are_believed() -> None:
    """A valid signature by a stranger is no signature."""
    stranger = dsse.public_key(bytes(32))
    with pytest.raises(GradeError) as refused:
        dsse.verify(ENVELOPE, [stranger])
    assert refused.value.code == "RECEIPT_UNTRUSTED"
    assert dsse.verify(ENVELOPE, [stranger, KEY]).subject == STATEMENT.subject


@settings(deadline=None)
@given(st.integers(0, len(ENVELOPE) - 1), st.integers(0, 255))
def test_no_single_byte_can_be_changed(at: int, byte: int) -> None:
    """Every altered byte is noticed, with one of our errors."""
    changed = ENVELOPE[:at] + bytes([byte]) + ENVELOPE[at + 1 :]
    if changed == ENVELOPE:
        return
    with pytest.raises(CacheonError):
        dsse.verify(changed, [KEY])


def test_a_signature_has_one_spelling() -> None:
    """Bits of the last base64 character that decoding ignores make no second envelope of the same statement."""
    (signature,) = json.loads(ENVELOPE)["signatures"]
    assert signature["sig"].endswith("==")
    last = signature["sig"][-3]
    other = chr(ord(last) + 1)
    assert base64.b64decode(signature["sig"]) == base64.b64decode(signature["sig"][:-3] + other + "==")
    with pytest.raises(GradeError) as refused:
        dsse.verify(forged(signatures=[signature | {"sig": signature["sig"][:-3] + other + "=="}]), [KEY])
    assert refused.value.code == "RECEIPT_MALFORMED"


def test_reading_a_receipt_as_another_kind_is_refused() -> None:
    """A verdict receipt is no crown receipt."""
    with pytest.raises(GradeError) as refused:
        read_predicate(STATEMENT, CrownPredicate)
    assert refused.value.code == "RECEIPT_KIND"
    hollow = msgspec.structs.replace(STATEMENT, predicate={})
    with pytest.raises(GradeError) as refused:
        read_predicate(hollow, VerdictPredicate)
    assert refused.value.code == "RECEIPT_MALFORMED"


@pytest.mark.parametrize("secret", [b"", b"short", bytes(33)])
def test_a_key_of_the_wrong_size_is_refused(secret: bytes) -> None:
    """A receipt key is a seed of 32 bytes."""
    with pytest.raises(InternalError) as refused:
        dsse.public_key(secret)
    assert refused.value.code == "RECEIPT_KEY_INVALID"
