"""The target catalog: which reward units exist, and what a bundle for each may contain.

Invariants
1. Ids and member sets are unique; a slot target's only member is itself and it has a call contract.
2. An atomic target has at least two members, each of which is also a registered slot target that it displaces.
3. Compatibility is symmetric, and every compatible pair has exactly one composition rule that orders it.
4. Features come from a closed vocabulary; `prepare` and `override` stand only where the call has such a half or hole.
5. Targets, builders, dependencies and rules are data (`config/catalog.toml`); nothing else registers one.
6. The catalog's digest binds every verdict to the catalog it was reached under.

`config.catalog_rules` checks 1 to 4; `config.active_set` says what may be active together, and in which order.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from types import MappingProxyType

import msgspec
import tomli

from config.canonical import domain_digest
from config.catalog_rules import complaints
from config.contracts import Contract, Correctness, Tolerance, atomic_contract_digest
from config.errors import Blame, ConfigurationError, SourceLocation


class Target(msgspec.Struct, frozen=True, dict=True):
    """One reward unit: a slot, or an atomic set of slots. Tuples are sorted.

    A slot target has `contract`; an atomic one has `semantics` and `member_contracts` (digests in member order).
    """

    id: str
    kind: str
    members: tuple[str, ...]
    allowed_features: tuple[str, ...]
    binding_family: str = ""
    displaces: tuple[str, ...] = ()
    compatible_with: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    contract: Contract | None = None
    semantics: str = ""
    member_contracts: tuple[str, ...] = ()

    @functools.cached_property
    def contract_digest(self) -> str:
        """Lower-hex identity of what the target's calls have to do, whatever a bundle may contain."""
        if self.contract is not None:
            return self.contract.digest
        return atomic_contract_digest(self.id, self.semantics, self.member_contracts)

    def document(self) -> dict[str, object]:
        """Return the specification as the document its digest is taken over."""
        common: dict[str, object] = {
            "target_id": self.id,
            "kind": self.kind,
            "members": list(self.members),
            "displaces": list(self.displaces),
            "compatible_with": list(self.compatible_with),
            "requires": list(self.requires),
            "allowed_features": list(self.allowed_features),
            "contract_digest": self.contract_digest,
        }
        if self.contract is not None:
            return common | {"contract_ref": self.contract.document()}
        return common | {
            "atomic_semantics_id": self.semantics,
            "member_contract_digests": list(self.member_contracts),
        }

    @functools.cached_property
    def digest(self) -> str:
        """Lower-hex identity of this target's specification."""
        return domain_digest("cacheon.target-spec", self.document())


class CompositionRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the targets of one binding family run together: the first of `precedence` that applies serves the call."""

    id: str
    targets: tuple[str, ...]
    precedence: tuple[str, ...]
    mode: str
    binding_family: str
    contract_digest: str

    def digest(self) -> str:
        """Return the lower-hex identity of the binding; `contract_digest` pins it."""
        document = {
            "schema_version": 1,
            "binding_family_id": self.binding_family,
            "precedence": list(self.precedence),
            "mode": self.mode,
        }
        return domain_digest("cacheon.binding-contract", document)


class Builder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A registered build step: `name` is what rebuild.json (`<name>.py`) and the feature `rebuild:<name>` call it."""

    id: str
    name: str

    @property
    def feature(self) -> str:
        """The feature that a bundle which selects this builder uses."""
        return f"rebuild:{self.name}"


