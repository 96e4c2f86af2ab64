"""A validator that signs with its own key and lies all the same: each lie has its code."""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from config.canonical import canonical_json, domain_digest, read_json
from config.errors import GradeError
from config.statement import PARTS
from config.target_catalog import load_catalog
from qualify.engine_tree import EngineTree, Part
from scoring import beneath
from scoring.beneath import stood_beneath, tree_digest
from scoring.decision import DecisionPredicate, decision_statement
from scoring.dsse import STATEMENT_TYPE, Statement, Subject, public_key, sign, verify
from scoring.ledger import LEDGER_V1, ledger_statement, make_ledger
from scoring.published import read_receipt, vector_of
from scoring.receipts import CrownPredicate, VerdictPredicate, WeightsPredicate, crown_statement
from scoring.revocation import RevocationPredicate
from scoring.settle import Crown
from scoring.walk import Walk, walk
from tests.scoring.receipts_world import GENESIS_HASH, EvidenceOf, ReceiptsWorld, two_crowns
from tests.scoring.support import TARGET, make_arena

WORLD = two_crowns()
OLD_KEY = bytes(range(1, 33))


def walked(world: ReceiptsWorld, *keys: bytes, attempts: bool = True) -> Walk:
    """Walk the newest vector of a world."""
    return walk(world.read(keys), EvidenceOf(world, attempts=attempts))


def refused(world: ReceiptsWorld, *keys: bytes, attempts: bool = True) -> str:
    """The code with which a world's newest vector is refused."""
    with pytest.raises(GradeError) as found:
        walked(world, *keys, attempts=attempts)
    return found.value.code


def said(data: bytes, secret: bytes = WORLD.secret) -> Any:
    """What a receipt says."""
    return read_receipt(data, "", [public_key(secret)]).predicate


def resign(world: ReceiptsWorld, kind: type[Any], change: Callable[[Any], Any]) -> None:
    """Sign the receipts of a kind again, changed; whoever names them is left as it is."""
    for name, data in list(world.envelopes.items()):
        statement = verify(data, [public_key(world.secret)])
        predicate = read_receipt(data, name, [public_key(world.secret)]).predicate
        if isinstance(predicate, kind) and (changed := change(predicate)) is not None:
            del world.envelopes[name]
            world.put(msgspec.structs.replace(statement, predicate=msgspec.to_builtins(changed)))


# --- Revocations


def revoked(**more: Any) -> ReceiptsWorld:
    """Bob's crown is revoked, and everything burns again."""
    world = copy.deepcopy(WORLD)
    world.revoke("5Bob", **more)
    world.publish(4, 400)
    return world


def test_a_revocation_is_walked_like_a_crown() -> None:
    """Its receipt, its two checks and their attempt files, which show a fault of the crowned bundle."""
    found = walked(revoked())
    (step,) = found.revocations
    assert (step.hotkey, step.reason) == ("5Bob", "NOT_FASTER")
    assert [one.regraded for one in step.verdicts] == [True, True]
    assert (found.crowns, found.former) == ((), 2)
    (unseen,) = walked(revoked(), attempts=False).revocations
    assert [one.regraded for one in unseen.verdicts] == [False, False]


def test_a_crown_is_not_taken_without_proof() -> None:
    """No receipt, checks that speak for the crown, or another reason than they show."""
    world = revoked()
    resign(world, RevocationPredicate, lambda one: msgspec.structs.replace(one, verdict_receipts=("0" * 64,) * 2))
    assert refused(world) == "RECEIPT_MISSING"
    world = copy.deepcopy(WORLD)
    del world.envelopes[world.revoke("5Bob")]
    world.publish(4, 400)
    assert refused(world) == "REVOCATION_UNPROVEN"
    assert refused(revoked(gains=(0.4, -0.3))) == "REVOCATION_UNPROVEN"
    assert refused(revoked(gains=(0.4, 0.4)), attempts=False) == "REVOCATION_UNPROVEN"
    assert refused(revoked(reason="WRONG_OUTPUT")) == "REVOCATION_UNPROVEN"
    assert walked(revoked(reason="WRONG_OUTPUT"), attempts=False).revocations


def test_a_revoked_crown_that_still_earns_is_found_out() -> None:
    """Whatever the weights say, the ledger they name has ended it."""
    world = copy.deepcopy(WORLD)
    paid = world.vector(4, 400)
    world.revoke("5Bob")
    world.put(ledger_statement(world.ledger()))
    still = msgspec.structs.replace(paid, ledger_head=world.state.head)
    world.put(Statement(
        STATEMENT_TYPE, (Subject("weights", {"sha256": still.vector_digest}),), "urn:cacheon:receipt:weights.v1",
        msgspec.to_builtins(still),
    ))
    assert refused(world) == "WEIGHTS_CROWNS_DIFFER"
    honest = copy.deepcopy(WORLD)
    honest.revoke("5Bob")
    honest.put(ledger_statement(honest.ledger()))
    assert walked(honest).later_events == 1  # an observer is told what the vector did not know yet


