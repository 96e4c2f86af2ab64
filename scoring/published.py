"""A validator's published receipts as one consistent set: whose they are, which ledger holds, an epoch's one vector.

Invariants
1. Everything in the set was signed by a key that was named; nothing here believes a file for where it lay.
2. All of it is of one validator on one subnet of one chain, and its ledgers are one chain of events.
3. From epoch to epoch blocks grow and the ledger gets no shorter; an epoch has one vector, and a second one only when
   it names the first as replaced. A vector that was replaced is there as well.
4. One attempt has one verdict. One crown keeps the receipt that the ledger first named for it.
5. Receipt keys follow one another: a key that was replaced signs nothing later. Only so can an observer tell what a
   thief signs with it from what the validator does.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

import msgspec

from config.errors import GradeError
from config.statement import Statement
from scoring.decision import DECISION_V1, DecisionPredicate, read_decision
from scoring.dsse import verify_signed
from scoring.ledger import LEDGER_V1, LedgerPredicate, check_ledger, read_ledger_predicate
from scoring.receipts import (
    CROWN_V1,
    VERDICT_V1,
    WEIGHTS_V1,
    CrownPredicate,
    VerdictPredicate,
    WeightsPredicate,
    read_predicate,
    recompute_weights,
    require_interval,
)
from scoring.revocation import REVOCATION_V1, RevocationPredicate, read_revocation
from scoring.settle import GENESIS, CrownState, apply_event

Predicate = (
    VerdictPredicate | CrownPredicate | WeightsPredicate | RevocationPredicate | DecisionPredicate | LedgerPredicate
    | Statement
)
_FAMILY = "urn:cacheon:receipt:"
_KINDS: Mapping[str, type[VerdictPredicate | CrownPredicate | WeightsPredicate]] = {
    VERDICT_V1: VerdictPredicate, CROWN_V1: CrownPredicate, WEIGHTS_V1: WeightsPredicate,
}


class Receipt(msgspec.Struct, frozen=True):
    """One verified receipt: the digest of its envelope, its predicate type, what it is about, and what it says.

    Of kinds that no weight follows from, the predicate is the statement itself.
    """

    digest: str
    kind: str
    subject: str  # sha256 of the subject
    predicate: Predicate
    key: str = ""  # id of the receipt key that signed it


class Published(msgspec.Struct, frozen=True):
    """Verified receipts by digest. Make it with `gather`, which checks that they belong together."""

    verdicts: dict[str, Receipt]
    crowns: dict[str, Receipt]
    weights: dict[str, WeightsPredicate]
    revocations: dict[str, Receipt]
    decisions: dict[str, DecisionPredicate]
    ledger: LedgerPredicate | None  # the longest one
    sequence_of: dict[str, int]  # of the settlement event with that digest; `GENESIS` is 0


class PolicyChange(msgspec.Struct, frozen=True):
    """A field of the policy that an epoch's vector has otherwise than the vector before it."""

    epoch: int
    field: str
    before: str
    after: str


def read_receipt(data: bytes, digest: str, keys: Iterable[bytes]) -> Receipt:
    """Verify one receipt of any kind under `keys`, and what it claims about itself.

    Raises `GradeError`: those of `scoring.dsse.verify` and of `recompute_weights`, RECEIPT_KIND, RECEIPT_MALFORMED,
    RECEIPT_SUBJECT_DIFFERS, LEDGER_INCONSISTENT, LEDGER_UNLAWFUL, CROWN_UNPROVEN, VERDICT_INTERVAL_REVERSED.
    """
    statement, key = verify_signed(data, keys)
    predicate = _predicate(statement)
    subject = _subject(statement)
    _require_subject(predicate, subject)
    match predicate:
        case WeightsPredicate():
            recompute_weights(predicate)
        case VerdictPredicate():
            require_interval(predicate.verdict)
        case CrownPredicate():
            if predicate.event.digest != predicate.event_digest or predicate.event.type != "CROWN":
                raise GradeError("CROWN_UNPROVEN", "the crown's receipt names another event than it holds")
        case LedgerPredicate():
            check_ledger(predicate)
    return Receipt(digest, statement.predicate_type, subject, predicate, key)


