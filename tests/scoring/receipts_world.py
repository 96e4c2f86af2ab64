"""A made-up validator's published receipts: two crowns, one of them displaced later, and three epochs of weights."""

from __future__ import annotations

import gzip
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from config.arena import Arena
from config.canonical import canonical_json, domain_digest, sha256_hex
from config.statement import Statement
from scoring.attempt import Attempt, attempt_digest, encode_attempt
from scoring.beneath import tree_digest
from scoring.dsse import public_key, sign
from scoring.grade import grade
from scoring.ledger import LedgerPredicate, ledger_statement, make_ledger
from scoring.projection import WeightPolicy, project
from scoring.published import Published, gather, read_receipt
from scoring.receipts import (
    WeightsPredicate,
    crown_statement,
    present_claimants,
    verdict_statement,
    weights_statement,
)
from scoring.revocation import revocation_statement
from scoring.settle import (
    Candidate,
    CrownState,
    FinalizedOrder,
    SettlementEvent,
    apply_event,
    live_claims,
    plan,
    revoke,
)
from tests.scoring.support import TARGET, FakeReferee, change, digest, make_arena

SECRET = bytes(range(32))
VALIDATOR = "5CValidator"
GENESIS_HASH = "0x" + "ab" * 32
POLICY = WeightPolicy(1000, "burn", "5Burn", VALIDATOR)
TARGET_DOCUMENT: dict[str, object] = {"target_id": TARGET, "kind": "slot", "members": [TARGET]}


