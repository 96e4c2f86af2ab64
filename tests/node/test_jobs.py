"""The job table: which moves exist, who may make them, and what a fault costs."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from config.errors import InternalError
from node.jobs import (
    FINAL,
    PARKED_REST_MS,
    TRANSITIONS,
    WORKING,
    Job,
    JobState,
    RetryBudget,
    StaleTokenError,
    after_fault,
    fail,
    is_stuck,
    park,
    pickup_state,
    recover,
    reopen,
    transition,
    unpark,
)

BUDGET = RetryBudget(attempts=2, base_ms=1000, cap_ms=3000)


def job(state: JobState, **fields: object) -> Job:
    """Return a job in `state`."""
    return Job(submission_id="s", state=state, token=7, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(("state", "to"), list(itertools.product(JobState, JobState)))
def test_every_pair_of_states(state: JobState, to: JobState) -> None:
    """A move in the table gives a new token; every other move is refused."""
    if to in TRANSITIONS[state]:
        moved = transition(job(state), to, 7, code="X")
        assert (moved.state, moved.token, moved.code) == (to, 8, "X")
    else:
        with pytest.raises(InternalError) as caught:
            transition(job(state), to, 7)
        assert caught.value.code == "JOB_TRANSITION_FORBIDDEN"


@pytest.mark.parametrize("token", [0, 6, 8])
def test_other_tokens_are_stale(token: int) -> None:
    """A step that holds any token but the job's present one moves nothing."""
    with pytest.raises(StaleTokenError) as caught:
        transition(job(JobState.MEASURING), JobState.QUEUED, token)
    assert caught.value.code == "JOB_TOKEN_STALE"


def test_final_states_lead_nowhere() -> None:
    """Settled, failed and expired are the end; every other state can still reach an end."""
    for state in JobState:
        assert (state in FINAL) == (not TRANSITIONS[state])
    reached = set(FINAL)
    while more := {state for state in JobState if state not in reached and TRANSITIONS[state] & reached}:
        reached |= more
    assert reached == set(JobState)


def test_every_state_is_reachable() -> None:
    """Starting from a reservation, every state can be reached."""
    reached = {JobState.RESERVED}
    while more := {to for state in reached for to in TRANSITIONS[state]} - reached:
        reached |= more
    assert reached == set(JobState)


@pytest.mark.parametrize("state", sorted(WORKING))
@pytest.mark.parametrize("primary", ["", "attempt"])
def test_interrupted_work_is_free(state: JobState, primary: str) -> None:
    """A restart sends working jobs back where they can be taken again, spending nothing and waiting for nothing."""
    interrupted = job(state, faults=2, not_before_ms=99, primary_attempt=primary)
    back = recover(interrupted)
    assert back.state not in WORKING
    assert (back.faults, back.not_before_ms, back.token) == (2, 0, 8)
    assert state in TRANSITIONS[back.state]


def test_reproduction_goes_back_to_reproduction() -> None:
    """A job that passed once is never sent back to its first attempt by a fault."""
    assert pickup_state(job(JobState.MEASURING)) is JobState.QUEUED
    assert pickup_state(job(JobState.MEASURING, primary_attempt="a")) is JobState.PASSED_ONCE


@pytest.mark.parametrize("state", sorted(WORKING))
def test_faults_delay_then_park(state: JobState) -> None:
    """Faults of ours come back with a growing delay until the budget is spent, then the job is parked."""
    current = job(state)
    waits = []
    for _ in range(BUDGET.attempts):
        current = after_fault(current, current.token, budget=BUDGET, now_ms=5, worker="w")
        waits.append(current.not_before_ms - 5)
        current = transition(current, state, current.token)
    assert waits == [1000, 2000]
    parked = after_fault(current, current.token, budget=BUDGET, now_ms=5, worker="w")
    assert (parked.state, parked.parked_from, parked.parked_on) == (JobState.PARKED, pickup_state(current), "w")


