"""Launches: a fresh pair of arms, blocks in sealed random order, one arm running at a time.

Invariants
1. Slot 0 is forked first and gets its memory first; the sealed schedule decides which role takes it.
2. All arms are pinned to the same core and only one is ever runnable; the others are frozen, and before and after each
   of the running arm's blocks they are seen to be so and to have used no processor time.
3. Inside a block both roles answer the same questions at the same places, so only the code differs.
4. Blocks and calls are counted by the arena before anything is known; a launch is recorded whole or not at all.
5. A process runs the code of one bundle, or stock, and nothing else: no bundle can touch, slow down or fail another's
   calls. Where stock stands on the candidate's side, its faults are ours.
6. A launch has one bout for each slot that is measured. They share it: its blocks go through the cases of all of them
   in turn, and one record of the role stands for all its arms.
"""

from __future__ import annotations

import contextlib
import gc
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import torch

from config.arena import Arena
from qualify.arm_group import ArmGroup
from qualify.arm_handle import Arm, ArmError
from qualify.arm_plan import ArmPlan, Implementation
from qualify.call_memory import CallMemory
from qualify.checked_call import Draws, Inquirer, Question
from qualify.content import TIMED_STYLES, Content
from qualify.environment import favour, usage
from qualify.group_memory import GroupMemory
from qualify.sandbox.client import Zygote
from qualify.sandbox.policy import SandboxPolicy
from qualify.slots.base import Dimensions, Slot
from scoring.attempt import ArmProcess, ArmRecord, Block, CallCheck, Launch, Role, RoleBlock

STAGE_NUMBER = 1  # first index of the draws of launches
_WARMUP_BLOCK = -1
_START_PATIENCE = 10  # an arm may take this many call deadlines to map its memory and load the bundle


@dataclass(frozen=True, slots=True)
class RoleSetup:
    """What one role runs: its implementations, which of them serves each case, and its sandbox."""

    implementations: tuple[Implementation, ...]
    by_case: tuple[int, ...]  # index into implementations, per shape
    policy: SandboxPolicy
    cases: tuple[int, ...] = ()  # the numbers of these shapes in the rig, in launches

    def blamed(self, role: Role) -> Role:
        """Return the role that faults of this setup, in the arms of `role`, are blamed on: stock's never a candidate's.
        """
        return "baseline" if all(one.is_stock for one in self.implementations) else role


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
    starting_ns: int = 0  # what all arms have taken to start and to prepare, until now

    def now_ns(self) -> int:
        """Return monotonic ns since the attempt began."""
        return time.monotonic_ns() - self.epoch_ns

    def start_arm(self, setup: RoleSetup, shapes: Sequence[Dimensions]) -> Arm:
        """Fork one arm with memory for `shapes` and run its load-time half. Raises `ArmError` and `HostError`."""
        memory = self._memory(tuple(shapes))
        hello = secrets.token_bytes(16).hex()
        plan = ArmPlan(self.slot.key, self.dtype, self.arena.arm_threads, hello, setup.implementations)
        deadline_ms, begin = _START_PATIENCE * self.arena.call_deadline_ms, time.monotonic_ns()
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
        self.starting_ns += time.monotonic_ns() - begin
        return arm

    def _memory(self, shapes: tuple[Dimensions, ...]) -> CallMemory:
        if self.slot.collective:
            return GroupMemory(self.slot, self.dtype, shapes, self.ranks, self.inquirer.weights)
        return CallMemory(self.slot, self.dtype, shapes, self.inquirer.weights)


@dataclass(frozen=True, slots=True)
class Bout:
    """One slot of a launch: its rig, and for each role one setup for each bundle that serves some of the cases."""

    rig: Rig
    setups: Mapping[Role, tuple[RoleSetup, ...]]
    start: int = 0  # number of the rig's first case among those of the whole attempt

    @property
    def cases(self) -> tuple[int, ...]:
        """The numbers, in the rig, of the cases that are measured; each role's setups share them out."""
        return tuple(sorted(number for setup in self.setups["baseline"] for number in setup.cases))

    def shapes(self, cases: Sequence[int]) -> list[Dimensions]:
        """Return the shapes of some cases."""
        return [self.rig.cases[number] for number in cases]


@dataclass(frozen=True, slots=True)
class _Case:
    """One case of the launch: its number in the whole attempt, its bout, and its number in that rig."""

    number: int
    bout: Bout
    local: int


@dataclass(frozen=True, slots=True)
class _Post:
    """One arm of a launch at its work."""

    bout: Bout
    role: Role
    setup: RoleSetup
    arm: Arm
    start_ns: int
    ready_ns: int

    def serves(self, case: _Case) -> bool:
        """Say whether this arm is asked `case`."""
        return self.bout is case.bout and case.local in self.setup.cases


@dataclass(slots=True)
class _Running:
    """The arms of one role in the launch that is being measured."""

    role: Role
    slot: int
    posts: list[_Post] = field(default_factory=list)
    warmup_ns: list[int] = field(default_factory=list)  # of every call: what is put off to the second shows too
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
        """Return the cases of all bouts, in the order of the whole attempt."""
        return [_Case(bout.start + number, bout, number) for bout in self.bouts for number in bout.cases]


