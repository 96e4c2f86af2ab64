"""The docket: what one attempt is about, opened and checked before a seed is drawn.

Invariants
1. A docket exists only for a target that the arena judges and for bundles that are what they are filed as.
2. The candidate's arms run from the incumbents' tree with the one target replaced, the baseline's from that tree as it
   is (`qualify.engine_tree`). Both roles run under the same limits; only what is mounted differs, and of its tree an
   arm sees the bundles that serve its calls.
3. An atomic target is one comparison on the workloads of all its members. Its docket has a view for each of them, which
   is in every respect the docket of a single slot; a member without crown of its own target is held by whoever holds
   that slot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from config.arena import Arena, Workload, load_arena
from config.errors import ConfigurationError
from config.target_catalog import Target, load_catalog
from intake.report import IntakeReport
from qualify.arm_plan import Implementation
from qualify.engine_tree import EngineTree, Part, materialise, package_of
from qualify.request import AttemptRequest
from qualify.routing import Ahead, Routes, Seam, reached_variant, route_candidate, route_incumbent
from qualify.sandbox.policy import SandboxPolicy
from qualify.slots.admission import admit
from qualify.slots.base import Dimensions, Slot
from qualify.slots.registry import find_slot
from qualify.subjects import CPU_ARCHITECTURE, Subject, open_subject
from scoring.attempt import Role

_TASKS_PER_RANK = 32


@dataclass(frozen=True, slots=True)
class Trees:
    """The folders of the two engine trees of an attempt."""

    candidate: str
    incumbent: str


@dataclass(frozen=True, slots=True)
class Docket:
    """One comparison: the documents it stands under, the candidate, the trees of both roles, and the slot in view."""

    request: AttemptRequest
    arena: Arena
    target: Target
    workload: Workload
    slot: Slot
    candidate: Subject
    tree: EngineTree  # the candidate's; `tree.rollback()` is the incumbent's
    crowned: Mapping[str, Subject]  # by content hash
    members: tuple[tuple[Slot, Workload], ...] = ()  # of an atomic target, all of them

    @property
    def dtype(self) -> str:
        """The dtype of every call."""
        return self.workload.dtype

    @property
    def shapes(self) -> tuple[Dimensions, ...]:
        """The shapes that are measured."""
        return self.workload.shapes

    @property
    def world_size(self) -> int:
        """How many ranks make every call."""
        return self.workload.world_size

    @property
    def incumbent(self) -> Subject | None:
        """The crowned bundle that serves the slot in view; None for stock."""
        return self._holder(self.slot.id)

    @property
    def incumbent_digest(self) -> str:
        """The identity of what the candidate is compared with: the tree without it."""
        return self.tree.rollback().digest

    @property
    def seam(self) -> Seam:
        """What all calls of the slot in view have in common."""
        return Seam(self.slot, self.dtype, CPU_ARCHITECTURE, self.world_size)

    def views(self) -> tuple[Docket, ...]:
        """Return one docket for each slot that is measured."""
        if not self.members:
            return (self,)
        return tuple(replace(self, slot=slot, workload=load, members=()) for slot, load in self.members)

    def reaches(self, shape: Dimensions) -> bool:
        """Say whether a call of `shape` would be served by the candidate."""
        return reached_variant(self.seam, shape, self.candidate.report, self.ahead()) is not None

    def candidate_routes(self, shapes: Sequence[Dimensions]) -> Routes:
        """Return what serves calls of `shapes` in the candidate's arms."""
        incumbent = self._report_of(self.incumbent)
        return route_candidate(self.seam, shapes, self.candidate.report, incumbent, self.ahead())

    def incumbent_routes(self, shapes: Sequence[Dimensions]) -> Routes:
        """Return what serves calls of `shapes` in the baseline's arms."""
        return route_incumbent(self.seam, shapes, self._report_of(self.incumbent))

    def ahead(self) -> Ahead:
        """Return the crowned holders that the slot's binding asks before the slot, in binding order."""
        catalog = self.tree.catalog
        family = [rule.precedence for rule in catalog.rules if self.slot.id in rule.precedence]
        first = [name for precedence in family for name in precedence[: precedence.index(self.slot.id)]]
        parts = [part for part in self.tree.rollback().parts if part.target_id in first]
        return [(find_slot(part.target_id, self.slot.model), self.crowned[part.content_hash].report) for part in parts]

    def build_trees(self, store: Path) -> Trees:
        """Build both trees below `store`. Raises `HostError` as `engine_tree.materialise` does."""
        bundles = {subject.content_hash: subject.root for subject in (*self.crowned.values(), self.candidate)}
        built = [materialise(tree, bundles, store) for tree in (self.tree, self.tree.rollback())]
        return Trees(str(built[0]), str(built[1]))

    def policy(
        self, role: Role, core: int, implementations: Sequence[Implementation], trees: Trees
    ) -> SandboxPolicy:
        """Return the sandbox of one role's arms, pinned to `core`, which may run `implementations`.

        The ranks of a group share the core: what they wait for each other is part of every call, and the same for both
        roles. A machine with a core for every rank would show other ratios; arenas say which machine counts.

        Of a tree, only the bundles that these are from are mounted: what a bundle can see must not tell it which role
        it plays, and must not hold the kernels of others.
        """
        mine = package_of(self.candidate.content_hash)
        mounts = []
        for root in sorted({one.root for one in implementations if not one.is_stock}):
            package = root.rpartition("/")[2]
            tree = trees.candidate if role == "candidate" and package == mine else trees.incumbent
            mounts.append((f"{tree}/{package}", root))
        return SandboxPolicy(
            memory_bytes=self.arena.arm_memory_bytes,
            cpu_seconds=self.arena.attempt_budget_seconds,
            wall_seconds=2.0 * self.arena.attempt_budget_seconds,
            cores=(core,),
            ranks=self.world_size,
            processes=_TASKS_PER_RANK * self.world_size,
            readonly=tuple(mounts),
            waive=self.request.waive,
        )

    def _holder(self, slot: str) -> Subject | None:
        part = self.tree.rollback().holder(slot)
        return None if part is None else self.crowned[part.content_hash]

    def _report_of(self, subject: Subject | None) -> IntakeReport | None:
        return None if subject is None else subject.report


