"""The docket: what one attempt is about, opened and checked before a seed is drawn.

Invariants
1. A docket exists only for a target that the arena judges and for bundles that are what they are filed as.
2. Both roles run under the same limits; only what is mounted differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from config.arena import Arena, Workload, load_arena
from config.errors import ConfigurationError
from config.target_catalog import Target, load_catalog
from intake.report import IntakeReport
from qualify.arm_plan import BUNDLE_MOUNT, INCUMBENT_MOUNT, Implementation
from qualify.request import AttemptRequest, stock_digest
from qualify.routing import candidate_variant
from qualify.sandbox.policy import SandboxPolicy
from qualify.slots.admission import admit
from qualify.slots.base import Dimensions, Slot
from qualify.slots.registry import find_slot
from qualify.subjects import CPU_ARCHITECTURE, Subject, open_subject
from scoring.attempt import Role

_TASKS_PER_RANK = 32


@dataclass(frozen=True, slots=True)
class Docket:
    """One comparison: the documents it stands under, the candidate, and the incumbent (None = stock)."""

    request: AttemptRequest
    arena: Arena
    target: Target
    workload: Workload
    slot: Slot
    candidate: Subject
    incumbent: Subject | None

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
    def incumbent_report(self) -> IntakeReport | None:
        """The incumbent's intake report; None for stock."""
        return None if self.incumbent is None else self.incumbent.report

    @property
    def incumbent_digest(self) -> str:
        """The identity of what the candidate is compared with."""
        return stock_digest(self.target.id) if self.incumbent is None else self.incumbent.content_hash

    def reaches(self, shape: Dimensions) -> bool:
        """Say whether a call of `shape` would be served by the candidate."""
        report, ranks = self.candidate.report, self.world_size
        return candidate_variant(self.slot, self.dtype, CPU_ARCHITECTURE, shape, report, ranks) is not None

    def policy(self, role: Role, core: int, implementations: Sequence[Implementation]) -> SandboxPolicy:
        """Return the sandbox of one role's arms, pinned to `core`, which may run `implementations`.

        The ranks of a group share the core: what they wait for each other is part of every call, and the same for both
        roles. A machine with a core for every rank would show other ratios; arenas say which machine counts.

        A folder that none of them needs is not mounted: what a bundle can see must not tell it which role it plays.
        """
        mounts: list[tuple[str, str]] = []
        if role == "candidate":
            mounts.append((self.candidate.root, BUNDLE_MOUNT))
            if self.incumbent is not None and any(one.root == INCUMBENT_MOUNT for one in implementations):
                mounts.append((self.incumbent.root, INCUMBENT_MOUNT))
        elif self.incumbent is not None:
            mounts.append((self.incumbent.root, BUNDLE_MOUNT))
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


def open_docket(request: AttemptRequest) -> Docket:
    """Open what `request` names.

    Raises `ConfigurationError` (TARGET_NOT_MEASURABLE, SLOT_UNREGISTERED, SLOT_NOT_ADMITTED, those of `load_arena`) and
    `HostError` (BUNDLE_UNUSABLE).
    """
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
    if slot.collective != (workload.world_size > 1):
        raise ConfigurationError(
            "TARGET_NOT_MEASURABLE",
            f"arena {arena.id} gives {target.id} a group of {workload.world_size}",
            hint="give a workload of a collective a world_size of at least 2, and any other workload none",
        )
    admit(slot, workload.dtype)
    return Docket(request, arena, target, workload, slot, open_subject(request.candidate), incumbent)
