"""Which variant serves a live call: exactly one, or the incumbent.

Invariants
1. Variants of one slot have different names and provably disjoint domains; a domain that no call can meet is refused.
2. Order never decides: a call is served by a variant only if it is the only one whose whole domain matches.
3. Every other outcome (inactive, unregistered, out of domain, ambiguous) means the trusted incumbent.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from config.errors import IntakeError
from intake.capabilities import Value
from intake.domain import Domain, is_empty, mismatches
from intake.refusal import clip


class Outcome(StrEnum):
    """What routing decided."""

    SELECTED = "selected"
    OUT_OF_DOMAIN = "out_of_domain"
    AMBIGUOUS = "ambiguous"
    SLOT_UNREGISTERED = "slot_unregistered"
    REGISTRY_INACTIVE = "registry_inactive"


class Selection(NamedTuple):
    """The outcome and, when one variant was selected, its name."""

    outcome: Outcome
    variant: str | None = None


class VariantRegistry:
    """The variants of one bundle, by slot."""

    def __init__(self, *, active: bool = True) -> None:
        self._active = active
        self._slots: dict[str, dict[str, Domain]] = {}

    def register(self, slot: str, variant: str, domain: Domain) -> None:
        """Add one row. Raises `IntakeError` (DOMAIN_EMPTY, VARIANTS_OVERLAP, MANIFEST_VARIANTS)."""
        if is_empty(domain):
            raise IntakeError(
                "DOMAIN_EMPTY",
                f"no call can ever match variant {clip(variant)} of {clip(slot)}: its constraints contradict.",
                hint="Compare dtypes, architectures, bounds and capabilities of manifest and metadata.",
            )
        rows = self._slots.setdefault(slot, {})
        if variant in rows:
            raise IntakeError("MANIFEST_VARIANTS", f"variant {clip(variant)} of {clip(slot)} stands twice.")
        for other, domain_of_other in rows.items():
            if not is_empty(domain, domain_of_other):
                raise IntakeError(
                    "VARIANTS_OVERLAP",
                    f"variants {clip(other)} and {clip(variant)} of {clip(slot)} could both match one call.",
                    hint="Give them domains that cannot overlap, such as num_tokens max 127 and min 128.",
                )
        rows[variant] = domain

    def select(self, slot: str, descriptor: Mapping[str, Value]) -> Selection:
        """Route one call, described by a canonical descriptor."""
        if not self._active:
            return Selection(Outcome.REGISTRY_INACTIVE)
        if slot not in self._slots:
            return Selection(Outcome.SLOT_UNREGISTERED)
        matching = [name for name, domain in self._slots[slot].items() if not mismatches(domain, descriptor)]
        if len(matching) > 1:
            return Selection(Outcome.AMBIGUOUS)
        return Selection(Outcome.SELECTED, matching[0]) if matching else Selection(Outcome.OUT_OF_DOMAIN)
