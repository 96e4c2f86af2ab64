"""From a weight vector back to the attempt files: what holds, and the code of every link that can break."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from config.errors import GradeError
from scoring.attempt import encode_attempt
from scoring.dsse import STATEMENT_TYPE, Statement, Subject, public_key, sign
from scoring.ledger import LEDGER_V1, ledger_statement
from scoring.published import gather, read_receipt, vector_of
from scoring.receipts import (
    VERDICT_V1,
    WEIGHTS_V1,
    CrownPredicate,
    VerdictPredicate,
    WeightsPredicate,
    crown_statement,
    weights_statement,
)
from scoring.settle import GENESIS
from scoring.walk import walk
from tests.scoring.receipts_world import EvidenceOf, ReceiptsWorld, two_crowns

WORLD = two_crowns()
PUBLISHED = WORLD.read()


def broken(change: Callable[[ReceiptsWorld], None], epoch: int | None = None) -> str:
    """The code with which a changed copy of the world is refused."""
    world = copy.deepcopy(WORLD)
    change(world)
    with pytest.raises(GradeError) as refused:
        walk(world.read(), EvidenceOf(world), epoch)
    return refused.value.code


def receipts_of(world: ReceiptsWorld, kind: type[Any]) -> dict[str, Any]:
    """The predicates of a kind, by receipt."""
    key = [public_key(world.secret)]
    found = {name: read_receipt(data, name, key).predicate for name, data in world.envelopes.items()}
    return {name: predicate for name, predicate in found.items() if isinstance(predicate, kind)}


def test_the_newest_vector_is_reproduced_from_its_receipts() -> None:
    """One crown, two verdicts, two attempt files graded again, and the very vector that was signed."""
    found = walk(PUBLISHED, EvidenceOf(WORLD))
    assert found.predicate.epoch == 3
    assert found.projection.vector == found.predicate.vector
    (step,) = found.crowns
    assert (step.claim.hotkey, step.target_known) == ("5Bob", True)
    assert [verdict.regraded for verdict in step.verdicts] == [True, True]
    assert step.claim.speedup_ppm == min(verdict.lower_ppm for verdict in step.verdicts)


@pytest.mark.parametrize(("epoch", "paid"), [(1, []), (2, ["5Ann"])])
def test_every_epoch_is_reproduced_from_the_ledger_as_it_was_then(epoch: int, paid: list[str]) -> None:
    """The newest ledger holds the older ones; before the first crown there is nothing to walk."""
    found = walk(PUBLISHED, EvidenceOf(WORLD), epoch)
    assert [step.claim.hotkey for step in found.crowns] == paid
    assert found.projection.vector == found.predicate.vector


def test_without_evidence_it_is_said_what_was_not_checked() -> None:
    """Verdicts are signed and consistent; that they were not graded again is part of the result."""
    (step,) = walk(PUBLISHED, EvidenceOf(WORLD, attempts=False, arenas=False, targets=False)).crowns
    assert [verdict.regraded for verdict in step.verdicts] == [False, False]
    assert not step.target_known


def test_a_missing_receipt_is_named() -> None:
    """Of a crown and of each verdict."""
    crowns, verdicts = receipts_of(WORLD, CrownPredicate), receipts_of(WORLD, VerdictPredicate)
    crown = next(name for name, one in crowns.items() if one.event.order.hotkey == "5Bob")
    for name in (crown, *crowns[crown].verdict_receipts):
        assert name in crowns or name in verdicts
        assert broken(lambda world, name=name: world.envelopes.pop(name)) == "RECEIPT_MISSING"  # type: ignore[misc]


def test_a_ledger_that_does_not_reach_the_vector_is_named() -> None:
    """None at all, or one that is too old."""

    def drop(world: ReceiptsWorld, keep: int) -> None:
        for name, data in list(world.envelopes.items()):
            predicate = read_receipt(data, name, [public_key(world.secret)])
            if predicate.kind == LEDGER_V1 and len(predicate.predicate.events) > keep:  # type: ignore[union-attr]
                del world.envelopes[name]

    assert broken(lambda world: drop(world, 1)) == "LEDGER_HEAD_UNKNOWN"
    assert broken(lambda world: drop(world, -1)) == "LEDGER_HEAD_UNKNOWN"


def test_a_strangers_key_is_no_key() -> None:
    """A receipt that another key signed, among good ones or everywhere."""
    with pytest.raises(GradeError) as refused:
        WORLD.read((public_key(bytes(32)),))
    assert refused.value.code == "RECEIPT_UNTRUSTED"

    def forge(world: ReceiptsWorld) -> None:
        world.put(weights_statement(world.vector(4, 400)), bytes(32))

    assert broken(forge) == "RECEIPT_UNTRUSTED"


def test_receipts_of_two_validators_do_not_mix() -> None:
    """Even under two keys that are both believed."""
    other = ReceiptsWorld(secret=bytes(32), validator="5COther")
    other.publish(1, 100)
    keys = [public_key(WORLD.secret), public_key(other.secret)]
    envelopes = WORLD.envelopes | other.envelopes
    with pytest.raises(GradeError) as refused:
        gather(read_receipt(data, name, keys) for name, data in envelopes.items())
    assert refused.value.code == "RECEIPTS_MIXED"


def resigned(world: ReceiptsWorld, **changes: Any) -> None:
    """Replace the newest weights receipt with one that says something else and is signed nevertheless."""
    found = receipts_of(world, WeightsPredicate)
    newest = max(found, key=lambda name: found[name].epoch)
    del world.envelopes[newest]
    predicate = msgspec.structs.replace(found[newest], **changes)
    subject = Subject("weights", {"sha256": predicate.vector_digest})
    world.put(Statement(STATEMENT_TYPE, (subject,), WEIGHTS_V1, msgspec.to_builtins(predicate)))


def test_a_validator_that_signs_what_does_not_follow_is_found_out() -> None:
    """Another policy, other shares, other claimants: signed by the right key, and wrong."""
    honest = WORLD.vector(3, 300)
    richer = msgspec.structs.replace(honest.vector, entries=((WORLD.validator, 1_000_000),))
    policy = msgspec.structs.replace(honest.policy, undistributed="renormalise")
    assert broken(lambda world: resigned(world, vector=richer)) == "RECEIPT_WEIGHTS_WRONG"
    assert broken(lambda world: resigned(world, policy=policy)) == "WEIGHTS_POLICY_DIFFERS"
    assert broken(lambda world: resigned(world, present=())) == "RECEIPT_WEIGHTS_WRONG"
    assert broken(lambda world: resigned(world, vector_digest="0" * 64)) == "RECEIPT_WEIGHTS_WRONG"


def test_a_crown_too_few_or_too_many_is_named() -> None:
    """A vector that leaves the crown out, invents one, or pays the displaced one; each consistent in itself."""

    def pay(world: ReceiptsWorld, claims: tuple[Any, ...], **more: Any) -> None:
        from scoring.projection import project
        from scoring.receipts import present_claimants

        old = world.vector(3, 300)
        targets = tuple(sorted({claim.target_id for claim in claims}))
        hotkeys = tuple(claim.hotkey for claim in claims)
        vector = project(claims, block=300, present=hotkeys, policy=old.policy, targets=targets).vector
        resigned(
            world, claims=claims, vector=vector, vector_digest=vector.digest, targets=targets,
            present=present_claimants(claims, hotkeys), **more,
        )

    honest = WORLD.vector(3, 300)
    (bob,) = honest.claims
    thief = msgspec.structs.replace(bob, claim_id="f" * 64, hotkey="5Thief", target_id="attention.decode")
    assert broken(lambda world: pay(world, (), crown_receipts=())) == "WEIGHTS_CROWNS_DIFFER"
    assert broken(lambda world: pay(world, (bob, thief))) == "WEIGHTS_CROWNS_DIFFER"
    better = msgspec.structs.replace(bob, speedup_ppm=bob.speedup_ppm + 1)
    assert broken(lambda world: pay(world, (better,))) == "WEIGHTS_CROWNS_DIFFER"
    assert broken(lambda world: pay(world, (bob,), crown_receipts=())) == "WEIGHTS_CROWNS_DIFFER"
    ann = next(name for name, one in receipts_of(WORLD, CrownPredicate).items() if one.event.order.hotkey == "5Ann")
    assert broken(lambda world: pay(world, (bob,), crown_receipts=(ann,))) == "WEIGHTS_CROWNS_DIFFER"
    assert broken(lambda world: pay(world, (bob,), ledger_head=GENESIS)) in ("WEIGHTS_STALE", "WEIGHTS_CROWNS_DIFFER")


def test_an_old_receipt_with_a_new_epoch_is_stale() -> None:
    """A later epoch from an older ledger, or at no later block."""

    def old_ledger(world: ReceiptsWorld) -> None:
        older = next(one for one in receipts_of(world, WeightsPredicate).values() if one.epoch == 2)
        world.put(weights_statement(msgspec.structs.replace(older, epoch=4)))

    def same_block(world: ReceiptsWorld) -> None:
        world.put(weights_statement(world.vector(4, 300)))

    assert broken(old_ledger) == "WEIGHTS_STALE"
    assert broken(same_block) == "WEIGHTS_STALE"
    assert broken(lambda world: None, epoch=9) == "WEIGHTS_EPOCH_MISSING"
    assert broken(lambda world: world.envelopes.clear()) == "WEIGHTS_EPOCH_MISSING"


def test_two_vectors_for_one_epoch_contradict_unless_one_replaces_the_other() -> None:
    """A second receipt of an epoch names the first, or both are refused."""
    assert broken(lambda world: world.publish(3, 305)) == "WEIGHTS_CONTRADICT"
    world = copy.deepcopy(WORLD)
    first = vector_of(world.read())
    second = world.publish(3, 305, replaces=first)
    third = world.publish(3, 310, replaces=second)
    assert walk(world.read(), EvidenceOf(world)).receipt == third


def test_a_rewritten_ledger_is_a_fork() -> None:
    """A node that forgot a crown, was restored and went on, has signed two histories."""

    def rewrite(world: ReceiptsWorld) -> None:
        again = ReceiptsWorld()
        again.crown("5Eve", 95)
        world.put(ledger_statement(again.ledger()))

    assert broken(rewrite) == "LEDGER_FORKED"


def test_a_verdict_that_its_evidence_does_not_give_is_found_out() -> None:
    """Signed by the right key over the right file: grading the file again says otherwise."""

    def lie(world: ReceiptsWorld) -> None:
        world.envelopes.clear()
        world.events, world.crown_receipts, world.state = [], {}, type(world.state)()
        from tests.scoring import receipts_world

        honest = receipts_world.grade
        try:
            receipts_world.grade = lambda attempt, arena, **_: msgspec.structs.replace(  # type: ignore[attr-defined]
                honest(attempt, arena), lower_ppm=1_600_000, upper_ppm=2_000_000
            )
            world.crown("5Liar", 90)
        finally:
            receipts_world.grade = honest  # type: ignore[attr-defined]
        world.publish(3, 300)

    assert broken(lie) == "VERDICT_REGRADE_DIFFERS"


def test_a_changed_attempt_file_is_found_out() -> None:
    """One byte, another file in its place, or no arena to grade it under."""
    step = walk(PUBLISHED, EvidenceOf(WORLD)).crowns[0].verdicts[0]

    def one_byte(world: ReceiptsWorld) -> None:
        data = bytearray(world.attempts[step.attempt])
        data[len(data) // 2] ^= 1
        world.attempts[step.attempt] = bytes(data)

    def another(world: ReceiptsWorld) -> None:
        world.attempts[step.attempt] = encode_attempt(world.attempt("0" * 64, "5Bob", 210))

    def foreign_arena(world: ReceiptsWorld) -> None:
        world.arena_document = msgspec.structs.replace(world.arena_document, id="other")

    assert broken(one_byte) == "ATTEMPT_DIGEST_MISMATCH"
    assert broken(another) == "ATTEMPT_DIGEST_MISMATCH"
    assert broken(foreign_arena) == "ARENA_NOT_PUBLISHED"
    assert broken(lambda world: world.targets.update({name: {} for name in world.targets})) == "RECEIPT_DIGEST_DIFFERS"


@pytest.mark.parametrize(
    "changes",
    [
        {"role": "reproduction"},
        {"previous_attempt": "0" * 64},
        {"target_id": "attention.decode"},
        {"arena_digest": "0" * 64},
        {"incumbent_digest": "0" * 64},
        {"candidate_tree_digest": "0" * 64},
        {"attempt_digest": "0" * 64},
    ],
)
def test_a_crown_needs_two_verdicts_that_are_about_it(changes: dict[str, str]) -> None:
    """A crown whose receipt leads to verdicts with other terms than its event is not proven."""

    def swap(world: ReceiptsWorld) -> None:
        verdicts = receipts_of(world, VerdictPredicate)
        world.envelopes.clear()
        event = world.events[-1]
        wanted = {attempt: one for one in verdicts.values() if (attempt := one.attempt_digest) in event.evidence}
        digests = []
        for attempt in event.evidence:
            predicate = wanted[attempt]
            if predicate.role == "reproduction":
                predicate = msgspec.structs.replace(predicate, **changes)
                if changes == {"role": "reproduction"}:
                    predicate = msgspec.structs.replace(predicate, role="primary")
            subject = Subject("bundle", {"sha256": event.order.content_hash})
            digests.append(
                world.put(Statement(STATEMENT_TYPE, (subject,), VERDICT_V1, msgspec.to_builtins(predicate)))
            )
        world.crown_receipts[event.digest] = world.put(crown_statement(event, (digests[0], digests[1])))
        world.publish(3, 300)

    assert broken(swap) == "CROWN_UNPROVEN"


def test_kinds_that_no_weight_follows_from_are_verified_and_left_alone() -> None:
    """A receipt of a later release does not keep an observer from the vector; one of another project does."""
    subject = Subject("bundle", {"sha256": "0" * 64})
    world = copy.deepcopy(WORLD)
    world.put(Statement(STATEMENT_TYPE, (subject,), "urn:cacheon:receipt:later.v1", {"any": 1}))
    assert walk(world.read(), EvidenceOf(world)).receipt == vector_of(PUBLISHED)
    data = sign(Statement(STATEMENT_TYPE, (subject,), "https://slsa.dev/provenance/v1", {}), WORLD.secret)
    with pytest.raises(GradeError) as refused:
        read_receipt(data, "0" * 64, [public_key(WORLD.secret)])
    assert refused.value.code == "RECEIPT_KIND"
