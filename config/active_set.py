"""Which targets may be active together, and the order in which they are bound.

Invariants
1. An active set holds registered targets, each once, none together with one it displaces, each with what it requires.
2. The order puts what is required before what requires it and follows the precedence of composition rules; where
   neither decides, ids are alphabetical. The same set always has the same order.
3. Whoever is put in takes out what shares a slot with it or displaces it, either way round. Its footprint is every slot
   that this concerns: bundles outside it neither change nor matter when the target is measured.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Iterable

from config.catalog_rules import closure
from config.errors import ConfigurationError
from config.target_catalog import TargetCatalog


def displaced_by(catalog: TargetCatalog, target_id: str) -> frozenset[str]:
    """Return every target that `target_id` displaces, directly or through another."""
    return closure({name: target.displaces for name, target in catalog.targets.items()}, target_id)


def gives_way(catalog: TargetCatalog, old: str, new: str) -> bool:
    """Say whether the holder of target `old` cannot stay when `new` is put in."""
    shared = set(catalog.targets[old].members).intersection(catalog.targets[new].members)
    return bool(shared) or old in displaced_by(catalog, new) or new in displaced_by(catalog, old)


def footprint(catalog: TargetCatalog, active: Iterable[str], target_id: str) -> frozenset[str]:
    """Return the slots that putting `target_id` in beside the targets `active` has to do with.

    These are its members, those of whatever it takes out and of what it requires, and all that share a binding with
    one of them: an earlier target of a composition rule decides which calls reach a later one.
    """
    concerned = {target_id} | closure({name: target.requires for name, target in catalog.targets.items()}, target_id)
    concerned |= {name for name in active if gives_way(catalog, name, target_id)}
    slots = {slot for name in concerned for slot in catalog.targets[name].members}
    for rule in catalog.rules:
        bound = {slot for name in rule.targets for slot in catalog.targets[name].members}
        slots |= bound if bound & slots else set()
    return frozenset(slots)


def order_active(catalog: TargetCatalog, active: Iterable[str]) -> tuple[str, ...]:
    """Check a set of target ids and return it in binding order. Raises `ConfigurationError` (ACTIVE_SET_INVALID)."""
    names = list(active)
    members = set(names)
    repeated = sorted(name for name, count in Counter(names).items() if count > 1)
    if repeated:
        raise _invalid(f"{repeated[0]} stands twice")
    for name in sorted(members):
        target = catalog.find(name)
        if target is None:
            raise _invalid(f"{name!r} is not a registered target")
        clash = sorted(displaced_by(catalog, name) & members)
        if clash:
            raise _invalid(f"{name} displaces {clash[0]}")
        missing = sorted(set(target.requires) - members)
        if missing:
            raise _invalid(f"{name} requires {missing[0]}")
    return tuple(_topological(members, _before(catalog, members)))


def _before(catalog: TargetCatalog, members: set[str]) -> dict[str, set[str]]:
    before = {name: set(catalog.targets[name].requires) & members for name in members}
    for rule in catalog.rules:
        chain = [name for name in rule.precedence if name in members]
        for first, second in itertools.pairwise(chain):
            before[second].add(first)
    return before


def _topological(members: set[str], before: dict[str, set[str]]) -> list[str]:
    ready = sorted(name for name in members if not before[name])
    ordered: list[str] = []
    while ready:
        name = heapq.heappop(ready)
        ordered.append(name)
        for other, blockers in before.items():
            if name in blockers:
                blockers.discard(name)
                if not blockers:
                    heapq.heappush(ready, other)
    if len(ordered) != len(members):  # the loader refuses circles; a catalog built by hand may hold one
        raise _invalid("requirements and precedence run in a circle")
    return ordered


def _invalid(complaint: str) -> ConfigurationError:
    return ConfigurationError(
        "ACTIVE_SET_INVALID",
        f"these targets cannot be active together: {complaint}.",
        hint="`cacheon targets` lists what each target displaces and requires.",
    )