def test_a_revoked_submission_comes_back_by_a_decision_only() -> None:
    """Crowned again on new attempts, it needs a receipt that says why it was opened again."""
    world = revoked()
    world.crown("5Bob", 210)
    world.publish(5, 500)
    assert refused(world) == "REVIEW_DECISION_MISSING"
    (crown,) = world.state.crowns
    world.put(decision_statement(decision("reopen", "CROWN_REVOKED", crown)))
    assert walked(world).crowns[0].claim.hotkey == "5Bob"


# --- Decisions


def decision(kind: Any, code: str, crown: Crown, **changes: Any) -> DecisionPredicate:
    """A person's decision about the bundle of a crown."""
    made = DecisionPredicate(
        kind, crown.submission_id, crown.hotkey, crown.content_hash, crown.target_id, make_arena().digest, code, "",
        "", "looked at it", 1,
    )
    return msgspec.structs.replace(made, **changes)


def unbelievable() -> ReceiptsWorld:
    """An arena that believes nothing unseen, and a crown that was reviewed."""
    world = ReceiptsWorld(arena_document=make_arena(implausible_speedup_ppm=1_100_000))
    world.crown("5Ann", 90, reviewed=True)
    world.publish(1, 100)
    return world


def test_a_reviewed_verdict_needs_the_decision_of_a_person() -> None:
    """About this bundle, in this arena, and one that accepts."""
    world = unbelievable()
    assert refused(world) == "REVIEW_DECISION_MISSING"
    assert refused(world, attempts=False) == "REVIEW_DECISION_MISSING"
    crown, arena = world.state.crowns[0], world.arena_document.digest
    good = decision("accept", "IMPLAUSIBLE_SPEEDUP", crown, arena_digest=arena)
    wrong: list[dict[str, Any]] = [
        {"kind": "refuse"}, {"kind": "reopen"}, {"code": "NOT_FASTER"}, {"hotkey": "5Eve"}, {"target_id": "other"},
        {"arena_digest": "0" * 64}, {"content_hash": "0" * 64},
    ]
    for change in wrong:
        other = copy.deepcopy(world)
        other.put(decision_statement(msgspec.structs.replace(good, **change)))
        assert refused(other) == "REVIEW_DECISION_MISSING", change
    world.put(decision_statement(good))
    (step,) = walked(world).crowns
    assert [one.reviewed for one in step.verdicts] == [True, True]


def test_a_verdict_that_hides_the_review_is_found_out() -> None:
    """Without the flag, grading the file again gives no PASS."""
    world = unbelievable()
    resign(world, VerdictPredicate, lambda one: msgspec.structs.replace(one, reviewed=False))
    verdicts = {name: data for name, data in world.envelopes.items() if isinstance(said(data), VerdictPredicate)}
    by_role = {said(data).role: name for name, data in verdicts.items()}
    event, world.envelopes = world.events[-1], verdicts
    named = (by_role["primary"], by_role["reproduction"])
    world.crown_receipts[event.digest] = world.put(crown_statement(event, named))
    world.publish(1, 100)
    assert refused(world) == "VERDICT_REGRADE_DIFFERS"


# --- Crowns


def test_a_displaced_crown_that_still_earns_is_found_out() -> None:
    """A ledger in which Bob is crowned beside Ann, on the same slot, is none that settling can make."""
    world = copy.deepcopy(WORLD)
    crowns = [event for event in world.events if event.type == "CROWN"]
    events: list[Any] = []
    for number, event in enumerate(crowns, start=1):
        previous = events[-1].digest if events else "0" * 64
        events.append(msgspec.structs.replace(event, sequence=number, previous=previous))
    predicate = make_ledger(events, {}, genesis_hash=GENESIS_HASH, netuid=2, hotkey=world.validator)
    assert len(predicate.claims) == 2
    subject = Subject("ledger", {"sha256": predicate.head})
    world.put(Statement(STATEMENT_TYPE, (subject,), LEDGER_V1, msgspec.to_builtins(predicate)))
    with pytest.raises(GradeError) as found:
        world.read()
    assert found.value.code == "LEDGER_UNLAWFUL"


