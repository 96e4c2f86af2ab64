"""The target catalog: which reward units exist, and what a bundle for each may contain.

Invariants
1. Ids and member sets are unique; a slot target's only member is itself.
2. An atomic target has at least two members, each of which is also a registered slot target that it displaces.
3. Compatibility is symmetric. Targets are data (`config/catalog.toml`); nothing else registers one.
4. The catalog's digest binds every verdict to the catalog it was reached under.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from importlib import resources
from types import MappingProxyType

import msgspec
import tomli

from config.canonical import domain_digest
from config.errors import ConfigurationError, SourceLocation


class Target(msgspec.Struct, frozen=True, dict=True):
    """One reward unit: a slot, or an atomic set of slots. Tuples are sorted."""

    id: str
    kind: str
    members: tuple[str, ...]
    allowed_features: tuple[str, ...]
    binding_family: str = ""
    displaces: tuple[str, ...] = ()
    compatible_with: tuple[str, ...] = ()

    @functools.cached_property
    def digest(self) -> str:
        """Lower-hex identity of this target's specification."""
        return domain_digest("cacheon.target-spec", msgspec.to_builtins(self))


class _TargetEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    kind: str
    members: tuple[str, ...]
    features: str
    binding_family: str = ""
    displaces: tuple[str, ...] = ()
    compatible_with: tuple[str, ...] = ()


class _CatalogDocument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    policy_version: str
    feature_sets: dict[str, tuple[str, ...]]
    targets: tuple[_TargetEntry, ...]


class TargetCatalog:
    """All registered targets, by id and by exact member set."""

    def __init__(self, policy_version: str, targets: Iterable[Target]) -> None:
        self.policy_version = policy_version
        self.targets: Mapping[str, Target] = MappingProxyType({target.id: target for target in targets})
        self._by_members = {frozenset(target.members): target for target in self.targets.values()}

    @functools.cached_property
    def digest(self) -> str:
        """Lower-hex identity of the whole catalog."""
        rows = [msgspec.to_builtins(self.targets[name]) for name in sorted(self.targets)]
        return domain_digest("cacheon.target-catalog", {"policy_version": self.policy_version, "targets": rows})

    def find(self, target_id: str) -> Target | None:
        """Return the target called `target_id`, or None."""
        return self.targets.get(target_id)

    def for_members(self, members: Iterable[str]) -> Target | None:
        """Return the target whose member set equals `members`, or None."""
        return self._by_members.get(frozenset(members))


@functools.cache
def load_catalog() -> TargetCatalog:
    """Load the built-in catalog. Raises `ConfigurationError` (CATALOG_INVALID)."""
    source = resources.files("config") / "catalog.toml"
    return parse_catalog(source.read_bytes(), "config/catalog.toml")


def parse_catalog(data: bytes, source: str) -> TargetCatalog:
    """Parse and check one catalog document. Raises `ConfigurationError` (CATALOG_INVALID)."""
    try:
        document = msgspec.convert(tomli.loads(data.decode("utf-8")), _CatalogDocument)
    except (UnicodeDecodeError, tomli.TOMLDecodeError, msgspec.ValidationError) as error:
        raise _invalid(str(error), source) from error
    targets = [_target(entry, document.feature_sets, source) for entry in document.targets]
    _check(targets, source)
    return TargetCatalog(document.policy_version, targets)


def _target(entry: _TargetEntry, feature_sets: Mapping[str, tuple[str, ...]], source: str) -> Target:
    if entry.features not in feature_sets:
        raise _invalid(f"target {entry.id} names unknown feature set {entry.features!r}", source)
    return Target(
        id=entry.id,
        kind=entry.kind,
        members=tuple(sorted(entry.members)),
        allowed_features=tuple(sorted(feature_sets[entry.features])),
        binding_family=entry.binding_family,
        displaces=tuple(sorted(entry.displaces)),
        compatible_with=tuple(sorted(entry.compatible_with)),
    )


def _check(targets: list[Target], source: str) -> None:
    by_id = {target.id: target for target in targets}
    if len(by_id) != len(targets) or len({target.members for target in targets}) != len(targets):
        raise _invalid("target ids and member sets must be unique", source)
    for target in targets:
        if target.kind == "slot":
            good = target.members == (target.id,)
        elif target.kind == "atomic":
            good = len(target.members) >= 2 and all(
                member in by_id and by_id[member].kind == "slot" and member in target.displaces
                for member in target.members
            )
        else:
            good = False
        if not good:
            raise _invalid(f"target {target.id} has the wrong kind or members", source)
        for other in target.compatible_with:
            if other not in by_id or target.id not in by_id[other].compatible_with:
                raise _invalid(f"compatibility of {target.id} and {other} is not mutual", source)


def _invalid(complaint: str, source: str) -> ConfigurationError:
    return ConfigurationError(
        "CATALOG_INVALID", f"target catalog is invalid: {complaint}", location=SourceLocation(source)
    )
