"""The referee: one attempt from sealed seed to evidence.

Invariants
1. The seed is drawn and its commitment announced before the first launch; everything random follows from it.
2. A fault of the candidate or of the baseline ends the attempt and is recorded; a fault of this machine or of ours
   raises, leaves no evidence and is never blamed on a bundle.
3. The referee records observations. It asks `scoring.speed` only when to stop; the verdict is `scoring.grade`'s.
"""

from __future__ import annotations

import contextlib
import functools
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from config.arena import Arena, Workload, load_arena
from config.errors import ConfigurationError
from config.target_catalog import Target, load_catalog
from intake.report import IntakeReport
from qualify import environment
from qualify.arm_handle import ArmError
from qualify.arm_plan import BUNDLE_MOUNT, INCUMBENT_MOUNT
from qualify.call_memory import words_needed
from qualify.checked_call import Inquirer
from qualify.content import Content
from qualify.correctness import STAGE, STAGE_NUMBER, CorrectnessCase, plan_cases, run_case
from qualify.measure import Rig, RoleError, RoleSetup, run_launch
from qualify.request import AttemptRequest, stock_digest
from qualify.routing import candidate_variant, route_candidate, route_incumbent
from qualify.sandbox.client import Zygote
from qualify.sandbox.policy import SandboxPolicy
from qualify.slots.base import Dimensions, Slot
from qualify.slots.registry import find_slot
from qualify.subjects import CPU_ARCHITECTURE, Subject, open_subject
from scoring import sealing
from scoring.attempt import (
    ATTEMPT_SCHEMA,
    Attempt,
    Identity,
    Incident,
    Launch,
    LimitsInForce,
    Role,
    Seed,
    StageRecord,
)
from scoring.speed import Decision, SequentialTest, launch_value

Emit = Callable[[dict[str, object]], None]
Ending = Literal["decided", "launches", "time", "incident"]
PRELOAD = ("torch", "qualify.arm")


@dataclass(slots=True)
class _Docket:
    """What the attempt is about, fixed before the seed is drawn."""

    request: AttemptRequest
    arena: Arena
    target: Target
    workload: Workload
    slot: Slot
    candidate: Subject
    incumbent: Subject | None

    @property
    def cases(self) -> tuple[Dimensions, ...]:
        return self.workload.shapes

    def reaches(self, shape: Dimensions) -> bool:
        """Say whether a call of `shape` would be served by the candidate."""
        dtype, report = self.workload.dtype, self.candidate.report
        return candidate_variant(self.slot, dtype, CPU_ARCHITECTURE, shape, report) is not None


@dataclass(slots=True)
class _Findings:
    """What the attempt has seen so far."""

    stages: list[StageRecord] = field(default_factory=list)
    launches: list[Launch] = field(default_factory=list)
    incidents: list[Incident] = field(default_factory=list)
    variants: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()
    ending: Ending = "launches"

    def blame(self, stage: str, launch: int, role: Role, fault: ArmError) -> None:
        """Record what ended the attempt."""
        self.incidents.append(Incident(stage, launch, role, fault.kind, fault.detail, fault.outcome))
        self.ending = "incident"


def run_attempt(request: AttemptRequest, emit: Emit, fork_server: Zygote | None = None) -> Attempt:
    """Measure one comparison and return its evidence.

    `fork_server` is a running one started with `PRELOAD`, when the caller has it; else one is started for this attempt.
    Raises `ConfigurationError` for a request this build cannot serve and `HostError` for a machine that is not fit.
    """
    docket = _open(request)
    core = environment.choose_core(request.arm_cores)
    with environment.exclusive(core):
        return _run(docket, core, emit, fork_server)


def _run(docket: _Docket, core: int, emit: Emit, fork_server: Zygote | None) -> Attempt:
    request = docket.request
    started_unix_ns, epoch_ns = time.time_ns(), time.monotonic_ns()
    load_before = environment.load_average()
    seed = secrets.token_bytes(sealing.SEED_BYTES)
    commitment = sealing.commitment(seed, request.attempt_id)
    emit({"event": "sealed", "commitment": commitment})
    findings = _Findings()
    with contextlib.ExitStack() as stack:
        stack.enter_context(environment.measuring(core))
        zygote = fork_server or stack.enter_context(Zygote.start(preload=PRELOAD))
        _examine(docket, seed, zygote, core, epoch_ns, findings, emit)
    return Attempt(
        schema=ATTEMPT_SCHEMA,
        attempt_id=request.attempt_id,
        role=request.role,
        previous_attempt=request.previous_attempt,
        started_unix_ns=started_unix_ns,
        ended_unix_ns=time.time_ns(),
        identity=_identity(docket, findings),
        seed=Seed(commitment, seed.hex()),
        environment=environment.describe(core, load_before, findings.layers, request.waive, docket.arena.timing_method),
        limits=LimitsInForce(
            docket.arena.arm_memory_bytes,
            docket.arena.arm_threads,
            docket.arena.call_deadline_ms,
            docket.arena.attempt_budget_seconds,
        ),
        stages=tuple(findings.stages),
        launches=tuple(findings.launches),
        incidents=tuple(findings.incidents),
        ending=findings.ending,
    )


def _open(request: AttemptRequest) -> _Docket:
    arena = load_arena(request.arena)
    target = load_catalog().find(request.target_id)
    workload = arena.workload(request.target_id)
    if target is None or target.kind != "slot" or workload is None:
        raise ConfigurationError(
            "TARGET_NOT_MEASURABLE",
            f"arena {arena.id} does not judge target {request.target_id!r}",
            hint="register the target in the catalog and give the arena a workload for it",
        )
    incumbent = open_subject(request.incumbent) if request.incumbent is not None else None
    slot = find_slot(target.members[0])
    return _Docket(request, arena, target, workload, slot, open_subject(request.candidate), incumbent)


