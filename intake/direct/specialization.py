"""Plans for exact scalar values: which a row has, when each applies, and that no call can meet two equals.

Invariants
1. A predicate names a scalar of the call that the ABI offers for specialization, with a value of exactly its type.
2. The row's metadata proves the same exact value for the scalar's capability field; a range proves nothing.
3. Two plans of a row exclude each other, or one's predicates are a strict subset of the other's. So the plan with
   the most satisfied predicates is unique, and a call that no plan covers is the incumbent's, never a fallback.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

from config.slot_resources import ScalarType, SlotAbi, SlotResource
from intake.direct.reading import one_of, shown
from intake.direct.scalars import Scalar, as_scalar, same_scalar
from intake.direct.where import Where

Predicates = Mapping[str, Scalar]  # resource -> value


def parse_predicates(value: object, where: Where, abi: SlotAbi) -> dict[str, Scalar]:
    """Parse the `specializes` table of one export, sorted by resource.

    Raises DIRECT_TYPE, DIRECT_VALUE, DIRECT_SPECIALIZATION.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise where.refusal("DIRECT_TYPE", f"{shown(value)} is not a table.")
    predicates: dict[str, Scalar] = {}
    for name in sorted(value):
        _, scalar_type = _offered(name, abi, where)
        predicates[name] = as_scalar(value[name], where.at(name), scalar_type)
    return predicates


def check_proved(predicates: Predicates, capabilities: Mapping[str, object], abi: SlotAbi, where: Where) -> None:
    """Refuse predicates that the row's metadata does not repeat exactly. Raises DIRECT_SPECIALIZATION."""
    for name, value in predicates.items():
        resource, _ = _offered(name, abi, where)
        field = resource.capability_field or ""
        if not same_scalar(_proved(capabilities.get(field)), value):
            raise where.at(name).refusal(
                "DIRECT_SPECIALIZATION",
                f"the row's metadata does not fix {field} to exactly {shown(value)}.",
                f'Add "{field}": {{"exact": ...}} with the same value and type to capabilities in the metadata.',
            )


def check_separate(plans: Mapping[str, Predicates], where: Where) -> None:
    """Refuse two plans that one call could equally ask for. Raises DIRECT_SPECIALIZATION."""
    for (one, first), (other, second) in combinations(sorted(plans.items()), 2):
        if (
            not _exclude(first, second)
            and not _is_strict_subset(first, second)
            and not _is_strict_subset(second, first)
        ):
            hint = "Give a shared scalar different values, or let one plan refine the other."
            message = (
                f"plans {shown(one)} and {shown(other)} may both apply to one call, and neither refines the other."
            )
            raise where.refusal("DIRECT_SPECIALIZATION", message, hint)


def select_plan(plans: Mapping[str, Predicates], values: Mapping[str, Scalar]) -> str | None:
    """Return the plan for a call with these scalar `values`, or None when no plan covers it."""
    fitting = [
        name
        for name, predicates in plans.items()
        if all(same_scalar(values.get(source), value) for source, value in predicates.items())
    ]
    return max(fitting, key=lambda name: len(plans[name]), default=None)


def split_capabilities(
    capabilities: Mapping[str, object],
    routing_fields: Sequence[str] | frozenset[str],
    scalars: Mapping[str, ScalarType],
) -> tuple[dict[str, object], dict[str, object]]:
    """Split a raw `capabilities` object into what routing knows and the `scalars` that only direct rows declare."""
    own = {field: value for field, value in capabilities.items() if field in scalars and field not in routing_fields}
    return {field: value for field, value in capabilities.items() if field not in own}, own


def _offered(name: object, abi: SlotAbi, where: Where) -> tuple[SlotResource, ScalarType]:
    resource = abi.by_name.get(name) if isinstance(name, str) else None
    if resource is None or resource.capability_field is None or resource.scalar_type is None:
        hint = one_of([item.name for item in abi.resources if item.capability_field is not None])
        raise where.refusal("DIRECT_SPECIALIZATION", f"{abi.slot} does not offer {shown(name)} for this.", hint)
    return resource, resource.scalar_type


def _proved(predicate: object) -> object:
    """Return the one value a raw predicate allows; None when it allows several, or a range."""
    if isinstance(predicate, Mapping):
        if set(predicate) == {"exact"}:
            return predicate["exact"]
        predicate = predicate.get("one_of") if set(predicate) == {"one_of"} else None
    if isinstance(predicate, list | tuple):
        return predicate[0] if len(predicate) == 1 else None
    return predicate


def _exclude(one: Predicates, other: Predicates) -> bool:
    return any(not same_scalar(one[name], other[name]) for name in one.keys() & other.keys())


def _is_strict_subset(one: Predicates, other: Predicates) -> bool:
    return len(one) < len(other) and all(name in other and same_scalar(one[name], other[name]) for name in one)
