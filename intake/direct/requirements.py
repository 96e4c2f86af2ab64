"""What an export needs beyond the ordinary: derived from its declarations, never trusted from its author.

Invariants
1. Both lists are sorted and unique. A list an author wrote has to equal the derived one.
2. A provider capability needs the provider and the resource to offer it. Offering is vocabulary: whether this
   validator can hand out a group's address is decided when the artifact is loaded.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from config.limits import DIRECT
from config.slot_resources import SlotAbi
from intake.direct.bindings import Binding, ValueBinding
from intake.direct.device_plan import DevicePlan
from intake.direct.provider import GROUP_PROJECTIONS, Provider
from intake.direct.reading import Table
from intake.direct.specialization import Predicates
from intake.direct.where import Where


class ProviderRequirement(msgspec.Struct, frozen=True, order=True):
    """A capability of the provider that a projection of `source` takes."""

    capability: str
    projection: str
    source: str


class SpecializationRequirement(msgspec.Struct, frozen=True, order=True):
    """A capability field that a predicate on `source` takes."""

    capability_field: str
    source: str


def provider_requirements(bindings: Sequence[Binding], plan: DevicePlan) -> tuple[ProviderRequirement, ...]:
    """Return what the bindings and the group handles of the plan need."""
    needs = {
        ProviderRequirement(GROUP_PROJECTIONS[binding.projection], binding.projection, binding.source)
        for binding in bindings
        if isinstance(binding, ValueBinding) and binding.projection in GROUP_PROJECTIONS
    }
    for launch in plan.launches:
        for parameter in launch.parameters:
            if parameter.group_projection is None or parameter.binding is None:
                continue
            projection, source = parameter.group_projection, bindings[parameter.binding]
            if isinstance(source, ValueBinding):
                needs.add(ProviderRequirement(GROUP_PROJECTIONS[projection], projection, source.source))
    return tuple(sorted(needs))


def specialization_requirements(predicates: Predicates, abi: SlotAbi) -> tuple[SpecializationRequirement, ...]:
    """Return what the predicates of one export need."""
    fields = ((abi.by_name[source].capability_field, source) for source in predicates)
    return tuple(sorted(SpecializationRequirement(field, source) for field, source in fields if field is not None))


def check_offered(needs: Sequence[ProviderRequirement], provider: Provider, abi: SlotAbi, where: Where) -> None:
    """Refuse a capability that the provider or the resource does not offer. Raises DIRECT_REQUIREMENT."""
    for need in needs:
        offered = set(provider.provider_capabilities) & set(abi.by_name[need.source].provider_capabilities)
        if need.capability not in offered:
            raise where.refusal("DIRECT_REQUIREMENT", f"{need.source} does not offer {need.capability}.")


def check_written(
    table: Table, key: str, derived: Sequence[ProviderRequirement] | Sequence[SpecializationRequirement], keys: str
) -> None:
    """Compare a list its author wrote, when there is one, with the derived one. Raises DIRECT_REQUIREMENT."""
    if not table.has(key):
        return
    rows = [Table(item, at, keys) for item, at in table.items(key, 0, DIRECT.requirements)]
    written = [{name: row.text(name) for name in keys.split()} for row in rows]
    if written != [msgspec.structs.asdict(row) for row in derived]:
        hint = "Leave the list out; it is derived."
        message = f"the list is not the {len(derived)} sorted rows that the declarations need."
        raise table.at(key).refusal("DIRECT_REQUIREMENT", message, hint)