def gather(receipts: Iterable[Receipt]) -> Published:
    """Return verified receipts as one set.

    Raises `GradeError`: RECEIPTS_MIXED, LEDGER_FORKED, VERDICTS_CONTRADICT, RECEIPT_KEY_RETIRED.
    """
    verdicts: dict[str, Receipt] = {}
    crowns: dict[str, Receipt] = {}
    weights: dict[str, WeightsPredicate] = {}
    revocations: dict[str, Receipt] = {}
    decisions: dict[str, DecisionPredicate] = {}
    ledger: LedgerPredicate | None = None  # a node keeps many, each with all events of those before: one is held here
    validators: set[tuple[str, int, str | None]] = set()
    spans: dict[tuple[str, str], tuple[int, int]] = {}
    for receipt in receipts:
        _note_span(spans, receipt)
        match receipt.predicate:
            case VerdictPredicate():
                verdicts[receipt.digest] = receipt
            case CrownPredicate():
                crowns[receipt.digest] = receipt
            case WeightsPredicate():
                weights[receipt.digest] = receipt.predicate
                validators.add((receipt.predicate.policy.validator_hotkey, receipt.predicate.netuid, None))
            case RevocationPredicate():
                revocations[receipt.digest] = receipt
            case DecisionPredicate():
                decisions[receipt.digest] = receipt.predicate
            case LedgerPredicate():
                one = receipt.predicate
                validators.add((one.hotkey, one.netuid, one.genesis_hash))
                _require_one_validator(validators)
                ledger = one if ledger is None else _longer(ledger, one)
    _require_one_validator(validators)
    _require_one_verdict_each(verdicts.values())
    _require_keys_in_turn(spans)
    return Published(verdicts, crowns, weights, revocations, decisions, ledger, _sequences(ledger))


def vector_of(published: Published, epoch: int | None = None) -> str:
    """Return the digest of the weights receipt that holds for `epoch` (None: the newest one).

    Raises `GradeError`: WEIGHTS_EPOCH_MISSING, WEIGHTS_CONTRADICT, WEIGHTS_STALE, LEDGER_HEAD_UNKNOWN, RECEIPT_MISSING.
    """
    newest = max((one.epoch for one in published.weights.values()), default=None)
    wanted = newest if epoch is None else epoch
    found = {digest: one for digest, one in published.weights.items() if one.epoch == wanted}
    if wanted is None or not found:
        what = f"of epoch {wanted}; the newest is of epoch {newest}" if newest is not None else "at all"
        raise GradeError("WEIGHTS_EPOCH_MISSING", f"there is no weights receipt {what}")
    replaced = {one.replaces for one in found.values()} - {""}
    for name in sorted(replaced - found.keys()):
        if name in published.weights:
            raise GradeError("WEIGHTS_CONTRADICT", f"a vector of epoch {wanted} replaces one of another epoch")
        raise GradeError("RECEIPT_MISSING", f"the weights receipt {name[:12]}, replaced in epoch {wanted}, is missing")
    standing = sorted(digest for digest in found if digest not in replaced)
    if len(standing) != 1:
        raise GradeError(
            "WEIGHTS_CONTRADICT",
            f"epoch {wanted} has {len(found)} weights receipts, and none of {_short(standing)} replaces the others",
        )
    _require_forward(published, found[standing[0]])
    return standing[0]


def policy_changes(published: Published, epoch: int) -> tuple[PolicyChange, ...]:
    """Return how the policy of the vectors changed up to `epoch`, oldest first."""
    upto = sorted(
        (one for one in published.weights.values() if one.epoch <= epoch), key=lambda one: (one.epoch, one.vector.block)
    )
    return tuple(
        PolicyChange(after.epoch, name, str(old), str(new))
        for before, after in itertools.pairwise(upto)
        for name in after.policy.__struct_fields__
        if (old := getattr(before.policy, name)) != (new := getattr(after.policy, name))
    )


def state_at(published: Published, head: str) -> CrownState:
    """Return the crowns after the settlement event with digest `head`. Raises `GradeError` (LEDGER_HEAD_UNKNOWN)."""
    state = CrownState()
    if head == GENESIS:
        return state
    for event in published.ledger.events if published.ledger is not None else ():
        state = apply_event(state, event)  # the whole ledger was replayed when it was read
        if state.head == head:
            return state
    raise GradeError("LEDGER_HEAD_UNKNOWN", f"no ledger here holds the settlement event {head[:12]}")


def _predicate(statement: Statement) -> Predicate:
    if statement.predicate_type == LEDGER_V1:
        return read_ledger_predicate(statement)
    if statement.predicate_type == REVOCATION_V1:
        return read_revocation(statement)
    if statement.predicate_type == DECISION_V1:
        return read_decision(statement)
    kind = _KINDS.get(statement.predicate_type)
    if kind is not None:
        return read_predicate(statement, kind)
    if not statement.predicate_type.startswith(_FAMILY):
        raise GradeError("RECEIPT_KIND", f"{statement.predicate_type[:60]!r} is no kind of receipt of this project")
    return statement


def _subject(statement: Statement) -> str:
    if len(statement.subject) != 1 or set(statement.subject[0].digest) != {"sha256"}:
        raise GradeError("RECEIPT_MALFORMED", "a receipt has one subject, with its SHA-256")
    return statement.subject[0].digest["sha256"]


def _require_subject(predicate: Predicate, subject: str) -> None:
    match predicate:
        case CrownPredicate() | RevocationPredicate():
            about = predicate.event.order.content_hash
        case WeightsPredicate():
            about = predicate.vector_digest
        case LedgerPredicate():
            about = predicate.head
        case DecisionPredicate():
            about = predicate.content_hash
        case _:  # a verdict names its bundle nowhere else
            return
    if subject != about:
        raise GradeError(
            "RECEIPT_SUBJECT_DIFFERS", f"the receipt is headed as one about {subject[:12]}, and speaks of {about[:12]}"
        )


