"""Drives a node's store through histories that the test draws, and a model beside it that knows only slots and names.

Everything between the queue and the crown is the node's own code, one transaction a step; only measuring is replaced,
by verdicts that follow from the speeds and faults that the test drew. The model is written from the rules (ADR 0027,
0031, 0032) without trees, digests or scopes, and says what each settlement has to do.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import Connection, create_engine, delete, update
from sqlalchemy.pool import StaticPool

from config.arena import Workload
from config.canonical import sha256_hex
from config.target_catalog import load_catalog
from node import decisions
from node.jobs import JobState, RetryBudget, is_stuck, release, transition
from node.services import qualification, settlement
from node.services.attempt_choice import Chosen, Terms
from node.services.attempt_process import Evidence
from node.services.crown_checks import choose_next, close_pointless, commit_revocation, fail_check, prepare_revocation
from node.services.faults import record_fault
from node.store.check_rows import is_answered
from node.store.crown_rows import all_crowns, all_settlement_events, crown_state
from node.store.evidence_rows import BundleRow, lose_running_attempts, record_bundle
from node.store.job_rows import Entry, entries, load_job, recover_all, save
from node.store.receipt_outbox import SealedReceipt
from node.store.schema import bundles, crown_checks, metadata
from node.store.submission_rows import read_cursor, record_scan
from qualify.engine_tree import EngineTree, Part
from scoring.grade import Verdict
from scoring.settle import live_claims, replay
from tests.node.support import cursor, submission
from tests.scoring.support import make_arena

CATALOG = load_catalog()
ATOMIC = "collective.moe_epilogue.v1"
FIRST, SECOND = CATALOG.targets[ATOMIC].members
TARGETS = (ATOMIC, FIRST, SECOND, "activation.silu_and_mul")
ARENA = make_arena(blocks_per_launch=8, workloads=(
    *(Workload(name, "bfloat16", ({"n": 8},)) for name in TARGETS[1:]), Workload(ATOMIC, members=(FIRST, SECOND)),
))  # fmt: skip
TERMS = Terms(ARENA, CATALOG, RetryBudget(1, 0, 0), "worker")
T = TypeVar("T")


class KilledError(Exception):
    """The process ends here: the transaction that is under way is lost."""


class One(NamedTuple):
    """A submission as the test drew it: its speed over stock (below 0: no bundle), and the step from which it fails."""

    number: int
    target: str
    speed: int
    breaks: int
    implausible: bool

    @property
    def name(self) -> str:
        """Its id."""
        return submission(self.number).submission_id

    @property
    def members(self) -> frozenset[str]:
        """The slots of its target."""
        return frozenset(CATALOG.targets[self.target].members)


class Driver:
    """A store, the submissions in it, and the model: who is crowned, with which credit, and who saw whom when."""

    def __init__(self, ones: list[One], seed: int) -> None:
        self.ones = {one.name: one for one in ones}
        self.by_content = {submission(one.number).content_hash: one for one in ones}
        self.chance, self.step, self.calm = random.Random(seed), 0, False
        self.engine = create_engine("sqlite://", poolclass=StaticPool)
        self.crowned: dict[str, int] = {}  # the model: credit by crowned submission
        self.seen: dict[str, frozenset[str]] = {}  # by submission: the crowns over its slots when it was first measured
        self.context: Any = SimpleNamespace(
            terms=TERMS, attempt_budget=TERMS.budget, worker="worker", layout=SimpleNamespace(root="/state")
        )
        with self.engine.begin() as connection:
            metadata.create_all(connection)
        found = [submission(one.number, hotkey=f"5H{one.number:046d}") for one in ones]
        self.look(lambda connection: record_scan(connection, read_cursor(connection), cursor(1), found))

    def do(self, work: Callable[[Connection], T]) -> T:
        """Make one step, a transaction. In a wild phase the process may die before or after its commit."""
        self.step += 1
        fate = "" if self.calm else self.chance.choices(["", "before", "after"], [20, 1, 1])[0]
        try:
            with self.engine.begin() as connection:
                result = work(connection)
                if fate == "before":
                    raise KilledError
        except KilledError:
            self.restart()
            raise
        if fate == "after":
            self.restart()
        return result

    def look(self, view: Callable[[Connection], T]) -> T:
        """Read without a chance of dying."""
        with self.engine.begin() as connection:
            return view(connection)

    def restart(self) -> None:
        """Start again as the daemon does."""
        with self.engine.begin() as connection:
            lose_running_attempts(connection)
            recover_all(connection)

    # What happens around measuring.

    def screen(self) -> None:
        """Bring one unread submission to the queue, or fail it."""
        unread = self.look(lambda connection: entries(connection, JobState.RESERVED))
        if unread:
            self.do(lambda connection: self._screen(connection, self.chance.choice(unread)))

    def _screen(self, connection: Connection, entry: Entry) -> None:
        job, one = entry.job, self.ones[entry.job.submission_id]
        for state in (JobState.FETCHING, JobState.READY, JobState.SCREENING):
            job = save(connection, job, transition(job, state, job.token))
        if one.speed < 0:
            save(connection, job, transition(job, JobState.FAILED, job.token, code="MANIFEST_INVALID", blame="miner"))
            return
        content = entry.submission.content_hash
        save(connection, job, transition(job, JobState.QUEUED, job.token, target_id=one.target, fingerprint=content))
        record_bundle(connection, BundleRow(content, "bundle", one.target, ""))

    def lose(self) -> None:
        """Lose the bundle of a crown."""
        live = self.look(lambda connection: [crown for crown in all_crowns(connection) if not crown.ended_by])
        if live:
            gone = self.chance.choice(live).content_hash
            self.do(lambda connection: connection.execute(delete(bundles).where(bundles.c.content_hash == gone)))

    def mend(self) -> None:
        """Bring back lost bundles, let jobs and checks rest no longer, and decide about what waits for a person."""
        for content, one in self.by_content.items():
            if self.look(lambda connection, one=one: load_job(connection, one.name)).target_id:
                self.do(lambda connection, c=content, t=one.target: record_bundle(connection, BundleRow(c, "b", t, "")))
        for job, _ in self.look(lambda connection: entries(connection, JobState.PARKED)):
            if job.code == "IMPLAUSIBLE_SPEEDUP":
                kind = self.chance.choice(["accept", "refuse"])
                self.do(lambda connection, name=job.submission_id, kind=kind: decisions.commit(
                    connection, decisions.prepare(connection, kind, name, "seen"),
                    SealedReceipt("decision.v1", name.encode()),
                ))
            elif job.code != "CROWN_IN_CHECK":
                self.do(lambda connection, job=job: save(connection, job, release(job)))
        self.do(lambda connection: connection.execute(update(crown_checks).values(not_before_ms=0)))

    # Measuring.

    def measure(self) -> bool:
        """Measure the next attempt; return whether there was one."""
        chosen = self.do(lambda connection: choose_next(connection, TERMS))
        if chosen is None:
            return False
        if self.look(lambda connection: load_job(connection, chosen.attempt.submission_id)).state is not (
            JobState.SETTLED if chosen.check else JobState.MEASURING
        ):
            return True  # a restart took it away
        one = self.by_content[chosen.candidate.content_hash]
        if chosen.attempt.role == "primary":
            self.seen[one.name] = self.over(one)
            assert set(filter(None, chosen.attempt.measured_against.split(","))) == self.seen[one.name]
        try:
            self.do(lambda connection: self._conclude(connection, chosen, one))
        except (KilledError, qualification.InternalError):
            self.restart()
        return True

    def _conclude(self, connection: Connection, chosen: Chosen, one: One) -> None:
        if not self.calm and self.chance.random() < 0.08:
            error = qualification.InternalError("SANDBOX_FAILED", "made up")
            if chosen.check:
                fail_check(connection, TERMS.budget, chosen.check, error)
            else:
                record_fault(connection, chosen.entry.job, error, TERMS.budget, "worker")
            qualification._lost(connection, chosen.attempt.attempt_id, "SANDBOX_FAILED")
            return
        accepted = qualification.is_accepted(connection, one.name, ARENA.digest)
        verdict = self.verdict(chosen, one, reviewed=accepted)
        tree = self._tree(connection, chosen)
        name = chosen.attempt.attempt_id
        evidence = Evidence(f"/state/{name}", sha256_hex(name.encode()), SimpleNamespace(identity=tree))  # type: ignore[arg-type]
        graded = qualification.Graded(evidence, verdict, SealedReceipt("verdict.v1", f"receipt {name}".encode()))
        if chosen.check:
            fault = verdict.code if verdict.outcome == "FAIL" else ""
            qualification._settle_check(connection, self.context, chosen, graded, fault, uncompared=False)
        else:
            qualification._settle_verdict(connection, self.context, chosen, graded)

    def _tree(self, connection: Connection, chosen: Chosen) -> Any:
        parts = [Part(target, bundle.content_hash) for target, bundle in chosen.stack]
        tree = EngineTree.of(CATALOG, parts).replaced(Part(chosen.attempt.target_id, chosen.candidate.content_hash))
        return SimpleNamespace(candidate_tree_digest=tree.digest)

    def verdict(self, chosen: Chosen, one: One, *, reviewed: bool) -> Verdict:
        """Return what an attempt finds, from what the test drew."""
        rivals = [self.by_content[bundle.content_hash] for _, bundle in chosen.stack]
        ended = [rival for rival in rivals if rival.members & one.members]
        if one.breaks <= self.step:
            return made("FAIL", "ARM_RAISED")
        if any(rival.breaks <= self.step for rival in ended):
            return made("RETRY", "BASELINE_FAILED")
        if not self.calm and self.chance.random() < 0.1:
            return made("RETRY", "MACHINE_UNFIT")
        gain = one.speed - max([rival.speed for rival in ended], default=0)
        if gain <= 0:
            return made("FAIL", "NOT_FASTER")
        if one.implausible and not reviewed and not chosen.check:
            return made("RETRY", "IMPLAUSIBLE_SPEEDUP")
        return made("PASS", "PASS", 1_000_000 + 10_000 * gain)

    # The model.

    def over(self, one: One) -> frozenset[str]:
        """Return the crowned submissions that hold a slot which `one` concerns."""
        return frozenset(name for name in self.crowned if self.ones[name].members & self.slots(one))

    def slots(self, one: One) -> frozenset[str]:
        """Return the slots that a crown of `one` would touch: its own, and those of whom it would end."""
        ended = [self.ones[name].members for name in self.crowned if self.ones[name].members & one.members]
        return one.members.union(*ended)

    def expected(self, connection: Connection) -> tuple[set[str], set[str]]:
        """Return who has to be crowned now, and who has to be measured again."""
        done, ways = [], []
        for job, _ in entries(connection):
            one = self.ones[job.submission_id]
            if job.state is JobState.PASSED_TWICE:
                done.append(one)
            elif job.state in (JobState.SETTLED, JobState.FAILED) or is_stuck(job):
                continue
            elif job.state is not JobState.PARKED or job.code == "CROWN_IN_CHECK":
                known = job.state not in (JobState.RESERVED, JobState.FETCHING, JobState.READY, JobState.SCREENING)
                ways.append((one.number, self.slots(one) if known else frozenset(TARGETS)))
        again = {one.name for one in done if self.seen[one.name] != self.over(one)}
        fresh = sorted((one for one in done if one.name not in again), key=lambda one: one.number)
        unchecked: set[str] = set()
        while True:
            group = [one for one in fresh if one.name not in unchecked]
            waiting: list[One] = []
            for one in group:
                before = [slots for number, slots in ways if number < one.number]
                if any(self.slots(one) & slots for slots in [*before, *map(self.slots, waiting)]):
                    waiting.append(one)
            won: list[One] = []
            for one in sorted(group, key=lambda one: (-self.credit(connection, one), one.number)):
                if one not in waiting and not any(self.slots(one) & self.slots(other) for other in won):
                    won.append(one)
            missing = [one for one in won if self.needs_check(connection, one)]
            if not missing:
                lost = {
                    one.name for one in group
                    if one not in won and any(self.slots(one) & self.slots(other) for other in won)
                }
                return {one.name for one in won}, again | lost
            unchecked |= self.spread(group, {one.name for one in missing})

    def spread(self, group: list[One], names: set[str]) -> set[str]:
        """Return `names` and everybody in `group` that overlaps one of them, directly or through others."""
        while True:
            slots = frozenset().union(*(self.slots(one) for one in group if one.name in names))
            more = {one.name for one in group if self.slots(one) & slots}
            if more <= names:
                return names
            names = names | more

    def credit(self, connection: Connection, one: One) -> int:
        """Return what a candidate earns."""
        job = load_job(connection, one.name)
        return min(qualification.load_attempt(connection, name).lower_ppm
                   for name in (job.primary_attempt, job.reproduction_attempt))

    def needs_check(self, connection: Connection, one: One) -> bool:
        """Say whether a crown that `one` would end, and earn more than, has not been checked for it."""
        job, credit = load_job(connection, one.name), self.credit(connection, one)
        events = {crown.submission_id: crown.event_digest for crown in crown_state(connection).crowns}
        ended = [name for name in self.crowned if self.ones[name].members & one.members]
        return any(
            credit > self.crowned[name] and not is_answered(connection, events[name], job.primary_attempt)
            for name in ended
        )

    def settle(self) -> bool:
        """Settle, compare with the model, and return whether anything changed."""
        proved = self.look(prepare_revocation)
        if proved is not None:
            (event,) = proved.plan.events
            assert self.ones[event.submission_id].breaks <= self.step, "a crown that does not fail is revoked"
            done = False
            try:
                receipt = SealedReceipt("revocation.v1", proved.check.crown.encode())
                done = self.do(lambda connection: commit_revocation(connection, proved, receipt))
            finally:
                if event.submission_id not in self._live():
                    del self.crowned[event.submission_id]
            return done
        if self.do(close_pointless):
            return True
        self.do(lambda connection: settlement.clear(connection, CATALOG, "worker"))
        won, again = self.look(self.expected)
        planned = self.look(lambda connection: settlement.prepare(connection, CATALOG))
        if planned is None:
            assert (won, again) == (set(), set())
            return False
        crowns = {event.submission_id: event.speedup_ppm for event in planned.plan.events if event.type == "CROWN"}
        assert set(crowns) == won
        assert set(planned.plan.remeasure) == again
        if not (planned.plan.events or planned.questions):
            return False
        receipts = {name: SealedReceipt("crown.v1", name.encode()) for name in crowns}
        before = self._live()
        try:
            self.do(lambda connection: settlement.commit(connection, CATALOG, planned, receipts))
        finally:
            if self._live() != before:  # all of it or nothing, wherever the process died
                for name, credit in crowns.items():
                    taken = self.ones[name].members
                    for other in [other for other in self.crowned if self.ones[other].members & taken]:
                        del self.crowned[other]
                    self.crowned[name] = credit
        return True

    def _live(self) -> set[str]:
        return self.look(lambda connection: {one.submission_id for one in all_crowns(connection) if not one.ended_by})

    def check(self) -> None:
        """Compare store and model, and see that nothing is lost, doubled or held twice."""
        events, state = self.look(all_settlement_events), self.look(crown_state)
        assert replay(events) == state
        assert {crown.submission_id: crown.speedup_ppm for crown in state.crowns} == self.crowned
        assert self._live() == set(self.crowned)
        held = [slot for crown in state.crowns for slot in crown.members]
        assert len(held) == len(set(held))
        assert sorted(claim.claim_id for claim in live_claims(state)) == sorted(
            event.digest for event in events if event.type == "CROWN" and event.submission_id in self.crowned
        )
        settled = {job.submission_id for job, _ in self.look(lambda connection: entries(connection, JobState.SETTLED))}
        assert settled == {event.submission_id for event in events if event.type == "CROWN"}


def made(outcome: str, code: str, lower_ppm: int = 0) -> Verdict:
    """Return a verdict."""
    blame = {"FAIL": "miner", "RETRY": "internal"}.get(outcome, "")
    return Verdict("cacheon.verdict.v1", "cacheon.speed.v1", outcome, code, blame, lower_ppm, 0, 10, "made up")  # type: ignore[arg-type]
