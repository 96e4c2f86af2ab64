"""Which implementation serves which shape: a variant of the bundle, or the incumbent outside all its domains.

Invariants
1. A variant is chosen by matching the live call descriptor against the variants' effective domains (`intake.registry`);
   manifest order never matters.
2. Outside every domain of the candidate the incumbent serves, in the candidate's arm too, as it would when serving.
3. Where targets share a binding, the first in binding order whose bundle applies to a call serves it; a candidate
   behind such a one is not reached by that call.
4. A candidate that is reached on no shape of the workload is never measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from intake.domain import canonical_descriptor, effective_domain
from intake.registry import VariantRegistry
from intake.report import IntakeReport, ResolvedVariant
from qualify.arm_plan import ENGINE_MOUNT, Implementation
from qualify.engine_tree import package_of
from qualify.slots.base import Dimensions, Slot, live_descriptor

STOCK = Implementation()

Ahead = Sequence[tuple[Slot, IntakeReport]]  # holders that the binding asks before the slot, first one first


@dataclass(frozen=True, slots=True)
class Seam:
    """What all calls of one workload have in common."""

    slot: Slot
    dtype: str
    architecture: str
    world_size: int = 1


@dataclass(frozen=True, slots=True)
class Routes:
    """The implementations an arm loads, and which of them serves each of a list of shapes."""

    implementations: tuple[Implementation, ...]
    by_case: tuple[int, ...]  # index into implementations, per shape
    variants: tuple[str, ...]  # "slot/variant" of the candidate's variants that are reached, sorted


def route_incumbent(seam: Seam, cases: Sequence[Dimensions], incumbent: IntakeReport | None) -> Routes:
    """Return the routes of the baseline arm: stock, or the incumbent bundle with stock outside its domains."""
    return _routes([_incumbent(seam, case, incumbent) for case in cases], ())


def route_candidate(
    seam: Seam,
    cases: Sequence[Dimensions],
    candidate: IntakeReport,
    incumbent: IntakeReport | None,
    ahead: Ahead = (),
) -> Routes:
    """Return the routes of the candidate arm. `variants` is empty when no shape reaches the candidate."""
    chosen: list[Implementation] = []
    reached: set[str] = set()
    for case in cases:
        variant = reached_variant(seam, case, candidate, ahead)
        if variant is None:
            chosen.append(_incumbent(seam, case, incumbent))
        else:
            chosen.append(_implementation(candidate, variant))
            reached.add(f"{variant.slot}/{variant.variant}")
    return _routes(chosen, tuple(sorted(reached)))


def reached_variant(
    seam: Seam, case: Dimensions, report: IntakeReport, ahead: Ahead = ()
) -> ResolvedVariant | None:
    """Return the variant of `report` that serves the live call of `case`; None when another target or nothing does."""
    return None if any(_applies(seam, case, *holder) for holder in ahead) else _variant(seam, case, report)


def _applies(seam: Seam, case: Dimensions, slot: Slot, report: IntakeReport) -> bool:
    """Say whether the holder of another slot would serve the call: a collective does so inside a group only."""
    if slot.collective and seam.world_size == 1:
        return False
    return _variant(Seam(slot, seam.dtype, seam.architecture, seam.world_size), case, report) is not None


def _variant(seam: Seam, case: Dimensions, report: IntakeReport) -> ResolvedVariant | None:
    slot = seam.slot
    registry = VariantRegistry()
    by_name = {variant.variant: variant for variant in report.variants if variant.slot == slot.id}
    for name, variant in by_name.items():
        registry.register(slot.id, name, effective_domain(variant.metadata, variant.dtypes, variant.architectures))
    descriptor = canonical_descriptor(live_descriptor(slot, case, seam.dtype, seam.architecture, seam.world_size))
    selection = registry.select(slot.id, descriptor)
    return by_name[selection.variant] if selection.variant is not None else None


def _incumbent(seam: Seam, case: Dimensions, incumbent: IntakeReport | None) -> Implementation:
    variant = _variant(seam, case, incumbent) if incumbent is not None else None
    return STOCK if variant is None or incumbent is None else _implementation(incumbent, variant)


def _implementation(report: IntakeReport, variant: ResolvedVariant) -> Implementation:
    root = f"{ENGINE_MOUNT}/{package_of(report.content_hash)}"
    return Implementation(root, variant.source, variant.entry, variant.prepare or "", variant.override_point or "")


def _routes(chosen: Sequence[Implementation], variants: tuple[str, ...]) -> Routes:
    implementations = tuple(dict.fromkeys(chosen))
    return Routes(implementations, tuple(implementations.index(one) for one in chosen), variants)