def _require_one_verdict_each(verdicts: Iterable[Receipt]) -> None:
    seen: dict[str, Receipt] = {}
    for receipt in verdicts:
        assert isinstance(receipt.predicate, VerdictPredicate)
        other = seen.setdefault(receipt.predicate.attempt_digest, receipt)
        if (other.predicate, other.subject) != (receipt.predicate, receipt.subject):
            raise GradeError(
                "VERDICTS_CONTRADICT", f"attempt {receipt.predicate.attempt_digest[:12]} has two verdicts that differ: "
                f"receipts {_short(sorted((other.digest, receipt.digest)))}",
            )


def _note_span(spans: dict[tuple[str, str], tuple[int, int]], receipt: Receipt) -> None:
    """Note from when to when a key signed receipts of a kind: by epoch, by length of the ledger."""
    match receipt.predicate:
        case WeightsPredicate():
            at = receipt.predicate.epoch
        case LedgerPredicate():
            at = len(receipt.predicate.events)
        case _:
            return
    low, high = spans.get((receipt.kind, receipt.key), (at, at))
    spans[receipt.kind, receipt.key] = (min(low, at), max(high, at))


def _require_keys_in_turn(spans: Mapping[tuple[str, str], tuple[int, int]]) -> None:
    """Refuse a key that signs after another one has taken its place."""
    before: set[tuple[str, str]] = set()
    for ((kind, key), (low, high)), ((other_kind, other), (from_, to)) in itertools.permutations(spans.items(), 2):
        if kind != other_kind:
            continue
        if not (high <= from_ or to <= low):
            before |= {(key, other), (other, key)}
        elif high <= from_ and not to <= low:
            before.add((key, other))
    for key, other in sorted(before):
        if (other, key) in before:
            raise GradeError(
                "RECEIPT_KEY_RETIRED", f"keys {key[:12]} and {other[:12]} sign by turns: one was replaced and signs on",
                hint="ask the validator which key holds; leave out what the other one signed later",
            )


def _require_one_validator(named: Iterable[tuple[str, int, str | None]]) -> None:
    """Compare hotkey, subnet and chain (None: weights name none) of all weights and ledgers."""
    hotkeys = sorted({(hotkey, netuid) for hotkey, netuid, _ in named})
    if len(hotkeys) > 1 or len({genesis for _, _, genesis in named} - {None}) > 1:
        who = ", ".join(f"{hotkey} on subnet {netuid}" for hotkey, netuid in hotkeys)
        raise GradeError("RECEIPTS_MIXED", f"these receipts are of {who}, or of more than one chain")


def _longer(one: LedgerPredicate, other: LedgerPredicate) -> LedgerPredicate:
    """Return the ledger that holds all events of the other. Raises `GradeError` (LEDGER_FORKED)."""
    shorter, longer = sorted((one, other), key=lambda ledger: (len(ledger.events), ledger.head))
    if shorter.events != longer.events[: len(shorter.events)]:
        raise GradeError(
            "LEDGER_FORKED",
            f"the ledger with head {shorter.head[:12]} is no earlier state of the one with head {longer.head[:12]}",
        )
    if not shorter.crown_receipts.items() <= longer.crown_receipts.items():
        raise GradeError(
            "LEDGER_FORKED", f"the ledger with head {longer.head[:12]} names other receipts for the crowns of the "
            f"one with head {shorter.head[:12]}",
        )
    return longer


def _sequences(ledger: LedgerPredicate | None) -> dict[str, int]:
    if ledger is None:
        return {GENESIS: 0}
    heads = {event.previous: event.sequence - 1 for event in ledger.events}
    return {GENESIS: 0} | heads | {ledger.head: len(ledger.events)}


def _require_forward(published: Published, chosen: WeightsPredicate) -> None:
    """Compare a receipt with those of earlier epochs, and with those of its own that it replaces."""
    own = _sequence(published, chosen)
    for other in published.weights.values():
        if other.epoch > chosen.epoch or other is chosen:
            continue
        behind = _sequence(published, other) > own
        earlier = other.vector.block >= chosen.vector.block + (other.epoch == chosen.epoch)
        if behind or earlier:
            what = "from an older ledger" if behind else f"at block {chosen.vector.block}, no later block"
            raise GradeError(
                "WEIGHTS_STALE", f"the vector of epoch {chosen.epoch} was computed {what} than that of {other.epoch}"
            )


def _sequence(published: Published, weights: WeightsPredicate) -> int:
    if weights.ledger_head not in published.sequence_of:
        raise GradeError(
            "LEDGER_HEAD_UNKNOWN", f"no ledger here holds the settlement event {weights.ledger_head[:12]}, after which "
            f"the vector of epoch {weights.epoch} was computed",
        )
    return published.sequence_of[weights.ledger_head]


def _short(digests: Iterable[str]) -> str:
    return ", ".join(digest[:12] for digest in digests) or "them"