@pytest.mark.parametrize(
    ("worker", "now_ms", "back"),
    [("w", 5, False), ("new", 5, True), ("w", 5 + PARKED_REST_MS, True), ("w", 5 - 2 * PARKED_REST_MS, True)],
    ids=["same build", "other build", "rested", "clock jumped back"],
)
def test_parked_jobs_come_back_by_themselves(worker: str, now_ms: int, back: bool) -> None:
    """A parked job returns with another worker build, or after its rest, with a fresh budget."""
    parked = job(
        JobState.PARKED, parked_from="passed_once", parked_on="w", faults=3, code="X", detail="y",
        not_before_ms=5 + PARKED_REST_MS,
    )
    returned = unpark(parked, worker, now_ms)
    assert (returned is not None) == back
    if returned is not None:
        assert (returned.state, returned.faults, returned.code, returned.parked_on) == (
            JobState.PASSED_ONCE, 0, "", "",
        )


@pytest.mark.parametrize("code", ["TARGET_NOT_SERVED", "IMPLAUSIBLE_SPEEDUP"])
def test_what_no_rest_changes_waits_for_another_build(code: str) -> None:
    """A target out of the arena and a verdict under review come back with another arena or build, never by waiting."""
    held = park(job(JobState.QUEUED), 7, worker="w", now_ms=5, code=code, detail="d")
    assert (held.state, held.blame, held.parked_from) == (JobState.PARKED, "operator", "queued")
    assert unpark(held, "w", 5 + 9 * PARKED_REST_MS) is None
    back = unpark(held, "another", 5)
    assert back is not None
    assert (back.state, back.code, back.blame) == (JobState.QUEUED, "", "")


def test_failure_blames_the_miner_unless_told() -> None:
    """A failed job names the miner by default."""
    assert fail(job(JobState.QUEUED), 7, "CODE", detail="d").blame == "miner"


def test_delays_stop_growing() -> None:
    """The delay doubles up to its cap, for any number of failures."""
    assert [BUDGET.delay_ms(count) for count in (1, 2, 3, 1000)] == [1000, 2000, 3000, 3000]


def test_rests_in_a_row_double_and_let_others_pass() -> None:
    """What fails again and again costs ever less, comes back all the same, and holds back nobody after one rest."""
    one, lengths = job(JobState.QUEUED), []
    assert not is_stuck(one)
    for _ in range(8):
        working = msgspec.structs.replace(one, state=JobState.MEASURING, faults=2)
        parked = after_fault(working, working.token, budget=BUDGET, now_ms=0, worker="w", code="X")
        assert parked.state is JobState.PARKED
        lengths.append(parked.not_before_ms)
        assert unpark(parked, "w", parked.not_before_ms - 1) is None
        back = unpark(parked, "w", parked.not_before_ms)
        assert back is not None
        assert is_stuck(back)
        one = back
    assert lengths == [PARKED_REST_MS * factor for factor in (1, 2, 4, 8, 16, 16, 16, 16)]


@pytest.mark.parametrize("state", JobState)
def test_only_what_ended_can_be_opened_again(state: JobState) -> None:
    """A failed job, and a settled one whose crown was revoked, begin anew; nothing else does."""
    ended = job(state, code="CROWN_REVOKED", target_id="t", fingerprint="f", admission="paid", faults=3, rests=2)
    if state not in (JobState.FAILED, JobState.SETTLED):
        with pytest.raises(InternalError) as caught:
            reopen(ended)
        assert caught.value.code == "JOB_TRANSITION_FORBIDDEN"
        return
    opened = reopen(ended)
    assert (opened.state, opened.token, opened.code, opened.faults, opened.rests) == (JobState.QUEUED, 8, "", 0, 0)
    assert opened.admission == "paid"
    unread = msgspec.structs.replace(ended, fingerprint="")
    assert reopen(unread).state is JobState.RESERVED
    if state is JobState.SETTLED:
        with pytest.raises(InternalError):
            reopen(msgspec.structs.replace(ended, code=""))