@dataclass
class ReceiptsWorld:
    """Envelopes by digest, and the documents behind them."""

    arena_document: Arena = field(default_factory=make_arena)
    secret: bytes = SECRET
    validator: str = VALIDATOR
    envelopes: dict[str, bytes] = field(default_factory=dict)
    attempts: dict[str, bytes] = field(default_factory=dict)
    targets: dict[str, dict[str, object]] = field(default_factory=dict)
    state: CrownState = field(default_factory=CrownState)
    events: list[SettlementEvent] = field(default_factory=list)
    crown_receipts: dict[str, str] = field(default_factory=dict)
    number: int = 0

    def put(self, statement: Statement, secret: bytes | None = None) -> str:
        """Sign a statement and publish it; return its digest."""
        data = sign(statement, secret or self.secret)
        self.envelopes[sha256_hex(data)] = data
        return sha256_hex(data)

    def attempt(self, content_hash: str, hotkey: str, block: int, gain: float = 0.4, **more: Any) -> Attempt:
        """Measure one bundle."""
        self.number += 1
        attempt = FakeReferee(self.arena_document, gain=gain, number=self.number).measure(**more)
        for path, value in (
            ("identity.content_hash", content_hash), ("identity.reservation.hotkey", hotkey),
            ("identity.reservation.block", block),
            ("identity.target_digest", domain_digest("cacheon.target-spec", TARGET_DOCUMENT)),
            ("identity.candidate_tree_digest", digest("tree", content_hash)),
            ("identity.incumbent_digest", tree_digest(self.state.crowns)),
        ):
            attempt = change(attempt, path, value)
        self.targets[attempt.identity.target_digest] = TARGET_DOCUMENT
        return attempt

    def judge(self, attempt: Attempt, *, reviewed: bool = False) -> tuple[str, str]:
        """Publish an attempt file and its verdict; return the digests of the file and of the receipt."""
        data = encode_attempt(attempt)
        self.attempts[attempt_digest(data)] = data
        verdict = grade(attempt, self.arena_document, reviewed=reviewed)
        receipt = self.put(verdict_statement(attempt, attempt_digest(data), verdict, reviewed=reviewed))
        return attempt_digest(data), receipt

    def reproduce(self, first: Attempt, named: str, gain: float = 0.4) -> Attempt:
        """Measure the bundle of `first`, whose file is `named`, a second time."""
        reservation = first.identity.reservation
        again = self.attempt(
            first.identity.content_hash, reservation.hotkey, reservation.block, gain=gain, role="reproduction",
            previous_attempt=named,
        )
        return on_other_cores(msgspec.structs.replace(again, identity=first.identity))

    def crown(self, hotkey: str, block: int, *, reviewed: bool = False, **changes: Any) -> str:
        """Have a bundle of `hotkey` measured twice and crowned; return the digest of the crown's receipt."""
        content_hash = digest("bundle", hotkey, block)
        first = self.attempt(content_hash, hotkey, block)
        one = self.judge(first, reviewed=reviewed)
        second = self.reproduce(first, one[0])
        two = self.judge(second, reviewed=reviewed)
        bounds = [grade(attempt, self.arena_document, reviewed=reviewed).lower_ppm for attempt in (first, second)]
        speedup = min(bounds)
        candidate = Candidate(
            submission_id=digest("submission", hotkey, block), order=FinalizedOrder(block, 1, 0, hotkey, content_hash),
            target_id=TARGET, members=(TARGET,), tree_digest=first.identity.candidate_tree_digest, speedup_ppm=speedup,
            measured_against=tuple(crown.submission_id for crown in self.state.crowns), evidence=(one[0], two[0]),
        )
        settled = plan(self.state, [msgspec.structs.replace(candidate, **changes)])
        self.state, event = settled.state, settled.events[-1]
        self.events += settled.events
        receipt = self.put(crown_statement(event, (one[1], two[1])))
        self.crown_receipts[event.digest] = receipt
        return receipt

    def revoke(self, hotkey: str, gains: tuple[float, float] = (-0.3, -0.3), **changes: Any) -> str:
        """Check the crown of `hotkey` twice and revoke it; return the digest of the receipt. `changes` replaces fields
        of the event."""
        crown = next(one for one in self.state.crowns if one.hotkey == hotkey)
        first = self.attempt(crown.content_hash, hotkey, crown.crowned_block, gain=gains[0])
        one = self.judge(first)
        two = self.judge(self.reproduce(first, one[0], gain=gains[1]))
        order = FinalizedOrder(crown.crowned_block, 1, 0, hotkey, crown.content_hash)
        evidence = (one[0], two[0])
        (event,) = revoke(self.state, crown.submission_id, order, reason="NOT_FASTER", evidence=evidence).events
        event = msgspec.structs.replace(event, **changes)
        self.state = apply_event(self.state, event)
        self.events.append(event)
        return self.put(revocation_statement(event, (one[1], two[1])))

    def ledger(self) -> LedgerPredicate:
        """The ledger as it is now."""
        return make_ledger(
            self.events, self.crown_receipts, genesis_hash=GENESIS_HASH, netuid=2, hotkey=self.validator
        )

    def vector(self, epoch: int, block: int, present: tuple[str, ...] = (), **changes: Any) -> WeightsPredicate:
        """The predicate of a weights receipt as the node makes it."""
        claims = live_claims(self.state)
        policy = msgspec.structs.replace(POLICY, validator_hotkey=self.validator)
        targets = tuple(sorted({claim.target_id for claim in claims}))
        hotkeys = present or tuple(claim.hotkey for claim in claims)
        projection = project(claims, block=block, present=hotkeys, policy=policy, targets=targets)
        predicate = WeightsPredicate(
            vector=projection.vector, vector_digest=projection.vector.digest, netuid=2, epoch=epoch, claims=claims,
            present=present_claimants(claims, hotkeys), policy=policy, ledger_head=self.state.head,
            crown_receipts=tuple(sorted(self.crown_receipts[claim.claim_id] for claim in claims)), targets=targets,
        )
        return msgspec.structs.replace(predicate, **changes)

    def publish(self, epoch: int, block: int, **changes: Any) -> str:
        """Publish the ledger and the vector of an epoch; return the digest of the weights receipt."""
        self.put(ledger_statement(self.ledger()))
        return self.put(weights_statement(self.vector(epoch, block, **changes)))

    def read(self, keys: tuple[bytes, ...] = ()) -> Published:
        """Verify everything that is published."""
        trusted = keys or (public_key(self.secret),)
        return gather(read_receipt(data, name, trusted) for name, data in self.envelopes.items())

    def arena(self, digest: str) -> Arena | None:
        """The arena with that digest."""
        return self.arena_document if digest == self.arena_document.digest else None

    def target(self, digest: str) -> dict[str, object] | None:
        """The target document with that digest."""
        return self.targets.get(digest)

    def write(self, folder: Path, arena_toml: str = "") -> Path:
        """Write everything as `cacheon receipt export` does."""
        for name in ("receipts", "ledger", "attempts", "arenas", "targets"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        for name, data in self.envelopes.items():
            (folder / "receipts" / f"{name}.json").write_bytes(data)
        for name, data in self.attempts.items():
            (folder / "attempts" / f"{name}.json.gz").write_bytes(gzip.compress(data))
        for name, document in self.targets.items():
            (folder / "targets" / f"{name}.json").write_bytes(canonical_json(document))
        if arena_toml:
            (folder / "arenas" / f"{self.arena_document.digest}.toml").write_text(arena_toml, "utf-8")
        return folder


class EvidenceOf:
    """What is published behind the verdicts of a world; parts can be left out."""

    def __init__(self, world: ReceiptsWorld, *, attempts: bool = True, arenas: bool = True, targets: bool = True):
        self._world = world
        self._attempts, self._arenas, self._targets = attempts, arenas, targets

    def attempt(self, digest: str) -> bytes | None:
        """The attempt file with that digest."""
        return self._world.attempts.get(digest) if self._attempts else None

    def arena(self, digest: str) -> Arena | None:
        """The arena with that digest."""
        return self._world.arena(digest) if self._arenas else None

    def target(self, digest: str) -> dict[str, object] | None:
        """The target document with that digest."""
        return self._world.target(digest) if self._targets else None


def on_other_cores(attempt: Attempt) -> Attempt:
    """The same attempt with the cores of the two slots exchanged."""
    launches = tuple(
        msgspec.structs.replace(
            launch, baseline=msgspec.structs.replace(launch.baseline, core=1 - launch.baseline.slot),
            candidate=msgspec.structs.replace(launch.candidate, core=1 - launch.candidate.slot),
        )
        for launch in attempt.launches
    )
    environment = msgspec.structs.replace(attempt.environment, cores=(1, 0))
    return msgspec.structs.replace(attempt, launches=launches, environment=environment)


def two_crowns(**fields: Any) -> ReceiptsWorld:
    """A world in which Ann was crowned, paid for an epoch, and then displaced by Bob."""
    world = ReceiptsWorld(**fields)
    world.publish(1, 100)  # before anything is crowned: everything burns
    world.crown("5Ann", 90)
    world.publish(2, 200)
    world.crown("5Bob", 210)
    world.publish(3, 300)
    return world