def test_a_crown_measured_against_stock_while_another_stood_is_found_out() -> None:
    """The cheapest way to a great speed-up: forget the incumbent."""
    world = ReceiptsWorld()
    world.crown("5Ann", 90)
    state, world.state = world.state, dataclasses.replace(ReceiptsWorld()).state
    first = world.attempt("b" * 64, "5Bob", 210)
    world.state = state
    assert first.identity.incumbent_digest == tree_digest(())
    honest = world.attempt
    world.attempt = lambda *args, **more: msgspec.structs.replace(  # type: ignore[method-assign]
        made := honest(*args, **more),
        identity=msgspec.structs.replace(made.identity, incumbent_digest=tree_digest(())),
    )
    world.crown("5Bob", 210)
    world.publish(1, 300)
    assert refused(world) == "CROWN_INCUMBENT_WRONG"
    assert refused(world, attempts=False) == "CROWN_INCUMBENT_WRONG"


def test_the_tree_beneath_a_crown_is_that_of_the_referee() -> None:
    """Every set that can be active together, in the order in which it is bound, has the digest that attempts name."""
    catalog = load_catalog()
    for names in (*itertools.combinations(sorted(catalog.targets), 1), ("norm.rmsnorm", "activation.silu_and_mul")):
        parts = [Part(name, f"{number:064x}") for number, name in enumerate(names)]
        try:
            tree = EngineTree.of(catalog, parts)
        except Exception:  # noqa: BLE001 - a target that requires others makes no tree by itself
            continue
        crowns = tuple(
            Crown(name, name, catalog.targets[name].members, "5A", content_hash, "", 2, 1, "")
            for name, content_hash in parts
        )
        assert stood_beneath(tree.digest, crowns, names[0]) is True
        assert stood_beneath("0" * 64, crowns, names[0]) is False
        assert stood_beneath(EngineTree(catalog).digest, crowns, "another.target") is True


def test_too_many_crowns_are_said_to_be_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is proved by giving up, and nobody is accused."""
    crowns = tuple(Crown(f"s{n}", f"t{n}", (f"t{n}",), "5A", f"{n:064x}", "", 2, 1, "") for n in range(9))
    monkeypatch.setattr(beneath, "TRIES", 50)
    assert stood_beneath("0" * 64, crowns, "t0") is None


def test_what_a_crown_is_for_is_what_was_measured() -> None:
    """A document of another target, or of one with other slots, does not pass for the crown's."""
    for document in ({"target_id": "easy.target", "members": [TARGET]}, {"target_id": TARGET, "members": ["x"]}):
        world = ReceiptsWorld()
        honest = world.attempt

        def other(
            *args: Any, honest: Any = honest, document: Any = document, world: Any = world, **more: Any
        ) -> Any:
            made = honest(*args, **more)
            name = domain_digest("cacheon.target-spec", document)
            world.targets[name] = document
            return msgspec.structs.replace(made, identity=msgspec.structs.replace(made.identity, target_digest=name))

        world.attempt = other  # type: ignore[method-assign]
        world.crown("5Ann", 90)
        world.publish(1, 100)
        assert refused(world) == "CROWN_UNPROVEN"


def test_two_attempts_on_the_same_cores_are_no_pair() -> None:
    """Both regrade to the verdicts that were signed, and the crown is not proven all the same."""
    world = ReceiptsWorld()
    honest = world.reproduce

    def same_cores(first: Any, named: str, gain: float = 0.4) -> Any:
        again = honest(first, named, gain)
        launches = tuple(
            msgspec.structs.replace(
                launch, baseline=msgspec.structs.replace(launch.baseline, core=launch.baseline.slot),
                candidate=msgspec.structs.replace(launch.candidate, core=launch.candidate.slot),
            )
            for launch in again.launches
        )
        environment = msgspec.structs.replace(again.environment, cores=(0, 1))
        return msgspec.structs.replace(again, launches=launches, environment=environment)

    world.reproduce = same_cores  # type: ignore[method-assign]
    world.crown("5Ann", 90)
    world.publish(1, 100)
    assert refused(world) == "CROWN_UNPROVEN"


def test_a_former_crown_needs_its_proof_too() -> None:
    """Who took Ann's crown with a crown of his own has to have earned it, whether he still holds it or not."""
    world = copy.deepcopy(WORLD)
    ann = next(event for event in world.events if event.order.hotkey == "5Ann")
    del world.envelopes[world.crown_receipts[ann.digest]]
    assert refused(world) == "RECEIPT_MISSING"
    pruned = copy.deepcopy(WORLD)
    for name in ann.evidence:
        del pruned.attempts[name]  # attempt files of crowns that have ended are not asked for
    assert walked(pruned).former == 1


def test_layers_that_were_waived_are_those_of_the_verdicts() -> None:
    """A crown's receipt cannot hide them, nor invent some; older receipts do not say."""
    world = ReceiptsWorld()
    world.crown("5Ann", 90)
    event = world.events[-1]
    honest = next(one for data in world.envelopes.values() if isinstance(one := said(data), CrownPredicate))
    for waived, code in (((), ""), (("landlock",), "CROWN_UNPROVEN")):
        other = copy.deepcopy(world)
        other.crown_receipts[event.digest] = other.put(crown_statement(event, honest.verdict_receipts, waived=waived))
        other.publish(1, 100)
        if code:
            assert refused(other) == code
        else:
            assert walked(other).crowns


