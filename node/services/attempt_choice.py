"""Which attempt is measured next.

Invariants
1. Reproductions come before primaries, each in finalized order; a job whose delay is not over holds up nobody.
2. Nothing is measured that cannot count: a copy fails; a pass against a former arena, incumbent or engine tree, or of a
   former build, goes back to the queue for free; and bytes that failed for the same hotkey in the same arena fail again
   without being run, whatever build judged them: a failure of their own always, one by comparison against the same
   incumbent. A PASS is never replayed, and a FAIL that a person has opened again neither.
3. A target that the arena does not measure is no fault of the miner: its jobs are parked until that changes. So are
   those of a target whose incumbent's bundle is missing, until it is back, and those that would end a crown which is
   being checked, until it is; other targets do not notice (`node.services.scope`).
4. Choosing, claiming the job and recording the attempt are one transaction.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import NamedTuple

import msgspec
from sqlalchemy import Connection

from config.arena import Arena
from config.target_catalog import Target, TargetCatalog
from node.jobs import Job, JobState, RetryBudget, fail, park, transition
from node.services.copies import fail_if_copy
from node.services.scope import Scope, scope_of
from node.store.check_rows import CROWN_IN_CHECK, checks
from node.store.crown_rows import crown_state
from node.store.decision_rows import refusal
from node.store.events import now_ms
from node.store.evidence_rows import (
    AttemptRow,
    BundleRow,
    failed_before,
    find_bundle,
    finish_attempt,
    load_attempt,
    start_attempt,
)
from node.store.job_rows import Entry, due, save
from node.store.submission_rows import Submission
from qualify.engine_tree import EngineTree
from scoring.crown_check import TIMED_FAULTS
from scoring.settle import Crown, CrownState

TARGET_NOT_SERVED = "TARGET_NOT_SERVED"
REVIEW_REFUSED = "REVIEW_REFUSED"
INCUMBENT_BUNDLE_LOST = "INCUMBENT_BUNDLE_LOST"
RELATIVE_CODES = frozenset({"NOT_FASTER", "SLOW_START", "NEVER_ROUTED"})  # FAILs that tell of the incumbents as well
_WINDOW = 64  # jobs looked at in one transaction


class Chosen(msgspec.Struct, frozen=True):
    """An attempt to run: the claimed job, its running row, the candidate, and the crowned bundles in its scope, each
    with its target."""

    entry: Entry
    attempt: AttemptRow
    candidate: BundleRow
    stack: tuple[tuple[str, BundleRow], ...]
    first: str = ""  # id of the attempt that this one is to reproduce
    check: int = 0  # id of the check of a crown that it belongs to; its entry is the crown's, and no job is claimed


class Terms(msgspec.Struct, frozen=True):
    """Under which documents attempts are chosen."""

    arena: Arena
    catalog: TargetCatalog
    budget: RetryBudget
    worker: str

    def measured_target(self, target_id: str) -> Target | None:
        """Return the target when it is registered and the arena has a workload for it."""
        return self.catalog.find(target_id) if self.arena.workload(target_id) is not None else None

    def can_measure(self, target: Target, slots: AbstractSet[str]) -> bool:
        """Say whether the arena has what an attempt on `target` needs that measures `slots`."""
        beyond = slots - set(target.members)
        return bool(self.arena.measured(target.id, sorted(slots) if beyond else ()))


class Rival(NamedTuple):
    """What a candidate is measured against: the arena, the content hashes of the crowned bundles in its scope ("" is
    stock), the crowns as submission ids (both sorted and joined by commas), and the tree with the candidate in it."""

    arena_digest: str
    incumbent: str
    measured_against: str
    tree: EngineTree


def choose(connection: Connection, terms: Terms) -> Chosen | None:
    """Claim the next attempt, settling on the way whatever needs no measurement. Returns None when nothing is due."""
    for state in (JobState.PASSED_ONCE, JobState.QUEUED):
        for entry in due(connection, state, terms.budget, _WINDOW):
            if fail_if_copy(connection, entry) is not None:
                continue
            found = _opened(connection, terms, entry)
            if isinstance(found, Obstacle):
                save(connection, entry.job, park(
                    entry.job, entry.job.token, worker=terms.worker, now_ms=now_ms(), code=found.code,
                    detail=found.detail,
                ))
                continue
            if state is JobState.PASSED_ONCE:
                if _requeued(connection, entry, found.rival, terms.worker):
                    continue
            elif _replayed(connection, entry, found.rival):
                continue
            return _claim(connection, terms, entry, found)
    return None


class Obstacle(NamedTuple):
    """Why a job cannot be measured here now."""

    code: str
    detail: str


_Stack = tuple[tuple[str, BundleRow], ...]


class Opened(NamedTuple):
    """What an attempt on a job would compare, with which bundles."""

    rival: Rival
    candidate: BundleRow
    stack: _Stack


def _opened(connection: Connection, terms: Terms, entry: Entry) -> Opened | Obstacle:
    target = terms.measured_target(entry.job.target_id)
    if target is None:
        return Obstacle(TARGET_NOT_SERVED, f"the arena {terms.arena.id} does not measure {entry.job.target_id}")
    scope = scope_of(terms.catalog, crown_state(connection), target)
    tree = scope.tree_with(target, entry.submission.content_hash)
    slots = tree.changed() | set(target.members)
    if not terms.can_measure(target, slots):
        detail = f"a crown on {target.id} would change {' and '.join(sorted(slots))}, and the arena {terms.arena.id}"
        return Obstacle(TARGET_NOT_SERVED, f"{detail} has not the workloads, or not the blocks, to measure that")
    candidate = find_bundle(connection, entry.submission.content_hash)
    if candidate is None:
        return Obstacle("BUNDLE_NOT_STORED", "a published bundle is not in the store")
    in_check = {check.crown: check for check in checks(connection, "open", "proved")}
    for crown in _ended(scope, tree):
        if crown.event_digest in in_check:
            return Obstacle(CROWN_IN_CHECK, f"the crown of submission {crown.submission_id} is being checked")
    stack = open_stack(connection, scope)
    if isinstance(stack, str):
        return Obstacle(INCUMBENT_BUNDLE_LOST, stack)
    rival = Rival(terms.arena.digest, scope.incumbent, ",".join(scope.measured_against), tree)
    return Opened(rival, candidate, stack)


def open_stack(connection: Connection, scope: Scope) -> _Stack | str:
    """Return the crowned bundles of a scope, or the sentence that says which of them is not in the store."""
    stack: list[tuple[str, BundleRow]] = []
    for part in scope.tree.parts:
        bundle = find_bundle(connection, part.content_hash)
        if bundle is None:
            return lost_bundle(part.target_id, part.content_hash, "is not in the store")
        stack.append((part.target_id, bundle))
    return tuple(stack)


def ended_crowns(terms: Terms, state: CrownState, job: Job, submission: Submission) -> list[Crown]:
    """Return the crowns that a crown of `job` would end while the crowns are as in `state`."""
    target = terms.catalog.find(job.target_id)
    if target is None:
        return []
    scope = scope_of(terms.catalog, state, target)
    return _ended(scope, scope.tree_with(target, submission.content_hash))


def _ended(scope: Scope, tree: EngineTree) -> list[Crown]:
    kept = {part.target_id for part in tree.parts if part in scope.tree.parts}
    served = {part.target_id for part in scope.tree.parts}
    return [crown for crown in scope.crowns if crown.target_id in served - kept]


def lost_bundle(target_id: str, content_hash: str, why: str) -> str:
    """Return the sentence for jobs that wait for a crowned bundle."""
    return f"the bundle {content_hash} that holds {target_id} {why}"


def crowned_bundles(connection: Connection, terms: Terms, target_id: str) -> list[tuple[str, str, BundleRow | None]]:
    """Return the crowned bundles that attempts on a target need: target, content hash, and row where there is one."""
    target = terms.catalog.find(target_id)
    if target is None:
        return []
    parts = scope_of(terms.catalog, crown_state(connection), target).tree.parts
    return [(part.target_id, part.content_hash, find_bundle(connection, part.content_hash)) for part in parts]


def _requeued(connection: Connection, entry: Entry, rival: Rival, worker: str) -> bool:
    """Send a job whose primary attempt was against another rival, or by another build, back to the queue, for free."""
    job = entry.job
    primary = load_attempt(connection, job.primary_attempt)
    then = (primary.arena_digest, primary.incumbent, primary.measured_against, primary.tree_digest)
    same = then == (rival.arena_digest, rival.incumbent, rival.measured_against, rival.tree.digest)
    if same and primary.worker == worker:
        return False
    what = "the validator's code" if same else "the incumbent"
    save(connection, job, transition(
        job, JobState.QUEUED, job.token, primary_attempt="", reproduction_attempt="", faults=0, not_before_ms=0,
        detail=f"{what} changed; measured again against the new one",
    ))
    return True


def _replayed(connection: Connection, entry: Entry, rival: Rival) -> bool:
    """Fail a job with the verdict that the same bytes already got, without running them."""
    job, submission = entry
    past = failed_before(
        connection, hotkey=submission.hotkey, content_hash=submission.content_hash,
        arena_digest=rival.arena_digest, incumbent=rival.incumbent, relative=RELATIVE_CODES, timed=TIMED_FAULTS,
    )
    if past is None:
        return _refused(connection, entry, rival)
    attempt_id = f"{job.submission_id}-{job.token}"
    start_attempt(connection, msgspec.structs.replace(
        past, attempt_id=attempt_id, submission_id=job.submission_id, role="primary", state="running", commitment="",
        outcome="",
    ))
    finish_attempt(connection, msgspec.structs.replace(
        past, attempt_id=attempt_id, submission_id=job.submission_id, role="primary", state="graded", commitment="",
        replay_of=past.attempt_id, receipt_digest="",
    ))
    save(connection, job, fail(
        job, job.token, past.code, blame=past.blame, primary_attempt=attempt_id,
        detail=f"{past.reason} (the same bytes failed before, as submission {past.submission_id})",
    ))
    return True


def _refused(connection: Connection, entry: Entry, rival: Rival) -> bool:
    """Fail a job whose bytes a person has refused before."""
    job, submission = entry
    reason = refusal(connection, submission.hotkey, submission.content_hash, rival.arena_digest)
    if not reason:
        return False
    save(connection, job, fail(
        job, job.token, REVIEW_REFUSED, detail=f"a person looked at the same bytes before: {reason}"
    ))
    return True


def _claim(connection: Connection, terms: Terms, entry: Entry, opened: Opened) -> Chosen:
    (job, submission), rival = entry, opened.rival
    reproduction = job.state is JobState.PASSED_ONCE
    claimed = save(connection, job, transition(job, JobState.MEASURING, job.token))
    attempt = AttemptRow(
        attempt_id=f"{job.submission_id}-{claimed.token}", submission_id=job.submission_id,
        role="reproduction" if reproduction else "primary", state="running", content_hash=submission.content_hash,
        target_id=job.target_id, arena_digest=rival.arena_digest, incumbent=rival.incumbent,
        measured_against=rival.measured_against,
        previous_digest=load_attempt(connection, job.primary_attempt).digest if reproduction else "",
        worker=terms.worker,
    )
    start_attempt(connection, attempt)
    first = job.primary_attempt if reproduction else ""
    return Chosen(Entry(claimed, submission), attempt, opened.candidate, opened.stack, first)
