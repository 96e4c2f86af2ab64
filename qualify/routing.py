"""Which implementation serves which shape: a variant of the bundle, or the incumbent outside all its domains.

Invariants
1. A variant is chosen by matching the live call descriptor against the variants' effective domains (`intake.registry`);
   manifest order never matters.
2. Outside every domain of the candidate the incumbent serves, in the candidate's arm too, as it would when serving.
3. A candidate that is reached on no shape of the workload is never measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from intake.domain import canonical_descriptor, effective_domain
from intake.registry import VariantRegistry
from intake.report import IntakeReport, ResolvedVariant
from qualify.arm_plan import BUNDLE_MOUNT, INCUMBENT_MOUNT, Implementation
from qualify.slots.base import Dimensions, Slot, live_descriptor

STOCK = Implementation()


@dataclass(frozen=True, slots=True)
class Routes:
    """The implementations an arm loads, and which of them serves each of a list of shapes."""

    implementations: tuple[Implementation, ...]
    by_case: tuple[int, ...]  # index into implementations, per shape
    variants: tuple[str, ...]  # "slot/variant" of the candidate's variants that are reached, sorted


def route_incumbent(
    slot: Slot,
    dtype: str,
    architecture: str,
    cases: Sequence[Dimensions],
    incumbent: IntakeReport | None,
    world_size: int = 1,
) -> Routes:
    """Return the routes of the baseline arm: stock, or the incumbent bundle with stock outside its domains."""
    chosen = [_incumbent(slot, dtype, architecture, case, incumbent, BUNDLE_MOUNT, world_size) for case in cases]
    return _routes(chosen, ())


def route_candidate(
    slot: Slot,
    dtype: str,
    architecture: str,
    cases: Sequence[Dimensions],
    candidate: IntakeReport,
    incumbent: IntakeReport | None,
    world_size: int = 1,
) -> Routes:
    """Return the routes of the candidate arm. `variants` is empty when no shape reaches the candidate."""
    chosen: list[Implementation] = []
    reached: set[str] = set()
    for case in cases:
        variant = candidate_variant(slot, dtype, architecture, case, candidate, world_size)
        if variant is None:
            chosen.append(_incumbent(slot, dtype, architecture, case, incumbent, INCUMBENT_MOUNT, world_size))
        else:
            chosen.append(Implementation(BUNDLE_MOUNT, variant.source, variant.entry, variant.prepare or ""))
            reached.add(f"{variant.slot}/{variant.variant}")
    return _routes(chosen, tuple(sorted(reached)))


def candidate_variant(
    slot: Slot, dtype: str, architecture: str, case: Dimensions, report: IntakeReport, world_size: int = 1
) -> ResolvedVariant | None:
    """Return the variant of `report` whose domain holds the live call of `case` in a group of that size, or None."""
    registry = VariantRegistry()
    by_name = {variant.variant: variant for variant in report.variants if variant.slot == slot.id}
    for name, variant in by_name.items():
        registry.register(slot.id, name, effective_domain(variant.metadata, variant.dtypes, variant.architectures))
    descriptor = canonical_descriptor(live_descriptor(slot, case, dtype, architecture, world_size))
    selection = registry.select(slot.id, descriptor)
    return by_name[selection.variant] if selection.variant is not None else None


def _incumbent(
    slot: Slot,
    dtype: str,
    architecture: str,
    case: Dimensions,
    incumbent: IntakeReport | None,
    mount: str,
    world_size: int,
) -> Implementation:
    variant = None
    if incumbent is not None:
        variant = candidate_variant(slot, dtype, architecture, case, incumbent, world_size)
    return STOCK if variant is None else Implementation(mount, variant.source, variant.entry, variant.prepare or "")


def _routes(chosen: Sequence[Implementation], variants: tuple[str, ...]) -> Routes:
    implementations = tuple(dict.fromkeys(chosen))
    return Routes(implementations, tuple(implementations.index(one) for one in chosen), variants)