# --- Weights, keys, envelopes


def test_a_vector_that_replaces_another_leaves_it_there() -> None:
    """The replaced one is of the same epoch, published, and no newer."""
    first = vector_of(WORLD.read())
    world = copy.deepcopy(WORLD)
    world.publish(3, 305, replaces=first)
    assert walked(world).predicate.vector.block == 305
    del world.envelopes[first]
    assert refused(world) == "RECEIPT_MISSING"
    world = copy.deepcopy(WORLD)
    world.publish(3, 299, replaces=first)
    assert refused(world) == "WEIGHTS_STALE"
    world = copy.deepcopy(WORLD)
    world.publish(4, 400, replaces=first)
    assert refused(world) == "WEIGHTS_CONTRADICT"


def test_a_vector_from_a_ledger_that_nobody_has_stops_later_ones_too() -> None:
    """An earlier epoch's head that the ledger does not know is another history."""
    other = ReceiptsWorld(number=50)
    other.crown("5Eve", 95)
    world = copy.deepcopy(WORLD)
    resign(
        world, WeightsPredicate,
        lambda one: msgspec.structs.replace(one, ledger_head=other.state.head) if one.epoch == 2 else None,
    )
    assert refused(world) == "LEDGER_HEAD_UNKNOWN"


def test_targets_that_nobody_claims_are_no_part_of_a_vector() -> None:
    """What is registered is said of the claims' targets, and of nothing else."""
    world = copy.deepcopy(WORLD)
    resign(world, WeightsPredicate, lambda one: msgspec.structs.replace(
        one, targets=(*one.targets, "z.other")) if one.epoch == 3 else None)
    assert refused(world) == "WEIGHTS_CROWNS_DIFFER"


def test_a_key_that_was_replaced_signs_nothing_later() -> None:
    """Rotation is no fault; the older key's return is one."""
    world = ReceiptsWorld(secret=OLD_KEY)
    keys = (public_key(OLD_KEY), public_key(bytes(range(32))))
    world.crown("5Ann", 90)
    world.publish(1, 100)
    world.publish(2, 200)
    world.secret = bytes(range(32))
    world.publish(3, 300)
    assert walked(world, *keys).predicate.epoch == 3
    world.secret = OLD_KEY
    world.publish(4, 400)
    assert refused(world, *keys) == "RECEIPT_KEY_RETIRED"


def test_one_attempt_has_one_verdict() -> None:
    """A FAIL and a PASS on one file cannot both be."""
    world = copy.deepcopy(WORLD)
    data = next(data for data in world.envelopes.values() if isinstance(said(data), VerdictPredicate))
    statement = verify(data, [public_key(world.secret)])
    verdict = statement.predicate["verdict"]
    assert isinstance(verdict, dict)
    world.put(msgspec.structs.replace(
        statement, predicate=statement.predicate | {"verdict": verdict | {"outcome": "FAIL", "code": "NOT_FASTER"}}
    ))
    with pytest.raises(GradeError) as found:
        world.read()
    assert found.value.code == "VERDICTS_CONTRADICT"


def test_a_receipt_is_about_what_it_speaks_of() -> None:
    """The subject of every kind that names its own is compared with it."""
    world = revoked()
    world.put(decision_statement(decision("reopen", "X", WORLD.state.crowns[0])))
    for data in list(world.envelopes.values()):
        statement = verify(data, [public_key(world.secret)])
        if statement.predicate_type.endswith(":verdict.v1"):
            continue
        other = msgspec.structs.replace(statement, subject=(Subject("bundle", {"sha256": "f" * 64}),))
        with pytest.raises(GradeError) as found:
            said(sign(other, world.secret))
        assert found.value.code == "RECEIPT_SUBJECT_DIFFERS"


def test_an_envelope_is_bounded() -> None:
    """A second signature, a number that no answer can show, and more parts than any receipt has."""
    world = copy.deepcopy(WORLD)
    key = [public_key(world.secret)]
    data = next(iter(world.envelopes.values()))
    document = read_json(data)
    document["signatures"] *= 2
    statement = Statement(STATEMENT_TYPE, (Subject("x", {"sha256": "0" * 64}),), "urn:cacheon:receipt:x.v1", {})
    cases = [
        canonical_json(document),
        world.envelopes[world.put(msgspec.structs.replace(statement, predicate={"n": 1 << 70}))],
        world.envelopes[world.put(msgspec.structs.replace(statement, predicate={"n": [[]] * PARTS}))],
    ]
    for bad in cases:
        with pytest.raises(GradeError) as found:
            read_receipt(bad, "", key)
        assert found.value.code == "RECEIPT_MALFORMED"