def run_launch(bouts: Sequence[Bout], index: int, candidate_slot: int, order: Sequence[bool]) -> Launch:
    """Measure one launch. `order[b]` says whether the candidate runs first in block `b`.

    Raises `RoleError` for what an arm does, `HostError` for what the machine does.
    """
    run = _Run(bouts, index)
    roles: tuple[Role, Role] = ("candidate", "baseline") if candidate_slot == 0 else ("baseline", "candidate")
    begin = run.rig.now_ns()
    for bout in bouts:
        bout.rig.inquirer.renew_weights(bout.shapes(bout.cases), STAGE_NUMBER, index)
    gc.collect()
    with contextlib.ExitStack() as stack, _no_collection():
        for slot, role in enumerate(roles):
            running = run.roles[role] = _Running(role, slot)
            for bout in bouts:
                for setup in bout.setups[role]:
                    post = _start(bout, role, setup, index)
                    stack.callback(post.arm.close)
                    running.posts.append(post)
        _warm_up(run)
        blocks = tuple(
            _run_block(run, block, "candidate" if first else "baseline") for block, first in enumerate(order)
        )
        records = {}
        for one in run.roles.values():
            for post in one.posts:
                with _blaming(post, "teardown", index):
                    post.bout.rig.inquirer.look_again(post.arm)
                    post.arm.require_steadiness()
            records[one.role] = _record(run.rig, one)
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


def _start(bout: Bout, role: Role, setup: RoleSetup, launch: int) -> _Post:
    start = bout.rig.now_ns()
    try:
        arm = bout.rig.start_arm(setup, bout.shapes(setup.cases))
    except ArmError as fault:
        raise RoleError(setup.blamed(role), "start", launch, fault) from fault
    return _Post(bout, role, setup, arm, start, bout.rig.now_ns())


def _warm_up(run: _Run) -> None:
    """Ask as many warm-up calls as the arena says, and each case at least once: no arm meets its first call timed."""
    cases = run.cases()
    for call in range(max(run.rig.arena.warmup_calls, len(cases))):
        case = cases[call % len(cases)]
        question = _question(case, run.index, _WARMUP_BLOCK, call)
        for one in run.roles.values():
            post = next(post for post in one.posts if post.serves(case))
            with _blaming(post, "warmup", run.index):
                elapsed, check = _ask(run, post, case, question, _WARMUP_BLOCK, call)
            one.warmup_ns.append(elapsed)
            one.warmup.append(check)


def _run_block(run: _Run, block: int, first: Role) -> Block:
    cases = run.cases()
    case = cases[block % len(cases)]
    rig = case.bout.rig
    questions = [_question(case, run.index, block, call) for call in range(rig.arena.calls_per_block)]
    second: Role = "baseline" if first == "candidate" else "candidate"
    results: dict[Role, RoleBlock] = {}
    for role in (first, second):
        post = next(post for post in run.roles[role].posts if post.serves(case))
        _require_frozen(run, post)
        start = rig.now_ns()
        with _blaming(post, "block", run.index):
            answers = [_ask(run, post, case, question, block, call) for call, question in enumerate(questions)]
        _require_frozen(run, post)
        results[role] = RoleBlock(start, tuple(ns for ns, _ in answers), tuple(check for _, check in answers))
    return Block(case.number, first, results["baseline"], results["candidate"])


def _question(case: _Case, launch: int, block: int, call: int) -> Question:
    rig, number = case.bout.rig, case.local
    generator = rig.content.generator("inputs", STAGE_NUMBER, launch, block, call)
    style = TIMED_STYLES[int(generator.integers(0, len(TIMED_STYLES)))]
    old = rig.questions.get((number, call))
    question = rig.inquirer.question(rig.cases[number], style, generator, torch.float32, old)
    rig.questions[number, call] = question
    return question


def _ask(run: _Run, post: _Post, case: _Case, question: Question, block: int, call: int) -> tuple[int, CallCheck]:
    implementation = post.setup.by_case[post.setup.cases.index(case.local)]
    draws = Draws(STAGE_NUMBER, run.index, block, call)
    return case.bout.rig.inquirer.ask(post.arm, implementation, question, draws)


def _require_frozen(run: _Run, busy: _Post) -> None:
    """Raise `RoleError` when any arm but the one whose turn it is did anything."""
    for one in run.roles.values():
        for post in one.posts:
            if post is not busy:
                with _blaming(post, "block", run.index):
                    post.arm.require_stillness()


def _record(rig: Rig, one: _Running) -> ArmRecord:
    """Close the arms of a role and return its record."""
    return ArmRecord(
        slot=one.slot,
        core=rig.core,
        arms=tuple(_process(post) for post in one.posts),
        warmup_ns=tuple(one.warmup_ns),
        warmup=tuple(one.warmup),
    )


def _process(post: _Post) -> ArmProcess:
    arm = post.arm
    cpu_ns, peak_bytes = (sum(column) for column in zip(*map(usage, arm.process.host_pids), strict=True))
    outcome = msgspec.structs.replace(arm.close(), cpu_ns=cpu_ns, peak_rss_bytes=peak_bytes)
    return ArmProcess(tuple(arm.identity.split("+")), post.start_ns, post.ready_ns, arm.prepare_ns, outcome)


@contextlib.contextmanager
def _blaming(post: _Post, stage: str, launch: int) -> Iterator[None]:
    try:
        yield
    except ArmError as fault:
        raise RoleError(post.setup.blamed(post.role), stage, launch, fault) from fault


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
