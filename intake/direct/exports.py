"""`[[ops.aot_exports]]`: one compiled artifact, its arguments, and the step of a plan it implements.

Invariants
1. The table is closed; defaults are filled in here and nowhere else.
2. Requirement lists are derived from the declarations.
3. The canonical order of exports is (provider, plan, step, name); their order in the file means nothing.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping

import msgspec

from config.limits import DIRECT
from intake.direct.bindings import Binding, parse_binding
from intake.direct.device_plan import DevicePlan, parse_device_plan
from intake.direct.prelaunch import Fill, parse_fill
from intake.direct.provider import PROVIDERS, Provider
from intake.direct.reading import Table, one_of, shown
from intake.direct.requirements import (
    ProviderRequirement,
    SpecializationRequirement,
    check_offered,
    check_written,
    provider_requirements,
    specialization_requirements,
)
from intake.direct.scalars import Scalar, scalar_document
from intake.direct.scope import ROLES, Scope
from intake.direct.specialization import parse_predicates
from intake.direct.where import Where

DEFAULT_ROLE = "run"
DEFAULT_PLAN = "default"

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_FACTORY = re.compile(rf"[A-Za-z_][A-Za-z0-9_]{{0,{DIRECT.factory_characters - 1}}}")
_NAME_RULE = "1..64 characters of a-z 0-9 . _ -, starting with a letter or digit"
_REQUIRED = "provider name factory profile_inputs bindings device_plan"
_OPTIONAL = (
    "role plan step specializes prelaunch provider_capability_requirements specialization_capability_requirements"
)


class Export(msgspec.Struct, frozen=True):
    """One export. `profile_inputs` and both requirement lists are sorted."""

    provider: str
    name: str
    factory: str
    profile_inputs: tuple[str, ...]
    bindings: tuple[Binding, ...]
    device_plan: DevicePlan
    role: str = DEFAULT_ROLE
    plan: str = DEFAULT_PLAN
    step: int = 0
    specializes: dict[str, Scalar] = {}
    prelaunch: tuple[Fill, ...] = ()
    provider_capability_requirements: tuple[ProviderRequirement, ...] = ()
    specialization_capability_requirements: tuple[SpecializationRequirement, ...] = ()

    @property
    def order(self) -> tuple[str, str, int, str]:
        """The canonical position among the exports of a row."""
        return (self.provider, self.plan, self.step, self.name)

    @property
    def bound(self) -> frozenset[str]:
        """Names of all resources that bindings expose."""
        return frozenset(name for binding in self.bindings for name in binding.sources)

    @property
    def filled(self) -> frozenset[str]:
        """Names of all resources filled before the step."""
        return frozenset(fill.target for fill in self.prelaunch)

    def document(self) -> dict[str, object]:
        """Return the identity form."""
        return {
            "bindings": [binding.document() for binding in self.bindings],
            "device_plan": self.device_plan.document(),
            "factory": self.factory,
            "name": self.name,
            "plan": self.plan,
            "prelaunch": [fill.document() for fill in self.prelaunch],
            "profile_inputs": list(self.profile_inputs),
            "provider": self.provider,
            "provider_capability_requirements": [_row(row) for row in self.provider_capability_requirements],
            "role": self.role,
            "specialization_capability_requirements": [
                _row(row) for row in self.specialization_capability_requirements
            ],
            "specializes": {name: scalar_document(value) for name, value in self.specializes.items()},
            "step": self.step,
        }


def parse_export(value: object, where: Where, scope: Scope) -> Export:
    """Parse one export of the row whose names are `scope`. Raises any DIRECT_* code but the row's own."""
    table = Table(value, where, _REQUIRED, _OPTIONAL)
    provider = _provider(table)
    role = table.choice("role", ROLES, DEFAULT_ROLE)
    bindings = tuple(parse_binding(item, at, role, scope) for item, at in table.items("bindings", 1, DIRECT.bindings))
    plan = parse_device_plan(table.get("device_plan"), table.at("device_plan"), bindings)
    predicates = parse_predicates(table.get("specializes"), table.at("specializes"), scope.abi)
    provider_needs = provider_requirements(bindings, plan)
    scalar_needs = specialization_requirements(predicates, scope.abi)
    check_offered(provider_needs, provider, scope.abi, where)
    check_written(table, "provider_capability_requirements", provider_needs, "capability projection source")
    check_written(table, "specialization_capability_requirements", scalar_needs, "capability_field source")
    return Export(
        provider=provider.provider_id,
        name=table.matching("name", _NAME, _NAME_RULE),
        factory=_factory(table),
        profile_inputs=_profile_inputs(table, provider),
        bindings=bindings,
        device_plan=plan,
        role=role,
        plan=table.matching("plan", _NAME, _NAME_RULE) if table.has("plan") else DEFAULT_PLAN,
        step=table.optional_integer("step", 0, DIRECT.step) or 0,
        specializes=predicates,
        prelaunch=tuple(
            parse_fill(item, at, role, scope) for item, at in table.items("prelaunch", 0, DIRECT.prelaunch)
        ),
        provider_capability_requirements=provider_needs,
        specialization_capability_requirements=scalar_needs,
    )


def plans_of(exports: tuple[Export, ...]) -> Mapping[str, tuple[Export, ...]]:
    """Return the exports of every plan, by name, in step order."""
    plans: dict[str, list[Export]] = {}
    for export in sorted(exports, key=lambda export: export.order):
        plans.setdefault(export.plan, []).append(export)
    return {name: tuple(steps) for name, steps in plans.items()}


def _provider(table: Table) -> Provider:
    name = table.text("provider")
    if name not in PROVIDERS:
        raise table.at("provider").refusal("DIRECT_PROVIDER", f"{shown(name)} is no provider.", one_of(PROVIDERS))
    return PROVIDERS[name]


def _factory(table: Table) -> str:
    name = table.matching("factory", _FACTORY, "the name of a Python function")
    if keyword.iskeyword(name):
        raise table.at("factory").refusal("DIRECT_VALUE", f"{name} is a Python keyword.")
    return name


def _profile_inputs(table: Table, provider: Provider) -> tuple[str, ...]:
    names: list[str] = []
    for item, place in table.items("profile_inputs", 0, DIRECT.profile_inputs):
        if not isinstance(item, str) or item not in provider.compile_profile_inputs:
            hint = one_of(provider.compile_profile_inputs)
            raise place.refusal("DIRECT_PROVIDER", f"{shown(item)} is no profile input of this provider.", hint)
        if item in names:
            raise place.refusal("DIRECT_VALUE", f"{item} stands twice.")
        names.append(item)
    return tuple(sorted(names))


def _row(row: msgspec.Struct) -> dict[str, object]:
    return msgspec.structs.asdict(row)
