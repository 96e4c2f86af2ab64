"""Which attempt is measured next.

Invariants
1. Reproductions come before primaries, each in finalized order; a job whose delay is not over holds up nobody.
2. Nothing is measured that cannot count: a copy fails, a pass against a former arena, incumbent or engine tree goes
   back to the queue for free, and bytes that failed for the same hotkey against the same incumbent in the same arena
   fail again without being run (a PASS is never replayed).
3. A target that the arena does not measure is no fault of the miner: its jobs are parked until that changes.
4. Choosing, claiming the job and recording the attempt are one transaction.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from sqlalchemy import Connection

from config.arena import Arena
from config.target_catalog import Target, TargetCatalog
from node.jobs import Job, JobState, RetryBudget, fail, park, transition
from node.services.copies import fail_if_copy
from node.store.crown_rows import crown_state
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
from qualify.engine_tree import EngineTree, Part
from scoring.settle import incumbents

TARGET_NOT_SERVED = "TARGET_NOT_SERVED"
_WINDOW = 64  # jobs looked at in one transaction


class Chosen(msgspec.Struct, frozen=True):
    """An attempt to run: the claimed job, its running row, the candidate, and every crowned bundle with its target."""

    entry: Entry
    attempt: AttemptRow
    candidate: BundleRow
    stack: tuple[tuple[str, BundleRow], ...]


class Terms(msgspec.Struct, frozen=True):
    """Under which documents attempts are chosen."""

    arena: Arena
    catalog: TargetCatalog
    budget: RetryBudget
    worker: str

    def measured_target(self, target_id: str) -> Target | None:
        """Return the target when it is registered and the arena has a workload for it."""
        return self.catalog.find(target_id) if self.arena.workload(target_id) is not None else None

    def reason_to_park(self, target: Target | None, job: Job) -> dict[str, str]:
        """Return code and detail for a job that cannot be measured here now."""
        if target is None:
            detail = f"the arena {self.arena.id} does not measure {job.target_id}"
            return {"code": TARGET_NOT_SERVED, "detail": detail}
        return {"code": "BUNDLE_NOT_STORED", "detail": "a published bundle is not in the store"}


class Rival(NamedTuple):
    """What a candidate is measured against: the arena, the content hashes of the bundles that hold its members ("" is
    stock), the live crowns over these, as submission ids (both sorted and joined by commas), and the engine tree."""

    arena_digest: str
    incumbent: str
    measured_against: str
    tree: EngineTree


def choose(connection: Connection, terms: Terms) -> Chosen | None:
    """Claim the next attempt, settling on the way whatever needs no measurement. Returns None when nothing is due."""
    for state in (JobState.PASSED_ONCE, JobState.QUEUED):
        for entry in due(connection, state, terms.budget, _WINDOW):
            job = entry.job
            if fail_if_copy(connection, entry) is not None:
                continue
            target = terms.measured_target(job.target_id)
            rival = _rival(connection, terms, target)
            candidate = find_bundle(connection, entry.submission.content_hash)
            stack = _stack(connection, rival.tree)
            if target is None or candidate is None or stack is None:
                save(connection, job, park(
                    job, job.token, worker=terms.worker, now_ms=now_ms(), **terms.reason_to_park(target, job)
                ))
                continue
            if state is JobState.PASSED_ONCE:
                if _requeued(connection, entry, rival):
                    continue
            elif _replayed(connection, entry, rival):
                continue
            return _claim(connection, entry, candidate, rival, stack)
    return None


def _stack(connection: Connection, tree: EngineTree) -> tuple[tuple[str, BundleRow], ...] | None:
    """Return the stored bundles of an engine tree with their targets; None when one of them is not in the store."""
    found = [(part.target_id, find_bundle(connection, part.content_hash)) for part in tree.parts]
    known = tuple((target_id, bundle) for target_id, bundle in found if bundle is not None)
    return known if len(known) == len(found) else None


def _rival(connection: Connection, terms: Terms, target: Target | None) -> Rival:
    state = crown_state(connection)
    served = [crown for crown in state.crowns if terms.catalog.find(crown.target_id) is not None]
    tree = EngineTree.of(terms.catalog, [Part(crown.target_id, crown.content_hash) for crown in served])
    members = frozenset() if target is None else frozenset(target.members)
    holders = sorted(crown.content_hash for crown in state.crowns if members.intersection(crown.members))
    return Rival(terms.arena.digest, ",".join(holders), ",".join(incumbents(state, members)), tree)


def _requeued(connection: Connection, entry: Entry, rival: Rival) -> bool:
    """Send a job whose primary attempt was against another rival back to the queue, for free."""
    job = entry.job
    primary = load_attempt(connection, job.primary_attempt)
    tree = rival.tree.replaced(Part(job.target_id, entry.submission.content_hash))
    then = (primary.arena_digest, primary.incumbent, primary.measured_against, primary.tree_digest)
    if then == (rival.arena_digest, rival.incumbent, rival.measured_against, tree.digest):
        return False
    save(connection, job, transition(
        job, JobState.QUEUED, job.token, primary_attempt="", reproduction_attempt="", faults=0, not_before_ms=0,
        detail="the incumbent changed; measured again against the new one",
    ))
    return True


def _replayed(connection: Connection, entry: Entry, rival: Rival) -> bool:
    """Fail a job with the verdict that the same bytes already got, without running them."""
    job, submission = entry
    past = failed_before(
        connection, hotkey=submission.hotkey, content_hash=submission.content_hash,
        arena_digest=rival.arena_digest, incumbent=rival.incumbent,
    )
    if past is None:
        return False
    attempt_id = f"{job.submission_id}-{job.token}"
    start_attempt(connection, msgspec.structs.replace(
        past, attempt_id=attempt_id, submission_id=job.submission_id, state="running", commitment="", outcome="",
    ))
    finish_attempt(connection, msgspec.structs.replace(
        past, attempt_id=attempt_id, submission_id=job.submission_id, state="graded", commitment="",
        replay_of=past.attempt_id, receipt_digest="",
    ))
    save(connection, job, fail(
        job, job.token, past.code, blame=past.blame, primary_attempt=attempt_id,
        detail=f"{past.reason} (the same bytes failed before, as submission {past.submission_id})",
    ))
    return True


def _claim(
    connection: Connection, entry: Entry, candidate: BundleRow, rival: Rival, stack: tuple[tuple[str, BundleRow], ...]
) -> Chosen:
    job, submission = entry
    reproduction = job.state is JobState.PASSED_ONCE
    claimed = save(connection, job, transition(job, JobState.MEASURING, job.token))
    attempt = AttemptRow(
        attempt_id=f"{job.submission_id}-{claimed.token}", submission_id=job.submission_id,
        role="reproduction" if reproduction else "primary", state="running", content_hash=submission.content_hash,
        target_id=job.target_id, arena_digest=rival.arena_digest, incumbent=rival.incumbent,
        measured_against=rival.measured_against,
        previous_digest=load_attempt(connection, job.primary_attempt).digest if reproduction else "",
    )
    start_attempt(connection, attempt)
    return Chosen(Entry(claimed, submission), attempt, candidate, stack)
