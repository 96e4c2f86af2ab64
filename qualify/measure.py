"""Launches: a fresh pair of arms, blocks in sealed random order, one arm running at a time.

Invariants
1. Slot 0 is forked first and gets its memory first; the sealed schedule decides which role takes it.
2. Both arms are pinned to the same core and only one is ever runnable; the other is frozen, and before and after each
   of the running arm's blocks it is seen to be so and to have used no processor time.
3. Inside a block both roles answer the same questions at the same places, so only the code differs.
4. Blocks and calls are counted by the arena before anything is known; a launch is recorded whole or not at all.
"""

from __future__ import annotations

import contextlib
import gc
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from config.arena import Arena
from qualify.arm_group import ArmGroup
from qualify.arm_handle import Arm, ArmError
from qualify.arm_plan import ArmPlan, Implementation
from qualify.call_memory import CallMemory
from qualify.checked_call import Draws, Inquirer, Question
from qualify.content import TIMED_STYLES, Content
from qualify.environment import favour
from qualify.group_memory import GroupMemory
from qualify.sandbox.client import Zygote
from qualify.sandbox.policy import SandboxPolicy
from qualify.slots.base import Dimensions, Slot
from scoring.attempt import ArmRecord, Block, CallCheck, ChildOutcome, Launch, Role, RoleBlock

STAGE_NUMBER = 1  # first index of the draws of launches
_WARMUP_BLOCK = -1
_START_PATIENCE = 10  # an arm may take this many call deadlines to map its memory and load the bundle


@dataclass(frozen=True, slots=True)
class RoleSetup:
    """What one role runs: its implementations, which of them serves each workload case, and its sandbox."""

    implementations: tuple[Implementation, ...]
    by_case: tuple[int, ...]
    policy: SandboxPolicy


class RoleError(Exception):
    """An `ArmError` with the role and the stage it happened in."""

    def __init__(self, role: Role, stage: str, launch: int, fault: ArmError) -> None:
        super().__init__(f"{role} {stage}: {fault}")
        self.role = role
        self.stage = stage
        self.launch = launch
        self.fault = fault


@dataclass(slots=True)
class Rig:
    """Everything that stays fixed through one attempt."""

    arena: Arena
    slot: Slot
    dtype: str
    cases: tuple[Dimensions, ...]
    zygote: Zygote
    content: Content
    inquirer: Inquirer
    core: int
    epoch_ns: int
    ranks: int = 1
    questions: dict[tuple[int, int], Question] = field(default_factory=dict)  # reused memory, by (case, call)

    def now_ns(self) -> int:
        """Return monotonic ns since the attempt began."""
        return time.monotonic_ns() - self.epoch_ns

    def start_arm(self, setup: RoleSetup, shapes: Sequence[Dimensions]) -> Arm:
        """Fork one arm with memory for `shapes` and run its load-time half. Raises `ArmError` and `HostError`."""
        memory = self._memory(tuple(shapes))
        hello = secrets.token_bytes(16).hex()
        plan = ArmPlan(self.slot.id, self.dtype, self.arena.arm_threads, hello, setup.implementations)
        deadline_ms = _START_PATIENCE * self.arena.call_deadline_ms
        try:
            kind = ArmGroup if self.slot.collective else Arm
            arm = kind.start(self.zygote, plan, setup.policy, memory, deadline_ms=deadline_ms)
        except BaseException:
            memory.close()
            raise
        for pid in arm.process.host_pids:
            favour(pid)
        try:
            arm.prepare_ns = self.inquirer.prepare(arm, setup.by_case, shapes, deadline_ms)
        except BaseException:
            arm.close()
            raise
        return arm

    def _memory(self, shapes: tuple[Dimensions, ...]) -> CallMemory:
        if self.slot.collective:
            return GroupMemory(self.slot, self.dtype, shapes, self.ranks, self.inquirer.weights)
        return CallMemory(self.slot, self.dtype, shapes, self.inquirer.weights)


@dataclass(slots=True)
class _Running:
    """One arm of the launch that is being measured."""

    role: Role
    slot: int
    setup: RoleSetup
    arm: Arm
    start_ns: int
    ready_ns: int
    first_call_ns: int = 0  # of all warm-up calls together: what is put off to the second is a slow start too
    warmup: list[CallCheck] = field(default_factory=list)