def _examine(
    docket: _Docket, seed: bytes, zygote: Zygote, core: int, epoch_ns: int, findings: _Findings, emit: Emit
) -> None:
    arena, slot, dtype = docket.arena, docket.slot, docket.workload.dtype
    routes = route_candidate(
        slot, dtype, CPU_ARCHITECTURE, docket.cases, docket.candidate.report, _report(docket.incumbent)
    )
    findings.variants = routes.variants
    if not routes.variants:
        fault = ArmError("never_routed", "every shape of the workload lies outside the domains of the bundle")
        findings.blame("routing", -1, "candidate", fault)
        return
    planner = Content(seed, docket.request.attempt_id, dtype=dtype, elements=1, words=1)
    cases = plan_cases(slot, planner, docket.cases, docket.reaches)
    shapes = (*docket.cases, *(case.dimensions for case in cases))
    elements, words = words_needed(slot, dtype, shapes)
    content = Content(seed, docket.request.attempt_id, dtype=dtype, elements=elements, words=words)
    inquirer = Inquirer(slot, dtype, content, call_deadline_ms=arena.call_deadline_ms)
    rig = Rig(arena, slot, dtype, docket.cases, zygote, content, inquirer, core, epoch_ns)
    if not _check_correctness(docket, rig, cases, findings, emit):
        return
    baseline = route_incumbent(slot, dtype, CPU_ARCHITECTURE, docket.cases, _report(docket.incumbent))
    setups: dict[Role, RoleSetup] = {
        "baseline": RoleSetup(baseline.implementations, baseline.by_case, _policy(docket, core, "baseline")),
        "candidate": RoleSetup(routes.implementations, routes.by_case, _policy(docket, core, "candidate")),
    }
    _measure(docket, rig, setups, seed, findings, emit)


def _check_correctness(
    docket: _Docket, rig: Rig, cases: Sequence[CorrectnessCase], findings: _Findings, emit: Emit
) -> bool:
    shapes = [case.dimensions for case in cases]
    routes = route_candidate(rig.slot, rig.dtype, CPU_ARCHITECTURE, shapes, docket.candidate.report, None)
    setup = RoleSetup(routes.implementations, routes.by_case, _policy(docket, rig.core, "candidate"))
    rig.inquirer.renew_weights(shapes, STAGE_NUMBER, 0)
    try:
        with rig.start_arm(setup, shapes) as arm:
            findings.layers = arm.process.layers
            for index, case in enumerate(cases):
                implementation = routes.by_case[index]
                record = run_case(rig.inquirer, rig.content, arm, implementation, rig.dtype, case, index)
                findings.stages.append(record)
                emit({"event": "stage", "index": index, "count": len(cases)})
            rig.inquirer.look_again(arm)
    except ArmError as fault:
        findings.blame(STAGE, -1, "candidate", fault)
        return False
    return True


def _measure(
    docket: _Docket, rig: Rig, setups: dict[Role, RoleSetup], seed: bytes, findings: _Findings, emit: Emit
) -> None:
    attempt_id, arena = docket.request.attempt_id, docket.arena
    test = SequentialTest.for_arena(arena)
    for index in range(arena.launches_max):
        if rig.now_ns() > arena.attempt_budget_seconds * 1_000_000_000:
            findings.ending = "time"
            return
        slot = sealing.candidate_slot(seed, attempt_id, index)
        first = functools.partial(sealing.candidate_first, seed, attempt_id, index)
        order = [first(block) for block in range(arena.blocks_per_launch)]
        try:
            launch = run_launch(rig, setups, index, slot, order)
        except RoleError as fault:
            findings.blame(fault.stage, index, fault.role, fault.fault)
            return
        findings.launches.append(launch)
        decision = test.add_launch(launch_value(launch), launch.candidate_slot)
        emit(
            {
                "event": "launch",
                "index": index,
                "launches_max": arena.launches_max,
                "lower_ppm": test.lower_ppm,
                "upper_ppm": test.upper_ppm,
            }
        )
        if decision is not Decision.CONTINUE:
            findings.ending = "launches" if decision is Decision.EXHAUSTED else "decided"
            return


def _policy(docket: _Docket, core: int, role: Role) -> SandboxPolicy:
    arena = docket.arena
    mounts: list[tuple[str, str]] = []
    if role == "candidate":
        mounts.append((docket.candidate.root, BUNDLE_MOUNT))
        if docket.incumbent is not None:
            mounts.append((docket.incumbent.root, INCUMBENT_MOUNT))
    elif docket.incumbent is not None:
        mounts.append((docket.incumbent.root, BUNDLE_MOUNT))
    return SandboxPolicy(
        memory_bytes=arena.arm_memory_bytes,
        cpu_seconds=arena.attempt_budget_seconds,
        wall_seconds=2.0 * arena.attempt_budget_seconds,
        cores=(core,),
        readonly=tuple(mounts),
        waive=docket.request.waive,
    )


def _identity(docket: _Docket, findings: _Findings) -> Identity:
    incumbent = docket.incumbent
    return Identity(
        content_hash=docket.candidate.content_hash,
        target_id=docket.target.id,
        target_digest=docket.target.digest,
        variants=findings.variants,
        arena_id=docket.arena.id,
        arena_digest=docket.arena.digest,
        incumbent_digest=stock_digest(docket.target.id) if incumbent is None else incumbent.content_hash,
        candidate_tree_digest=docket.candidate.content_hash,
        tier="host",
        reservation=docket.request.reservation,
    )


def _report(subject: Subject | None) -> IntakeReport | None:
    return None if subject is None else subject.report