class ArtifactProvider(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who turns a direct-artifact declaration into an artifact, and with which builder."""

    id: str
    builder: str
    profile_inputs: tuple[str, ...]
    capabilities: tuple[str, ...]

    @property
    def features(self) -> tuple[str, str]:
        """The two features that a row with exports of this provider uses."""
        return (f"aot:{self.id}", f"rebuild:{self.builder}")


class Dependency(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A dependency that bundles may patch: files below `subtree` that match one of `destinations` (`config.globs`)."""

    id: str
    package: str
    subtree: str
    destinations: tuple[str, ...]

    @property
    def feature(self) -> str:
        """The feature that a bundle which patches this dependency uses."""
        return f"dep_patch:{self.id}"


class OverridePoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A hole `point` in the validator kernel `base_kernel` of a slot."""

    slot: str
    point: str
    base_kernel: str


class TargetCatalog:
    """All registered targets, by id and by exact member set, and what their features refer to."""

    def __init__(
        self,
        policy_version: str,
        targets: Iterable[Target],
        rules: Iterable[CompositionRule] = (),
        builders: Iterable[Builder] = (),
        providers: Iterable[ArtifactProvider] = (),
        dependencies: Iterable[Dependency] = (),
        override_points: Iterable[OverridePoint] = (),
    ) -> None:
        self.policy_version = policy_version
        self.targets: Mapping[str, Target] = MappingProxyType({target.id: target for target in targets})
        self.rules = tuple(rules)
        self.builders = tuple(builders)
        self.providers = tuple(providers)
        self.dependencies = tuple(dependencies)
        self.override_points = tuple(override_points)
        self._by_members = {frozenset(target.members): target for target in self.targets.values()}

    @functools.cached_property
    def digest(self) -> str:
        """Lower-hex identity of the whole catalog."""
        document = {
            "schema_version": 1,
            "policy_version": self.policy_version,
            "targets": [self.targets[name].document() for name in sorted(self.targets)],
            "composition_rules": _sorted_rows(self.rules),
            # The order of builders is the order in which they run, so it is part of the identity.
            "builders": [msgspec.to_builtins(builder) for builder in self.builders],
            "artifact_providers": _sorted_rows(self.providers),
            "dependencies": _sorted_rows(self.dependencies),
            "override_points": _sorted_rows(self.override_points),
        }
        return domain_digest("cacheon.target-catalog", document)

    def find(self, target_id: str) -> Target | None:
        """Return the target called `target_id`, or None."""
        return self.targets.get(target_id)

    def for_members(self, members: Iterable[str]) -> Target | None:
        """Return the target whose member set equals `members`, or None."""
        return self._by_members.get(frozenset(members))

    def dependency(self, dependency_id: str) -> Dependency | None:
        """Return the dependency called `dependency_id`, or None."""
        return next((item for item in self.dependencies if item.id == dependency_id), None)

    def provider(self, provider_id: str) -> ArtifactProvider | None:
        """Return the artifact provider called `provider_id`, or None."""
        return next((item for item in self.providers if item.id == provider_id), None)

    def points_of(self, slot: str) -> tuple[OverridePoint, ...]:
        """Return the override points of a slot, () when it has none."""
        return tuple(item for item in self.override_points if item.slot == slot)


class _TargetEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    kind: str
    members: tuple[str, ...]
    features: str
    contract_digest: str
    binding_family: str = ""
    displaces: tuple[str, ...] = ()
    compatible_with: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    semantics: str = ""
    contract: _ContractEntry | None = None


class _ContractEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    call: str
    entry: str
    graph_dynamic_inputs: tuple[str, ...]
    correctness: Correctness
    prepare: str | None = None
    kl_threshold: str | None = None


class _CatalogDocument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    policy_version: str
    feature_sets: dict[str, tuple[str, ...]]
    targets: tuple[_TargetEntry, ...]
    tolerances: tuple[Tolerance, ...] = ()
    composition_rules: tuple[CompositionRule, ...] = ()
    builders: tuple[Builder, ...] = ()
    artifact_providers: tuple[ArtifactProvider, ...] = ()
    dependencies: tuple[Dependency, ...] = ()
    override_points: tuple[OverridePoint, ...] = ()


@functools.cache
def load_catalog() -> TargetCatalog:
    """Load the built-in catalog. Raises `ConfigurationError` (CATALOG_INVALID)."""
    source = resources.files("config") / "catalog.toml"
    return parse_catalog(source.read_bytes(), "config/catalog.toml")


def parse_catalog(data: bytes, source: str) -> TargetCatalog:
    """Parse and check one catalog document. Raises `ConfigurationError` (CATALOG_INVALID)."""
    try:
        text = data.decode("utf-8")
        document = msgspec.convert(tomli.loads(text), _CatalogDocument)
    except tomli.TOMLDecodeError as error:
        raise _invalid(error.msg, source, error.lineno) from error
    except (UnicodeDecodeError, msgspec.ValidationError, RecursionError) as error:
        raise _invalid(str(error), source) from error
    catalog = TargetCatalog(
        document.policy_version,
        _targets(document, source),
        document.composition_rules,
        document.builders,
        document.artifact_providers,
        document.dependencies,
        document.override_points,
    )
    ids = [entry.id for entry in document.targets]
    pins = {entry.id: entry.contract_digest for entry in document.targets}
    for subject, complaint in complaints(catalog, ids, pins):
        raise _invalid(complaint, source, _line_of(text, subject))
    return catalog


def _targets(document: _CatalogDocument, source: str) -> list[Target]:
    contracts = {entry.id: _contract(entry, document.tolerances) for entry in document.targets}
    targets = []
    for entry in document.targets:
        if entry.features not in document.feature_sets:
            raise _invalid(f"target {entry.id} names unknown feature set {entry.features!r}", source)
        members = tuple(sorted(entry.members))
        parts = [contracts.get(member) for member in members] if entry.kind == "atomic" else []
        targets.append(
            Target(
                id=entry.id,
                kind=entry.kind,
                members=members,
                allowed_features=tuple(sorted(document.feature_sets[entry.features])),
                binding_family=entry.binding_family,
                displaces=tuple(sorted(entry.displaces)),
                compatible_with=tuple(sorted(entry.compatible_with)),
                requires=tuple(sorted(entry.requires)),
                contract=contracts[entry.id],
                semantics=entry.semantics,
                member_contracts=tuple(part.digest for part in parts if part is not None),
            )
        )
    return targets


def _contract(entry: _TargetEntry, tolerances: tuple[Tolerance, ...]) -> Contract | None:
    if entry.contract is None:
        return None
    return Contract(
        slot=entry.id,
        call=entry.contract.call,
        entry=entry.contract.entry,
        graph_dynamic_inputs=entry.contract.graph_dynamic_inputs,
        correctness=entry.contract.correctness,
        tolerances=tolerances,
        binding_family=entry.binding_family,
        prepare=entry.contract.prepare,
        kl_threshold=entry.contract.kl_threshold,
    )


def _sorted_rows(items: Sequence[msgspec.Struct]) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = [msgspec.to_builtins(item) for item in items]
    return sorted(rows, key=str)


def _line_of(text: str, subject: str) -> int:
    """Return the line where the table of `subject` names itself; 0 when none does."""
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip() in (f'id = "{subject}"', f'slot = "{subject}"'):
            return number
    return 0


def _invalid(complaint: str, source: str, line: int = 0) -> ConfigurationError:
    return ConfigurationError(
        "CATALOG_INVALID", f"target catalog is invalid: {complaint}", location=SourceLocation(source, line),
        blame=Blame.INTERNAL,
    )
