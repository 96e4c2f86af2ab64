"""What ends an attempt early, and what each ending means: one closed table.

Invariants
1. A candidate's own failure is FAIL with blame `miner`; the same failure of the baseline, and every failure of the
   referee or the machine, is RETRY with blame `internal`.
2. An incident that is not in the table is refused as evidence; it is never guessed.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from config.errors import Blame, EvidenceError
from scoring.attempt import Incident

Outcome = Literal["PASS", "FAIL", "RETRY"]


class Consequence(NamedTuple):
    """The verdict an incident leads to, and the sentence that explains it."""

    outcome: Outcome
    code: str
    blame: Blame
    reason: str


_CANDIDATE: dict[str, tuple[str, str]] = {
    "wrong_output": ("WRONG_OUTPUT", "an output lies outside the slot's tolerance"),
    "late_write": ("LATE_WRITE", "an output changed after the call had returned"),
    "input_mutated": ("INPUT_MUTATED", "an input changed during the call"),
    "out_of_bounds": ("OUT_OF_BOUNDS_WRITE", "memory outside the output was written"),
    "crashed": ("ARM_CRASHED", "the process died during a call"),
    "raised": ("ARM_RAISED", "the call raised an exception"),
    "dawdled": ("CANDIDATE_TOO_SLOW", "its calls took all the time that the attempt has"),
    "call_deadline": ("CALL_DEADLINE", "a call did not return within its deadline"),
    "resource_limit": ("RESOURCE_LIMIT", "the process reached a memory, processor, process or output limit"),
    "protocol": ("ARM_PROTOCOL", "the process answered outside the call protocol"),
    "forbidden_call": ("FORBIDDEN_CALL", "the process made a system call that the sandbox forbids"),
    "load_failed": ("LOAD_FAILED", "the entry point could not be imported"),
    "signature": ("ENTRY_SIGNATURE", "the entry does not take the arguments of its slot"),
    "prepare_failed": ("PREPARE_FAILED", "`prepare` failed"),
    "base_absent": ("OVERRIDE_BASE_ABSENT", "the base kernel of an override does not exist for this arena"),
    "never_routed": ("NEVER_ROUTED", "no variant of the bundle matches the workload"),
    "not_executed": ("NOT_EXECUTED", "the outputs do not depend on the inputs as the slot requires"),
}
_ANY_ROLE: dict[str, tuple[str, str]] = {
    "arm_start": ("ARM_START_FAILED", "a sandboxed process could not be started"),
    "interrupted": ("ATTEMPT_INTERRUPTED", "the attempt was stopped from outside"),
    "sandbox": ("SANDBOX_FAILED", "the sandbox could not be set up or verified"),
    "machine": ("MACHINE_UNFIT", "the machine left the state that measuring needs"),
    "internal": ("REFEREE_FAILED", "the referee itself failed"),
}
INCIDENT_KINDS = frozenset(_CANDIDATE) | frozenset(_ANY_ROLE)


def consequence(incident: Incident) -> Consequence:
    """Return what `incident` leads to. Raises `GradeError` (INCIDENT_UNKNOWN)."""
    if incident.kind in _ANY_ROLE:
        code, reason = _ANY_ROLE[incident.kind]
        return Consequence("RETRY", code, Blame.INTERNAL, _sentence(reason, incident))
    if incident.kind in _CANDIDATE and incident.role == "candidate":
        code, reason = _CANDIDATE[incident.kind]
        return Consequence("FAIL", code, Blame.MINER, _sentence(reason, incident))
    if incident.kind == "dawdled" and incident.role == "baseline":
        reason = "the incumbent's calls took all the time that the attempt has"
        return Consequence("RETRY", "TIME_BUDGET_SHORT", Blame.INTERNAL, _sentence(reason, incident))
    if incident.kind in _CANDIDATE and incident.role == "baseline":
        reason = f"the incumbent failed: {_CANDIDATE[incident.kind][1]}"
        return Consequence("RETRY", "BASELINE_FAILED", Blame.INTERNAL, _sentence(reason, incident))
    raise EvidenceError("INCIDENT_UNKNOWN", f"incident {incident.kind[:60]!r} of {incident.role} is not in the table")


def _sentence(reason: str, incident: Incident) -> str:
    where = f"launch {incident.launch}, {incident.stage}" if incident.launch >= 0 else incident.stage
    detail = f": {incident.detail}" if incident.detail else ""
    return f"{reason} ({where}){detail}"
