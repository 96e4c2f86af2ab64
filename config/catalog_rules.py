"""What a target catalog must keep to; one small function per family of rules.

Invariants
1. Every rule yields `(id of the offending row, complaint)`; nothing is raised and nothing is repaired here.
2. Later rules may rely on earlier ones: the caller stops at the first complaint.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from config.target_catalog import Target, TargetCatalog

Complaint = tuple[str, str]

_PLAIN_FEATURES = frozenset({"entry", "variants", "prepare", "override", "cuda_sources"})


def complaints(catalog: TargetCatalog, ids: Sequence[str], pins: Mapping[str, str]) -> Iterator[Complaint]:
    """Yield what is wrong with a catalog. `ids` are the target ids as written, `pins` their contract digests."""
    yield from _identities(catalog, ids)
    for target in catalog.targets.values():
        yield from _shape(target, catalog)
        yield from _references(target, catalog)
        yield from _features(target, catalog)
    yield from _contracts(catalog, pins)
    yield from _rules(catalog)
    yield from _closures(catalog)
    yield from _sharing(catalog)
    yield from _dependencies(catalog)


def closure(edges: Mapping[str, Collection[str]], start: str) -> frozenset[str]:
    """Return everything reachable from `start`, which is itself included only when it lies on a cycle."""
    reached: set[str] = set()
    pending = list(edges.get(start, ()))
    while pending:
        item = pending.pop()
        if item not in reached:
            reached.add(item)
            pending += edges.get(item, ())
    return frozenset(reached)


def _identities(catalog: TargetCatalog, ids: Sequence[str]) -> Iterator[Complaint]:
    tables = (
        ids,
        [rule.id for rule in catalog.rules],
        [builder.name for builder in catalog.builders],
        [builder.id for builder in catalog.builders],
        [provider.id for provider in catalog.providers],
        [dependency.id for dependency in catalog.dependencies],
    )
    for table in tables:
        for name, count in Counter(table).items():
            if count > 1 or not name:
                yield name, f"ids must be unique and not empty: {name!r}"
    owners: dict[tuple[str, ...], str] = {}
    for target in catalog.targets.values():
        if owners.setdefault(target.members, target.id) != target.id:
            yield target.id, f"targets {owners[target.members]} and {target.id} have the same member sets"


def _shape(target: Target, catalog: TargetCatalog) -> Iterator[Complaint]:
    if target.kind == "slot":
        good = target.members == (target.id,) and target.contract is not None and not target.semantics
    elif target.kind == "atomic":
        slots = [catalog.find(member) for member in target.members]
        good = (
            len(target.members) >= 2
            and all(slot is not None and slot.kind == "slot" for slot in slots)
            and set(target.members) <= set(target.displaces)
            and target.contract is None
            and bool(target.semantics)
        )
    else:
        good = False
    if not good:
        yield target.id, f"target {target.id} has the wrong kind, members or contract"


def _references(target: Target, catalog: TargetCatalog) -> Iterator[Complaint]:
    for name in (*target.displaces, *target.compatible_with, *target.requires):
        if name not in catalog.targets or name == target.id:
            yield target.id, f"target {target.id} refers to {name!r}, which is no other target"
    for name in target.compatible_with:
        other = catalog.find(name)
        if other is not None and target.id not in other.compatible_with:
            yield target.id, f"compatibility of {target.id} and {name} is not mutual"


def _features(target: Target, catalog: TargetCatalog) -> Iterator[Complaint]:
    known = _PLAIN_FEATURES | {builder.feature for builder in catalog.builders}
    known |= {dependency.feature for dependency in catalog.dependencies}
    known |= {f"aot:{provider.id}" for provider in catalog.providers}
    allowed = set(target.allowed_features)
    if "entry" not in allowed or len(allowed) != len(target.allowed_features):
        yield target.id, f"features of {target.id} must hold entry and no duplicates"
    for feature in sorted(allowed - known):
        yield target.id, f"target {target.id} allows the unknown feature {feature!r}"
    contracts = [slot.contract for member in target.members if (slot := catalog.find(member)) is not None]
    if ("prepare" in allowed) != any(contract is not None and contract.prepare for contract in contracts):
        yield target.id, f"target {target.id} allows prepare exactly when a member's call has a load-time half"
    if ("override" in allowed) != any(catalog.points_of(member) for member in target.members):
        yield target.id, f"target {target.id} allows override exactly when a member has an override point"
    for provider in catalog.providers:
        if 0 < len(allowed & set(provider.features)) < len(provider.features):
            yield target.id, f"target {target.id} allows only half of provider {provider.id}"


def _contracts(catalog: TargetCatalog, pins: Mapping[str, str]) -> Iterator[Complaint]:
    for target in catalog.targets.values():
        if target.contract is not None:
            for complaint in target.contract.complaints():
                yield target.id, f"contract of {target.id}: {complaint}"
        if pins[target.id] != target.contract_digest:
            yield target.id, f"contract of {target.id} has digest {target.contract_digest}, not the pinned one"
    for rule in catalog.rules:
        if rule.contract_digest != rule.digest():
            yield rule.id, f"composition rule {rule.id} has digest {rule.digest()}, not the pinned one"


def _rules(catalog: TargetCatalog) -> Iterator[Complaint]:
    ruled: Counter[frozenset[str]] = Counter()
    for rule in catalog.rules:
        families = {target.binding_family for name in rule.targets if (target := catalog.find(name)) is not None}
        good = (
            rule.mode == "first_applicable"
            and len(rule.targets) >= 2
            and sorted(rule.targets) == sorted(rule.precedence) == sorted(set(rule.targets))
            and set(rule.targets) <= set(catalog.targets)
            and families == {rule.binding_family}
        )
        if not good:
            yield rule.id, f"composition rule {rule.id} has the wrong mode, targets, precedence or binding family"
        ruled.update(frozenset({a, b}) for a in rule.targets for b in rule.targets if a < b)
    compatible = {frozenset({name, other}) for name, it in catalog.targets.items() for other in it.compatible_with}
    for pair in sorted(map(sorted, compatible | set(ruled))):
        if frozenset(pair) not in compatible or ruled[frozenset(pair)] != 1:
            yield pair[0], f"{' and '.join(pair)} must be compatible and have exactly one composition rule"


def _closures(catalog: TargetCatalog) -> Iterator[Complaint]:
    displaces = {name: target.displaces for name, target in catalog.targets.items()}
    requires = {name: target.requires for name, target in catalog.targets.items()}
    order: dict[str, set[str]] = {name: set(target.requires) for name, target in catalog.targets.items()}
    for rule in catalog.rules:
        for first, second in itertools.pairwise(rule.precedence):
            order[second].add(first)
    for name, target in catalog.targets.items():
        displaced, required = closure(displaces, name), closure(requires, name)
        if name in displaced or name in required or name in closure(order, name):
            yield name, f"displacement, requirement or precedence of {name} runs in a circle"
        together = required | {name}
        pushed_out = frozenset[str]().union(*(closure(displaces, other) for other in together))
        if pushed_out & together or displaced & set(target.compatible_with):
            yield name, f"target {name} displaces what it requires or is compatible with"


def _sharing(catalog: TargetCatalog) -> Iterator[Complaint]:
    displaces = {name: target.displaces for name, target in catalog.targets.items()}
    for (name, target), (other_name, other) in itertools.combinations(sorted(catalog.targets.items()), 2):
        if other_name in closure(displaces, name) or name in closure(displaces, other_name):
            continue
        if set(target.members) & set(other.members):
            yield name, f"{name} and {other_name} share members and neither displaces the other"
        same_family = bool(target.binding_family) and target.binding_family == other.binding_family
        if same_family and other_name not in target.compatible_with:
            yield name, f"{name} and {other_name} share a binding family without a composition rule"


def _dependencies(catalog: TargetCatalog) -> Iterator[Complaint]:
    for provider in catalog.providers:
        if provider.builder not in {builder.name for builder in catalog.builders}:
            yield provider.id, f"provider {provider.id} names an unknown builder"
    for point in catalog.override_points:
        slot = catalog.find(point.slot)
        if slot is None or slot.kind != "slot":
            yield point.slot, f"override point {point.point} names an unknown slot"
    if len({(point.slot, point.point) for point in catalog.override_points}) != len(catalog.override_points):
        yield "", "an override point stands twice"
    for dependency in catalog.dependencies:
        inside = all(pattern.startswith(f"{dependency.subtree}/") for pattern in dependency.destinations)
        if not dependency.destinations or not inside or dependency.subtree.split("/")[0] != dependency.package:
            yield dependency.id, f"destinations of {dependency.id} must lie below its subtree, in its package"