def open_docket(request: AttemptRequest) -> Docket:
    """Open what `request` names.

    Raises `ConfigurationError` (TARGET_NOT_MEASURABLE, SLOT_UNREGISTERED, ACTIVE_SET_INVALID, those of `load_arena`)
    and `HostError` (BUNDLE_UNUSABLE).
    """
    arena, catalog = load_arena(request.arena), load_catalog()
    target, loads = catalog.find(request.target_id), arena.parts(request.target_id)
    if target is None or not loads or sorted(load.target for load in loads) != list(target.members):
        raise ConfigurationError(
            "TARGET_NOT_MEASURABLE",
            f"arena {arena.id} does not judge target {request.target_id!r}",
            hint="register the target in the catalog and give the arena a workload for it and for all its members",
        )
    members = tuple((_slot_of(arena, load), load) for load in loads)
    crowned = {one.bundle.content_hash: open_subject(one.bundle) for one in request.stack}
    stack = EngineTree.of(catalog, [Part(one.target_id, one.bundle.content_hash) for one in request.stack])
    candidate = open_subject(request.candidate)
    tree = stack.replaced(Part(target.id, candidate.content_hash))
    (slot, workload), whole = members[0], members if len(members) > 1 else ()
    return Docket(request, arena, target, workload, slot, candidate, tree, crowned, whole)


def _slot_of(arena: Arena, workload: Workload) -> Slot:
    slot = find_slot(workload.target, workload.profile)
    if slot.collective != (workload.world_size > 1):
        raise ConfigurationError(
            "TARGET_NOT_MEASURABLE",
            f"arena {arena.id} gives {slot.id} a group of {workload.world_size}",
            hint="give a workload of a collective a world_size of at least 2, and any other workload none",
        )
    admit(slot, workload.dtype)
    return slot
