"""Launches: a fresh pair of arms, blocks in sealed random order, one arm running at a time.

Invariants
1. Slot 0 is forked first and gets its memory first; the sealed schedule decides which role takes it.
2. All arms are pinned to the same core and only one is ever runnable; the others are frozen, and before and after each
   of the running arm's blocks they are seen to be so and to have used no processor time.
3. Inside a block both roles answer the same questions at the same places, so only the code differs.
4. Blocks and calls are counted by the arena before anything is known; a launch is recorded whole or not at all.
5. A fault is the role's whose code served the call: also in the candidate's arm, the incumbent answers for its own. A
   start with both in one process proves nothing against the candidate, which has started alone before.
6. An atomic target has one rig, and each role one arm, for every member. They share the launch: its blocks go through
   the cases of all members in turn, and one record of the role stands for all its arms.
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
        plan = ArmPlan(self.slot.key, self.dtype, self.arena.arm_threads, hello, setup.implementations)
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


@dataclass(frozen=True, slots=True)
class Bout:
    """One slot of a launch: its rig, and what each role runs on it."""

    rig: Rig
    setups: Mapping[Role, RoleSetup]

    def fills_gap(self, role: Role, implementation: Implementation) -> bool:
        """Say whether `implementation`, in the arms of `role`, is the incumbent's bundle in the candidate's process."""
        theirs = self.setups["baseline"].implementations
        mixed = any(one not in theirs for one in self.setups["candidate"].implementations)
        return role == "candidate" and mixed and not implementation.is_stock and implementation in theirs


@dataclass(frozen=True, slots=True)
class _Case:
    """One case of the launch: the bout it belongs to, and its number there."""

    bout: int
    number: int


@dataclass(slots=True)
class _Running:
    """The arms of one role in the launch that is being measured, one for each bout."""

    role: Role
    slot: int
    start_ns: int
    ready_ns: int = 0
    arms: list[Arm] = field(default_factory=list)
    first_call_ns: int = 0  # of all warm-up calls together: what is put off to the second is a slow start too
    warmup: list[CallCheck] = field(default_factory=list)


@dataclass(slots=True)
class _Run:
    """A launch under way."""

    bouts: Sequence[Bout]
    index: int
    roles: dict[Role, _Running] = field(default_factory=dict)

    @property
    def rig(self) -> Rig:
        """The rig of the first bout; arena, core and clock are the same in all."""
        return self.bouts[0].rig

    def cases(self) -> list[_Case]:
        """Return the cases of all bouts in order."""
        return [_Case(at, number) for at, bout in enumerate(self.bouts) for number in range(len(bout.rig.cases))]


def run_launch(bouts: Sequence[Bout], index: int, candidate_slot: int, order: Sequence[bool]) -> Launch:
    """Measure one launch. `order[b]` says whether the candidate runs first in block `b`.

    Raises `RoleError` for what an arm does, `HostError` for what the machine does.
    """
    run = _Run(bouts, index)
    roles: tuple[Role, Role] = ("candidate", "baseline") if candidate_slot == 0 else ("baseline", "candidate")
    begin = run.rig.now_ns()
    for bout in bouts:
        bout.rig.inquirer.renew_weights(bout.rig.cases, STAGE_NUMBER, index)
    gc.collect()
    with contextlib.ExitStack() as stack, _no_collection():
        for slot, role in enumerate(roles):
            running = run.roles[role] = _Running(role, slot, run.rig.now_ns())
            with _blaming(role, "start", index):
                for bout in bouts:
                    arm = _start(bout, role, index)
                    stack.callback(arm.close)
                    running.arms.append(arm)
            running.ready_ns = run.rig.now_ns()
        _warm_up(run)
        blocks = tuple(
            _run_block(run, block, "candidate" if first else "baseline") for block, first in enumerate(order)
        )
        records = {}
        for one in run.roles.values():
            with _blaming(one.role, "teardown", index):
                for bout, arm in zip(bouts, one.arms, strict=True):
                    bout.rig.inquirer.look_again(arm)
                    arm.require_steadiness()
            records[one.role] = _record(run.rig, one, [arm.close() for arm in one.arms])
        return Launch(
            index=index,
            candidate_slot=candidate_slot,
            timing_method=run.rig.arena.timing_method,
            start_ns=begin,
            end_ns=run.rig.now_ns(),
            baseline=records["baseline"],
            candidate=records["candidate"],
            blocks=blocks,
        )


def _start(bout: Bout, role: Role, launch: int) -> Arm:
    setup = bout.setups[role]
    try:
        return bout.rig.start_arm(setup, bout.rig.cases)
    except ArmError as fault:
        if not any(bout.fills_gap(role, one) for one in setup.implementations):
            raise
        raise _of_incumbent("start", launch, fault) from fault


def _warm_up(run: _Run) -> None:
    cases = run.cases()
    for call in range(run.rig.arena.warmup_calls):
        case = cases[call % len(cases)]
        question = _question(run.bouts[case.bout].rig, run.index, _WARMUP_BLOCK, call, case.number)
        for one in run.roles.values():
            with _blaming(one.role, "warmup", run.index):
                elapsed, check = _ask(run, one, case, question, _WARMUP_BLOCK, call)
            one.first_call_ns += elapsed
            one.warmup.append(check)


def _run_block(run: _Run, block: int, first: Role) -> Block:
    cases = run.cases()
    number = block % len(cases)
    case = cases[number]
    rig = run.bouts[case.bout].rig
    questions = [_question(rig, run.index, block, call, case.number) for call in range(rig.arena.calls_per_block)]
    second: Role = "baseline" if first == "candidate" else "candidate"
    results: dict[Role, RoleBlock] = {}
    for role in (first, second):
        one = run.roles[role]
        _require_frozen(run, one.arms[case.bout])
        start = rig.now_ns()
        with _blaming(role, "block", run.index):
            answers = [_ask(run, one, case, question, block, call) for call, question in enumerate(questions)]
        _require_frozen(run, one.arms[case.bout])
        results[role] = RoleBlock(start, tuple(ns for ns, _ in answers), tuple(check for _, check in answers))
    return Block(number, first, results["baseline"], results["candidate"])


def _question(rig: Rig, launch: int, block: int, call: int, case: int) -> Question:
    generator = rig.content.generator("inputs", STAGE_NUMBER, launch, block, call)
    style = TIMED_STYLES[int(generator.integers(0, len(TIMED_STYLES)))]
    old = rig.questions.get((case, call))
    question = rig.inquirer.question(rig.cases[case], style, generator, torch.float32, old)
    rig.questions[case, call] = question
    return question


def _ask(run: _Run, one: _Running, case: _Case, question: Question, block: int, call: int) -> tuple[int, CallCheck]:
    bout = run.bouts[case.bout]
    setup = bout.setups[one.role]
    number = setup.by_case[case.number]
    draws = Draws(STAGE_NUMBER, run.index, block, call)
    try:
        return bout.rig.inquirer.ask(one.arms[case.bout], number, question, draws)
    except ArmError as fault:
        if not bout.fills_gap(one.role, setup.implementations[number]):
            raise
        raise _of_incumbent("warmup" if block == _WARMUP_BLOCK else "block", run.index, fault) from fault


def _of_incumbent(stage: str, launch: int, fault: ArmError) -> RoleError:
    """Return a fault of the incumbent's code that serves what the candidate leaves out, in the candidate's process."""
    detail = f"{fault.detail} (outside the candidate's domain, in the candidate's process)"
    return RoleError("baseline", stage, launch, ArmError(fault.kind, detail, fault.outcome))


def _require_frozen(run: _Run, busy: Arm) -> None:
    """Raise `RoleError` when any arm but the one whose turn it is did anything."""
    for one in run.roles.values():
        with _blaming(one.role, "block", run.index):
            for arm in one.arms:
                if arm is not busy:
                    arm.require_stillness()


def _record(rig: Rig, one: _Running, outcomes: Sequence[ChildOutcome]) -> ArmRecord:
    return ArmRecord(
        slot=one.slot,
        core=rig.core,
        process="+".join(arm.identity for arm in one.arms),
        start_ns=one.start_ns,
        ready_ns=one.ready_ns,
        prepare_ns=sum(arm.prepare_ns for arm in one.arms),
        first_call_ns=one.first_call_ns,
        warmup=tuple(one.warmup),
        outcome=outcomes[0],
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
