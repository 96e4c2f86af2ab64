"""Which implementation serves which shape: a variant of a bundle, or the validator's own form outside all its domains.

Invariants
1. A variant is chosen by matching the live call descriptor against the variants' effective domains (`intake.registry`);
   manifest order never matters, and the bundle is not asked.
2. Outside every domain of a bundle stock serves, as it does in the tree that holds the bundle: of two bundles for one
   target never both are in it.
3. Where targets share a binding, the first in binding order whose bundle applies to a call serves it. Such a call is
   nobody's behind it: it reaches no candidate, and both roles leave it alone.
4. A candidate that is reached on no shape of the workload is never measured.
5. No process serves calls for more than one bundle: the cases of a role are divided into shares, each of one bundle, or
   of stock. Whose share a case is depends on that role's tree alone, so a bundle is asked the same cases whoever its
   rival is. What stock serves in both roles is asked of nobody.
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
    variants: tuple[str, ...]  # "slot/variant" of the bundle's variants that are reached, sorted

    def served(self) -> list[Implementation]:
        """Return what serves each shape."""
        return [self.implementations[index] for index in self.by_case]


@dataclass(frozen=True, slots=True)
class Share:
    """The cases that one arm serves: those of one bundle, or of stock."""

    cases: tuple[int, ...]  # numbers among the shapes, ascending
    routes: Routes  # of these cases


def route(seam: Seam, shapes: Sequence[Dimensions], report: IntakeReport | None, ahead: Ahead = ()) -> Routes:
    """Return what serves `shapes` where the bundle of `report` holds the slot, or nobody does (None)."""
    chosen: list[Implementation] = []
    reached: set[str] = set()
    for shape in shapes:
        variant = reached_variant(seam, shape, report, ahead) if report is not None else None
        if variant is None or report is None:
            chosen.append(STOCK)
        else:
            chosen.append(_implementation(report, variant))
            reached.add(f"{variant.slot}/{variant.variant}")
    return _routes(chosen, tuple(sorted(reached)))


def contested(baseline: Routes, candidate: Routes) -> tuple[int, ...]:
    """Return the numbers of the cases that are measured: those that stock does not serve in both roles."""
    pairs = enumerate(zip(baseline.served(), candidate.served(), strict=True))
    return tuple(number for number, pair in pairs if not all(one.is_stock for one in pair))


def shares(routes: Routes, cases: Sequence[int]) -> tuple[Share, ...]:
    """Divide `cases` of one role by the bundle that serves them."""
    served = routes.served()
    divided: dict[str, list[int]] = {}
    for number in cases:
        divided.setdefault(served[number].root, []).append(number)
    return tuple(
        Share(tuple(numbers), _routes([served[number] for number in numbers], routes.variants))
        for numbers in divided.values()
    )


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


def _implementation(report: IntakeReport, variant: ResolvedVariant) -> Implementation:
    root = f"{ENGINE_MOUNT}/{package_of(report.content_hash)}"
    return Implementation(root, variant.source, variant.entry, variant.prepare or "", variant.override_point or "")


def _routes(chosen: Sequence[Implementation], variants: tuple[str, ...]) -> Routes:
    implementations = tuple(dict.fromkeys(chosen))
    return Routes(implementations, tuple(implementations.index(one) for one in chosen), variants)
