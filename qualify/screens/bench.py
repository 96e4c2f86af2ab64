"""The bench: everything that the screens of one attempt share, fixed before the first arm starts.

Invariants
1. All screens of one attempt draw from one sealed seed and run on one core that no other attempt of this machine uses.
2. A bench has a view for each slot that is measured, which is in every respect the bench of a single slot. Views share
   what is found, and draw as attempts of their own name under the same seed. The candidate answers for those of its
   target's own slots.
3. What ends a screen is recorded once, as an incident, and its code is the one that grading gives that incident. A
   fault of the baseline or of the machine leaves the screen undecided; it is never charged to the candidate.
"""

from __future__ import annotations

import contextlib
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

import msgspec

from config.canonical import domain_digest
from config.errors import HostError
from qualify import environment
from qualify.arm_handle import ArmError
from qualify.arm_server import start_arm_server
from qualify.call_memory import words_needed
from qualify.checked_call import Inquirer
from qualify.content import Content
from qualify.correctness import CorrectnessCase, plan_cases
from qualify.docket import Docket, Trees
from qualify.measure import Bout, Rig, RoleError, RoleSetup
from qualify.routing import Routes
from qualify.sandbox.client import Zygote
from qualify.screens.base import Emit, Examined, Facts, Matter, ScreenReceipt, make_receipt
from qualify.screens.hints import hint_for
from scoring import sealing
from scoring.attempt import Environment, Incident, Launch, Role, StageRecord
from scoring.incidents import consequence

Ending = Literal["decided", "launches", "time", "incident"]
PlanCases = Callable[[Docket, Content], list[CorrectnessCase]]


@dataclass(slots=True)
class Findings:
    """What the attempt has seen so far."""

    stages: list[StageRecord] = field(default_factory=list)
    launches: list[Launch] = field(default_factory=list)
    incidents: list[Incident] = field(default_factory=list)
    layers: tuple[str, ...] = ()
    ending: Ending = "launches"


@dataclass(frozen=True, slots=True)
class Opening:
    """What stood fixed when the bench was taken: clocks, load and the sealed seed."""

    started_unix_ns: int
    load_before: str
    seed: bytes
    commitment: str


@dataclass(slots=True)
class Bench:
    """One attempt in progress; the subject of the screens that run arms."""

    docket: Docket
    opening: Opening
    rig: Rig
    trees: Trees
    routes: Routes  # of the workload's shapes
    cases: tuple[CorrectnessCase, ...]
    emit: Emit
    findings: Findings = field(default_factory=Findings)
    members: tuple[Bench, ...] = ()  # the views where there are several; the first is what this bench itself shows

    def views(self) -> tuple[Bench, ...]:
        """Return one bench for each slot that is measured."""
        return self.members or (self,)

    def judged_views(self) -> tuple[Bench, ...]:
        """Return those of the target's own slots: what the candidate has to serve."""
        return tuple(view for view in self.views() if view.docket.judged)

    @property
    def variants(self) -> tuple[str, ...]:
        """The candidate's variants that the workload reaches, as "slot/variant", sorted."""
        return tuple(sorted({name for view in self.views() for name in view.routes.variants}))

    def setup(self, role: Role, routes: Routes, cases: tuple[int, ...] = ()) -> RoleSetup:
        """Return what an arm of `role` runs when `routes` say which implementation serves which shape.

        `cases` are the numbers of these shapes in the workload, for launches.
        """
        policy = self.docket.policy(role, self.rig.core, routes.implementations, self.trees)
        return RoleSetup(routes.implementations, routes.by_case, policy, cases)

    def case_routes(self) -> Routes:
        """Return the routes of the correctness cases, all of which reach the candidate."""
        return self.docket.candidate_routes([case.dimensions for case in self.cases])

    def bouts(self) -> list[Bout]:
        """Return what launches run, one for each slot that has a case to measure."""
        bouts: list[Bout] = []
        start = 0
        for view in self.views():
            if view.docket.contested():
                bouts.append(Bout(view.rig, {role: view.setups(role) for role in get_args(Role)}, start))
            start += len(view.docket.shapes)
        return bouts

    def setups(self, role: Role) -> tuple[RoleSetup, ...]:
        """Return what the arms of `role` run in launches, one setup for each bundle."""
        return tuple(self.setup(role, share.routes, share.cases) for share in self.docket.shares(role))

    def environment(self) -> Environment:
        """Return the record of the machine as it is now."""
        arena = self.docket.arena
        opening, findings, waived = self.opening, self.findings, self.docket.request.waive
        return environment.describe(self.rig.core, opening.load_before, findings.layers, waived, arena.timing_method)

    def receipt(self, screen: str, examine: Callable[[Bench], Examined]) -> ScreenReceipt:
        """Run one screen's examination and return its receipt; what an arm did wrong is recorded as an incident."""
        begin = time.monotonic_ns()
        try:
            found = examine(self)
        except ArmError as fault:
            found = self.blame(screen, -1, "candidate", fault)
        except RoleError as error:
            found = self.blame(error.stage, error.launch, error.role, error.fault)
        return make_receipt(screen, found, self._matter(), time.monotonic_ns() - begin)

    def blame(self, stage: str, launch: int, role: Role, fault: ArmError, facts: Facts | None = None) -> Examined:
        """Record what ended the attempt and return what it means for the screen it happened in."""
        incident = Incident(stage, launch, role, fault.kind, fault.detail, fault.outcome)
        self.findings.incidents.append(incident)
        self.findings.ending = "incident"
        meaning = consequence(incident)
        return Examined(
            "failed" if meaning.outcome == "FAIL" else "undecided",
            meaning.reason,
            facts=facts or {},
            code=meaning.code,
            blame=meaning.blame.value,
            hint=hint_for(meaning.code),
        )

    def _matter(self) -> Matter:
        docket = self.docket
        return Matter(
            content_hash=docket.candidate.content_hash,
            target_id=docket.target.id,
            arena_digest=docket.arena.digest,
            incumbent_digest=docket.incumbent_digest,
            environment_digest=environment_digest(self.environment()),
        )


