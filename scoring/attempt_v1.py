"""Attempt documents of the first schema: what they look like, and what they are in terms of the second.

Invariants
1. This is `cacheon.attempt.v1` as it was when the second schema succeeded it. It never changes.
2. `upgrade` invents nothing. What the first schema did not record stays empty: one arm stands for all arms of a role,
   and one figure for all its warm-up calls.
3. `downgrade` is the inverse of `upgrade`: a document that was read is written as it was.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from config.arena import FIRST_SPEED_POLICY
from scoring import attempt_v2
from scoring.attempt_parts import (
    Block,
    CallCheck,
    Count,
    DigestOrNone,
    Identity,
    LimitsInForce,
    Nanoseconds,
    Seed,
)

SCHEMA = "cacheon.attempt.v1"
_BETWEEN = "+"  # stood between the ids of processes


class Environment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The machine."""

    machine: str
    cpu: str
    kernel: str
    python: str
    torch: str
    cores: tuple[Count, ...]
    load_before: str
    load_after: str
    layers_present: tuple[str, ...]
    layers_waived: tuple[str, ...]
    timing_method: str
    governor: str = ""


class ChildOutcome(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a sandboxed process ended."""

    kind: str
    exit_status: int
    signal: int
    layer: str


class ArmRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All arms of one role in one launch, as if they were one."""

    slot: Count
    core: Count
    process: str
    start_ns: Nanoseconds
    ready_ns: Nanoseconds
    prepare_ns: Nanoseconds
    first_call_ns: Nanoseconds
    warmup: tuple[CallCheck, ...]
    outcome: ChildOutcome


class Launch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One launch."""

    index: Count
    candidate_slot: Count
    timing_method: str
    start_ns: Nanoseconds
    end_ns: Nanoseconds
    baseline: ArmRecord
    candidate: ArmRecord
    blocks: tuple[Block, ...]


class StageRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One correctness stage."""

    stage: str
    shape: dict[str, Count]
    dtype: str
    checks: tuple[CallCheck, ...]


class Incident(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Something that ended the attempt."""

    stage: str
    launch: Annotated[int, msgspec.Meta(ge=-1, le=2**31 - 1)]
    role: Literal["baseline", "candidate", "referee"]
    kind: str
    detail: str
    outcome: ChildOutcome | None = None


class Attempt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One measured comparison."""

    schema: str
    attempt_id: str
    role: Literal["primary", "reproduction"]
    previous_attempt: DigestOrNone
    started_unix_ns: Nanoseconds
    ended_unix_ns: Nanoseconds
    identity: Identity
    seed: Seed
    environment: Environment
    limits: LimitsInForce
    stages: tuple[StageRecord, ...]
    launches: tuple[Launch, ...]
    incidents: tuple[Incident, ...]
    ending: Literal["decided", "launches", "time", "incident"]


def upgrade(old: Attempt) -> attempt_v2.Attempt:
    """Return `old` in terms of the second schema; its `schema` still says where it came from."""
    values = {name: getattr(old, name) for name in old.__struct_fields__}
    return attempt_v2.Attempt(
        **values
        | {
            "speed_policy": FIRST_SPEED_POLICY,
            "environment": attempt_v2.Environment(**_fields(old.environment)),
            "stages": tuple(attempt_v2.StageRecord(**_fields(stage)) for stage in old.stages),
            "launches": tuple(_upgraded(launch) for launch in old.launches),
            "incidents": tuple(
                attempt_v2.Incident(
                    one.stage, one.launch, one.role, one.kind, one.detail,
                    None if one.outcome is None else attempt_v2.ChildOutcome(**_fields(one.outcome)),
                )
                for one in old.incidents
            ),
        }
    )  # fmt: skip


def downgrade(attempt: attempt_v2.Attempt) -> Attempt:
    """Return the document of the first schema that `attempt` was made from; what only the second knows is dropped."""
    values = {name: getattr(attempt, name) for name in Attempt.__struct_fields__}
    return Attempt(
        **values
        | {
            "environment": Environment(**_fields(attempt.environment, Environment)),
            "stages": tuple(StageRecord(**_fields(stage, StageRecord)) for stage in attempt.stages),
            "launches": tuple(_downgraded(launch) for launch in attempt.launches),
            "incidents": tuple(
                Incident(
                    one.stage, one.launch, one.role, one.kind, one.detail,
                    None if one.outcome is None else ChildOutcome(**_fields(one.outcome, ChildOutcome)),
                )
                for one in attempt.incidents
            ),
        }
    )  # fmt: skip


def _fields(struct: msgspec.Struct, kind: type[msgspec.Struct] | None = None) -> dict[str, Any]:
    return {name: getattr(struct, name) for name in (kind or type(struct)).__struct_fields__}


def _upgraded(launch: Launch) -> attempt_v2.Launch:
    arms = {"baseline": _upgraded_arm(launch.baseline), "candidate": _upgraded_arm(launch.candidate)}
    return attempt_v2.Launch(**_fields(launch) | arms)


def _upgraded_arm(old: ArmRecord) -> attempt_v2.ArmRecord:
    outcome = attempt_v2.ChildOutcome(**_fields(old.outcome))
    processes = tuple(old.process.split(_BETWEEN))
    arm = attempt_v2.ArmProcess(processes, old.start_ns, old.ready_ns, old.prepare_ns, outcome)
    return attempt_v2.ArmRecord(old.slot, old.core, (arm,), (old.first_call_ns,), old.warmup)


def _downgraded(launch: attempt_v2.Launch) -> Launch:
    arms = {"baseline": _downgraded_arm(launch.baseline), "candidate": _downgraded_arm(launch.candidate)}
    return Launch(**_fields(launch) | arms)


def _downgraded_arm(record: attempt_v2.ArmRecord) -> ArmRecord:
    return ArmRecord(
        slot=record.slot,
        core=record.core,
        process=_BETWEEN.join(record.processes),
        start_ns=record.start_ns,
        ready_ns=record.ready_ns,
        prepare_ns=record.prepare_ns,
        first_call_ns=record.first_call_ns,
        warmup=record.warmup,
        outcome=ChildOutcome(**_fields(record.arms[0].outcome, ChildOutcome)),
    )
