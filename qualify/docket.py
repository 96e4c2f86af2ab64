"""The docket: what one attempt is about, opened and checked before a seed is drawn.

Invariants
1. A docket exists only for a target that the arena judges and for bundles that are what they are filed as.
2. The candidate's arms run from the incumbents' tree with the one target replaced, the baseline's from that tree as it
   is (`qualify.engine_tree`). Both roles run under the same limits; only what is mounted differs, and of its tree an
   arm sees the bundles that serve its calls.
3. What is measured is every slot whose holder differs between the two trees: all members of the target, and those of
   which a crown would take the holder away, because it holds a member too. Of the latter stock is the candidate's side.
4. A docket has a view for each slot that is measured, which is in every respect the docket of a single slot; a member
   without crown of its own target is held by whoever holds that slot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from pathlib import Path

from config.arena import Arena, Workload, load_arena
from config.errors import ConfigurationError
from config.target_catalog import Target, load_catalog
from intake.report import IntakeReport
from qualify.arm_plan import Implementation
from qualify.engine_tree import EngineTree, Part, materialise, package_of
from qualify.request import AttemptRequest
from qualify.routing import Ahead, Routes, Seam, Share, contested, reached_variant, route, shares
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
    members: tuple[tuple[Slot, Workload], ...] = ()  # all slots that are measured, when there is more than one

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

    @property
    def judged(self) -> bool:
        """Say whether the slot in view is the target's own; of others only what they lose is measured."""
        return self.slot.id in self.target.members

    @property
    def slots(self) -> tuple[str, ...]:
        """The slots that are measured, sorted; empty when they are the target's members and no others."""
        names = sorted(view.slot.id for view in self.views())
        return () if set(names) == set(self.target.members) else tuple(names)

    @property
    def gaps(self) -> tuple[int, ...]:
        """The cases, numbered through all views, that stock serves in both trees."""
        found: list[int] = []
        start = 0
        for view in self.views():
            measured = view.contested()
            found += [start + number for number in range(len(view.shapes)) if number not in measured]
            start += len(view.shapes)
        return tuple(found)

    def contested(self) -> tuple[int, ...]:
        """Return the numbers of the workload's cases that are measured."""
        return contested(self.incumbent_routes(self.shapes), self.candidate_routes(self.shapes))

    def shares(self, role: Role) -> tuple[Share, ...]:
        """Return those cases divided by whose code serves them in the tree of `role`."""
        routes = self.candidate_routes(self.shapes) if role == "candidate" else self.incumbent_routes(self.shapes)
        return shares(routes, self.contested())

    def views(self) -> tuple[Docket, ...]:
        """Return one docket for each slot that is measured."""
        if not self.members:
            return (self,)
        return tuple(replace(self, slot=slot, workload=load, members=()) for slot, load in self.members)

    def reaches(self, shape: Dimensions) -> bool:
        """Say whether a call of `shape` would be served by the candidate."""
        return self.judged and reached_variant(self.seam, shape, self.candidate.report, self.ahead()) is not None

    def candidate_routes(self, shapes: Sequence[Dimensions]) -> Routes:
        """Return what serves calls of `shapes` in the candidate's tree."""
        return route(self.seam, shapes, self.candidate.report if self.judged else None, self.ahead())

    def incumbent_routes(self, shapes: Sequence[Dimensions]) -> Routes:
        """Return what serves calls of `shapes` in the incumbents' tree."""
        return route(self.seam, shapes, self._report_of(self.incumbent), self.ahead())

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
    target = catalog.find(request.target_id)
    if target is None:
        raise _not_measurable(arena, request.target_id)
    stack = EngineTree.of(catalog, [Part(one.target_id, one.bundle.content_hash) for one in request.stack])
    tree = stack.replaced(Part(target.id, request.candidate.content_hash))
    members = tuple((_slot_of(arena, load), load) for load in _workloads(arena, target, tree.changed()))
    crowned = {one.bundle.content_hash: open_subject(one.bundle) for one in request.stack}
    candidate = open_subject(request.candidate)
    (slot, workload), whole = members[0], members if len(members) > 1 else ()
    return Docket(request, arena, target, workload, slot, candidate, tree, crowned, whole)


def _workloads(arena: Arena, target: Target, changed: AbstractSet[str]) -> tuple[Workload, ...]:
    own = {load.target for load in arena.parts(target.id)}
    slots = own | changed
    loads = arena.measured(target.id, sorted(slots) if slots > own else ())
    if own != set(target.members) or not loads:
        raise _not_measurable(arena, target.id)
    return loads


def _not_measurable(arena: Arena, target_id: str) -> ConfigurationError:
    return ConfigurationError(
        "TARGET_NOT_MEASURABLE",
        f"arena {arena.id} does not judge target {target_id!r}",
        hint="register the target in the catalog and give the arena a workload for it and for all slots it changes, "
        "and a block in each launch for every shape of these",
    )


def _slot_of(arena: Arena, workload: Workload) -> Slot:
    slot = find_slot(workload.target, workload.profile)
    if slot.collective != (workload.world_size > 1):
        raise ConfigurationError(
            "TARGET_NOT_MEASURABLE",
            f"arena {arena.id} gives {slot.id} a group of {workload.world_size}",
            hint="give a workload of a collective a world_size of at least 2, and any other workload none",
        )
    for shape in workload.shapes:
        if set(shape) != set(slot.dimensions) or slot.legal(shape) != dict(shape):
            given = " ".join(f"{name}={extent}" for name, extent in shape.items())
            raise ConfigurationError(
                "TARGET_NOT_MEASURABLE",
                f"arena {arena.id} gives {slot.id} a shape that no call has: {given}",
                hint=f"a shape gives {', '.join(slot.dimensions)}; `cacheon slots {slot.id}` shows some",
            )
    admit(slot, workload.dtype)
    return slot