@contextlib.contextmanager
def occupy_bench(
    docket: Docket,
    emit: Emit,
    fork_server: Zygote | None = None,
    *,
    seed: bytes | None = None,
    plan: PlanCases | None = None,
    workplace: Path | None = None,
) -> Iterator[Bench]:
    """Take the bench for one attempt: wait for the core, seal a seed, build the engine trees, start a fork server.

    `fork_server` is a running one, when the caller has it; `workplace` is the folder for the trees. `seed` and `plan`
    are for a miner's own runs, which may repeat a seed or choose their cases; an attempt never gives them. Raises
    `HostError` for a machine that is not fit.
    """
    attempt_id, core = docket.request.attempt_id, environment.choose_core(docket.request.arm_cores)
    with contextlib.ExitStack() as stack:
        stack.enter_context(environment.exclusive(core))
        epoch_ns, opening = time.monotonic_ns(), _seal(attempt_id, seed)
        emit({"event": "sealed", "commitment": opening.commitment})
        stack.enter_context(environment.measuring(core))
        trees = docket.build_trees(stack.enter_context(_tree_store(workplace)))
        zygote = fork_server or stack.enter_context(start_arm_server())
        ground = _Ground(opening, zygote, core, epoch_ns, trees, emit, plan)
        views = tuple(_view(docket, view, ground) for view in docket.views())
        if len(views) == 1:
            yield views[0]
        else:
            shared = tuple(replace(view, findings=views[0].findings) for view in views)
            yield replace(shared[0], docket=docket, members=shared)


@dataclass(frozen=True, slots=True)
class _Ground:
    """What the views of one bench stand on."""

    opening: Opening
    zygote: Zygote
    core: int
    epoch_ns: int
    trees: Trees
    emit: Emit
    plan: PlanCases | None


def _view(whole: Docket, docket: Docket, ground: _Ground) -> Bench:
    name = docket.request.attempt_id if not whole.members else f"{docket.request.attempt_id}/{docket.slot.id}"
    planner = Content(ground.opening.seed, name, dtype=docket.dtype, elements=1, words=1)
    if ground.plan is not None and docket.judged:
        cases = ground.plan(docket, planner)
    else:
        cases = plan_cases(docket.slot, planner, docket.shapes, docket.reaches)
    rig = _build_rig(docket, name, cases, ground)
    routes = docket.candidate_routes(docket.shapes)
    return Bench(docket, ground.opening, rig, ground.trees, routes, tuple(cases), ground.emit)


@contextlib.contextmanager
def _tree_store(workplace: Path | None) -> Iterator[Path]:
    """Lend a folder for engine trees that no other attempt uses; leave nothing. Raises `HostError` (TREE_NOT_BUILT)."""
    made = workplace is not None and not workplace.exists()
    try:
        if workplace is not None:
            workplace.mkdir(parents=True, exist_ok=True)
        folder = tempfile.TemporaryDirectory(dir=workplace, prefix="trees-")
    except OSError as error:
        raise HostError(
            "TREE_NOT_BUILT", f"no engine tree can be built below {workplace}: {error.strerror}"
        ) from error
    try:
        with folder as name:
            yield Path(name)
    finally:
        if made and workplace is not None:
            with contextlib.suppress(OSError):  # somebody else put something there
                workplace.rmdir()


def _seal(attempt_id: str, seed: bytes | None) -> Opening:
    seed = secrets.token_bytes(sealing.SEED_BYTES) if seed is None else seed
    return Opening(time.time_ns(), environment.load_average(), seed, sealing.commitment(seed, attempt_id))


def _build_rig(docket: Docket, name: str, cases: list[CorrectnessCase], ground: _Ground) -> Rig:
    slot, dtype, arena, ranks = docket.slot, docket.dtype, docket.arena, docket.world_size
    elements, words = words_needed(slot, dtype, (*docket.shapes, *(case.dimensions for case in cases)))
    content = Content(ground.opening.seed, name, dtype=dtype, elements=elements, words=words)
    inquirer = Inquirer(slot, dtype, content, call_deadline_ms=arena.call_deadline_ms, ranks=ranks)
    return Rig(
        arena, slot, dtype, docket.shapes, ground.zygote, content, inquirer, ground.core, ground.epoch_ns, ranks
    )


def environment_digest(record: Environment) -> str:
    """Return the identity of a machine's record, without what changes from minute to minute or with the first arm."""
    lasting = msgspec.to_builtins(record)
    for name in ("load_before", "load_after", "layers_present"):
        del lasting[name]
    return domain_digest("cacheon.environment", lasting)
