"""docs/targets.md, made from the catalog. A test compares the page with the catalog it was made from.

Run `python -m config.target_reference > docs/targets.md` after an edit of the catalog.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from config.target_catalog import Target, TargetCatalog, load_catalog

_HEAD = """# Targets

<!-- Made by `python -m config.target_reference`; edit config/catalog.toml instead. -->

A target is what a bundle competes for. A slot target is one call of the engine; an atomic target is a set of calls that
one bundle replaces together. A target is judged where an arena has a workload for it; `cacheon targets` shows which.
Every other target is registered, so that bundles for it can be checked, and waits for an arena.
"""
_FEATURES = """
## Features

Intake observes what a bundle uses and compares it with what its target allows. `setup` and unknown keys of a row are
observed too, and no target allows them.

| Feature | Observed when |
|---|---|
| `entry` | always |
| `variants` | a slot has several rows, or a row names a variant other than `default` |
| `prepare` | a row names a load-time half; only calls that have one allow it |
| `override` | a row names a base kernel or an override point; only slots with a point allow it |
| `cuda_sources` | a row declares CUDA files |
| `aot:<provider>` | a row has direct-artifact exports |
| `dep_patch:<dependency>` | the manifest declares a dependency patch |
| `rebuild:<builder>` | rebuild.json selects the builder |
"""
_DIGESTS = """
## Digests

A contract digest names what a call has to do and how its answer is compared; it is the domain digest of the contract
document in domain `cacheon.target-contract` (`cacheon.atomic-target-contract` for atomic targets). A specification
digest (`cacheon.target-spec`) adds members, displacement and allowed features. Contract digests and the digest of the
composition rule equal those of the first network. Specification digests equal them only where the features do: the
first network allowed `prepare` and `override` on every target, this catalog only where the call has such a half or
hole, so among today's targets that is `moe.fused_experts`. The catalog digest differs for the same reason, and because
its document holds the builders, dependencies and override points of this validator in place of a provider registry.
"""


def render(catalog: TargetCatalog) -> str:
    """Return the page for a catalog."""
    targets = [catalog.targets[name] for name in sorted(catalog.targets)]
    parts = [
        _HEAD,
        f"\nCatalog policy `{catalog.policy_version}`, digest `{catalog.digest}`.\n",
        "\n## Registered targets\n\n",
        _table(("Target", "Kind", "Members", "Displaces", "Compatible with", "Requires"), map(_relations, targets)),
        "\n## Calls\n\n",
        _table(("Slot", "Call", "Load time", "Override points", "Compared by", "Binding family"), _calls(catalog)),
        _FEATURES,
        "\n## Features by target\n\n",
        _table(("Target", "Allowed features"), ((_code([t.id]), _code(t.allowed_features)) for t in targets)),
        "\n## What features refer to\n\n",
        _table(("Builder", "Step path", "Id"), _builders(catalog)),
        "\nBuilders run in this order, whatever the order in rebuild.json.\n\n",
        _table(("Dependency", "Files a patch may change"), _dependencies(catalog)),
        "\n`*` stays inside one folder, `**` reaches every folder below.\n\n",
        _table(("Provider", "Builder", "Profile inputs", "Capabilities"), _providers(catalog)),
        "\n## Running together\n\n",
        "Targets that share a binding family are compatible only through a rule; the first of its precedence that\n",
        "applies to a call serves it. Any other targets may be active together unless one displaces the other.\n\n",
        _table(("Rule", "Precedence", "Mode"), _rules(catalog)),
        _DIGESTS,
        "\n",
        _table(("Target", "Contract", "Specification"), map(_digests, targets)),
    ]
    return "".join(parts)


def _relations(target: Target) -> tuple[str, ...]:
    members = "itself" if target.kind == "slot" else _code(target.members)
    others = (_code(names) for names in (target.displaces, target.compatible_with, target.requires))
    return (_code([target.id]), target.kind, members, *others)


def _calls(catalog: TargetCatalog) -> Iterable[tuple[str, ...]]:
    for name in sorted(catalog.targets):
        contract = catalog.targets[name].contract
        if contract is None:
            continue
        measure = contract.correctness
        bound = {
            "allclose": "every element within tolerance",
            "matched_ratio": f"share of elements within tolerance at least {measure.min_ratio}",
            "cosine": f"cosine at least {measure.min_cosine}",
            "topk_overlap": f"overlap of the top {measure.top_k} at least {measure.min_overlap}",
        }[measure.mode]
        points = [f"{point.base_kernel}/{point.point}" for point in catalog.points_of(name)]
        prepare = _code([contract.prepare] if contract.prepare else [])
        yield _code([name]), _code([contract.entry]), prepare, _code(points), bound, _code([contract.binding_family])


def _builders(catalog: TargetCatalog) -> Iterable[tuple[str, ...]]:
    return ((_code([item.name]), _code([f"{item.name}.py"]), _code([item.id])) for item in catalog.builders)


def _dependencies(catalog: TargetCatalog) -> Iterable[tuple[str, ...]]:
    return ((_code([item.id]), _code(item.destinations)) for item in catalog.dependencies)


def _providers(catalog: TargetCatalog) -> Iterable[tuple[str, ...]]:
    for item in catalog.providers:
        yield _code([item.id]), _code([item.builder]), _code(item.profile_inputs), _code(item.capabilities)


def _rules(catalog: TargetCatalog) -> Iterable[tuple[str, ...]]:
    return ((_code([rule.id]), _code(rule.precedence), _code([rule.mode])) for rule in catalog.rules)


def _digests(target: Target) -> tuple[str, ...]:
    return _code([target.id]), _code([target.contract_digest]), _code([target.digest])


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "-"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


if __name__ == "__main__":
    sys.stdout.write(render(load_catalog()))
