"""Attempt documents of the second schema: the form in which the grader works.

Invariants
1. Integers in the unit their name carries (ns, bytes, ppm) and text, never a float.
2. Observations only. Medians, bounds and outcomes are recomputed by the grader and have no field here.
3. Times called `*_ns` without `unix` come from the referee's monotonic clock, counted from the start of the attempt.
4. What this schema added to the first one: the speed policy; every arm of a role by itself, with what its processes
   used; the duration of every warm-up call and of every call of a stage, in the order of their checks; the least work
   of every case; software with digests. `artifacts` and the environment's device fields are room for accelerators.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from scoring.attempt_parts import (
    Block,
    CallCheck,
    Count,
    Digest,
    DigestOrNone,
    Identity,
    LimitsInForce,
    Nanoseconds,
    Seed,
)

SCHEMA = "cacheon.attempt.v2"

Ending = Literal["decided", "launches", "time", "incident"]


class Package(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Software that had a part in the measurement. `digest` is that of its installed record of files, "" without."""

    name: str
    version: str
    digest: DigestOrNone = ""


class Environment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The machine as the referee saw it."""

    machine: str  # opaque, stable id of the machine
    cpu: str
    kernel: str
    python: str
    torch: str
    cores: tuple[Count, ...]  # cores arms may be pinned to; slot 0 uses cores[0], slot 1 uses cores[1]
    load_before: str  # text such as "0.12 0.20 0.15"
    load_after: str
    layers_present: tuple[str, ...]  # sandbox layers, sorted
    layers_waived: tuple[str, ...]
    timing_method: str
    governor: str = ""  # frequency governor of the arms' core; "" in older files, "none" where the kernel offers none
    libc: str = ""
    packages: tuple[Package, ...] = ()  # sorted by name
    device: str = ""  # accelerator, "" where arms have none; likewise the two below
    driver: str = ""
    clocks: str = ""


class ChildOutcome(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How a sandboxed process ended, as the sandbox reported it, and what it had used by then."""

    kind: str  # "exited", "signaled", "wall_limit", "cpu_limit", "memory_limit", "output_limit", "refused", "killed"
    exit_status: int
    signal: int
    layer: str
    cpu_ns: Nanoseconds = 0  # processor time of all its threads; 0 = not known
    peak_rss_bytes: Nanoseconds = 0  # largest resident set; 0 = not known


class ArmProcess(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One arm: the processes that serve one bundle's calls of one slot, in one role of one launch."""

    processes: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]  # one for each rank, each unique on its machine
    start_ns: Nanoseconds  # fork requested
    ready_ns: Nanoseconds  # arm reported ready, `prepare` done
    prepare_ns: Nanoseconds  # duration of the bundle's `prepare`; 0 when it has none
    outcome: ChildOutcome


class ArmRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All arms of one role in one launch. They share a slot and a core, and were started one after the other."""

    slot: Count  # 0 or 1: core, start order and memory order go with the slot
    core: Count
    arms: Annotated[tuple[ArmProcess, ...], msgspec.Meta(min_length=1)]
    warmup_ns: tuple[Nanoseconds, ...]  # of each warm-up call; one figure for all of them in the first schema
    warmup: tuple[CallCheck, ...]  # one check per warm-up call

    @property
    def processes(self) -> tuple[str, ...]:
        """The ids of all processes."""
        return tuple(process for arm in self.arms for process in arm.processes)

    @property
    def process(self) -> str:
        """The ids of all processes as one text, for people."""
        return "+".join(self.processes)

    @property
    def start_ns(self) -> int:
        """When the first arm was asked for."""
        return self.arms[0].start_ns

    @property
    def ready_ns(self) -> int:
        """When the last arm was ready."""
        return max(arm.ready_ns for arm in self.arms)

    @property
    def prepare_ns(self) -> int:
        """The duration of all load-time halves together."""
        return sum(arm.prepare_ns for arm in self.arms)

    @property
    def first_call_ns(self) -> int:
        """The duration of all warm-up calls together."""
        return sum(self.warmup_ns)


class Launch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A fresh pair of arms, measured to the end. An interrupted launch is an `Incident`, never a `Launch`."""

    index: Count
    candidate_slot: Count  # must equal `sealing.candidate_slot(seed, attempt_id, index)`
    timing_method: str
    start_ns: Nanoseconds
    end_ns: Nanoseconds
    baseline: ArmRecord
    candidate: ArmRecord
    blocks: tuple[Block, ...]


class StageRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One correctness stage before the launches: one shape, checked calls of the candidate."""

    stage: str
    shape: dict[str, Count]
    dtype: str
    checks: tuple[CallCheck, ...]
    call_ns: tuple[Nanoseconds, ...] = ()  # of each call; empty in the first schema


class Incident(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Something that ended the attempt. Kinds and their verdicts are the closed table of `scoring.incidents`."""

    stage: str  # "correctness", "start", "prepare", "warmup", "block", "teardown", ...
    launch: Annotated[int, msgspec.Meta(ge=-1, le=2**31 - 1)]  # index of the launch, -1 outside launches
    role: Literal["baseline", "candidate", "referee"]
    kind: str
    detail: str  # of a wrong output: the place of the worst element, what was expected, what came, and the bound
    outcome: ChildOutcome | None = None


class CaseWork(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What every right answer to one case costs at least: bytes of distinct memory touched, and operations."""

    case: Count
    least_bytes: Nanoseconds
    least_operations: Nanoseconds


class Artifact(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Something that the measurement made or used and that is kept beside the file, by digest."""

    kind: str  # such as "cubin" or "build-log"
    name: str
    size: Count  # bytes
    digest: Digest


class Attempt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One measured comparison."""

    schema: str  # of the file that this was read from, or will be written to
    attempt_id: str  # unique text chosen by the node before the attempt
    role: Literal["primary", "reproduction"]
    previous_attempt: DigestOrNone  # SHA-256 of the primary attempt's bytes; "" for a primary
    started_unix_ns: Nanoseconds
    ended_unix_ns: Nanoseconds
    identity: Identity
    speed_policy: str  # that of the arena
    seed: Seed
    environment: Environment
    limits: LimitsInForce
    stages: tuple[StageRecord, ...]
    launches: tuple[Launch, ...]
    incidents: tuple[Incident, ...]
    ending: Ending  # why the referee stopped launching
    work: tuple[CaseWork, ...] = ()  # of the cases that were measured, ascending
    artifacts: tuple[Artifact, ...] = ()