def run_launch(
    rig: Rig, setups: Mapping[Role, RoleSetup], index: int, candidate_slot: int, order: Sequence[bool]
) -> Launch:
    """Measure one launch. `order[b]` says whether the candidate runs first in block `b`.

    Raises `RoleError` for what an arm does, `HostError` for what the machine does.
    """
    roles: tuple[Role, Role] = ("candidate", "baseline") if candidate_slot == 0 else ("baseline", "candidate")
    begin = rig.now_ns()
    rig.inquirer.renew_weights(rig.cases, STAGE_NUMBER, index)
    gc.collect()
    with contextlib.ExitStack() as stack, _no_collection():
        running: dict[Role, _Running] = {}
        for slot, role in enumerate(roles):
            with _blaming(role, "start", index):
                started = rig.now_ns()
                arm = rig.start_arm(setups[role], rig.cases)
                stack.callback(arm.close)
                running[role] = _Running(role, slot, setups[role], arm, started, rig.now_ns())
        _warm_up(rig, [running[role] for role in roles], index)
        blocks = tuple(
            _run_block(rig, running, index, block, "candidate" if first else "baseline")
            for block, first in enumerate(order)
        )
        records = {}
        for one in running.values():
            with _blaming(one.role, "teardown", index):
                rig.inquirer.look_again(one.arm)
                one.arm.require_steadiness()
            records[one.role] = _record(rig, one, one.arm.close())
        return Launch(
            index=index,
            candidate_slot=candidate_slot,
            timing_method=rig.arena.timing_method,
            start_ns=begin,
            end_ns=rig.now_ns(),
            baseline=records["baseline"],
            candidate=records["candidate"],
            blocks=blocks,
        )


def _warm_up(rig: Rig, arms: Sequence[_Running], launch: int) -> None:
    for call in range(rig.arena.warmup_calls):
        case = call % len(rig.cases)
        question = _question(rig, launch, _WARMUP_BLOCK, call, case)
        for one in arms:
            with _blaming(one.role, "warmup", launch):
                elapsed, check = _ask(rig, one, question, launch, _WARMUP_BLOCK, call, case)
            one.first_call_ns += elapsed
            one.warmup.append(check)


def _run_block(rig: Rig, running: Mapping[Role, _Running], launch: int, block: int, first: Role) -> Block:
    case = block % len(rig.cases)
    questions = [_question(rig, launch, block, call, case) for call in range(rig.arena.calls_per_block)]
    second: Role = "baseline" if first == "candidate" else "candidate"
    results: dict[Role, RoleBlock] = {}
    for role, idle in ((first, second), (second, first)):
        one = running[role]
        _require_frozen(running[idle], launch)
        start = rig.now_ns()
        with _blaming(role, "block", launch):
            answers = [_ask(rig, one, question, launch, block, call, case) for call, question in enumerate(questions)]
        _require_frozen(running[idle], launch)
        results[role] = RoleBlock(start, tuple(ns for ns, _ in answers), tuple(check for _, check in answers))
    return Block(case, first, results["baseline"], results["candidate"])


def _question(rig: Rig, launch: int, block: int, call: int, case: int) -> Question:
    generator = rig.content.generator("inputs", STAGE_NUMBER, launch, block, call)
    style = TIMED_STYLES[int(generator.integers(0, len(TIMED_STYLES)))]
    old = rig.questions.get((case, call))
    question = rig.inquirer.question(rig.cases[case], style, generator, torch.float32, old)
    rig.questions[case, call] = question
    return question


def _ask(
    rig: Rig, one: _Running, question: Question, launch: int, block: int, call: int, case: int
) -> tuple[int, CallCheck]:
    draws = Draws(STAGE_NUMBER, launch, block, call)
    return rig.inquirer.ask(one.arm, one.setup.by_case[case], question, draws)


def _require_frozen(idle: _Running, launch: int) -> None:
    with _blaming(idle.role, "block", launch):
        idle.arm.require_stillness()


def _record(rig: Rig, one: _Running, outcome: ChildOutcome) -> ArmRecord:
    return ArmRecord(
        slot=one.slot,
        core=rig.core,
        process=one.arm.identity,
        start_ns=one.start_ns,
        ready_ns=one.ready_ns,
        prepare_ns=one.arm.prepare_ns,
        first_call_ns=one.first_call_ns,
        warmup=tuple(one.warmup),
        outcome=outcome,
    )


@contextlib.contextmanager
def _blaming(role: Role, stage: str, launch: int) -> Iterator[None]:
    try:
        yield
    except ArmError as fault:
        raise RoleError(role, stage, launch, fault) from fault


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Keep the garbage collector out of timed intervals."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
