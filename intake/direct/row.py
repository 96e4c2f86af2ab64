"""One direct-artifact `[[ops]]` row: its exports and resources, parsed and checked against the slot's call ABI.

Invariants
1. A direct row names no runtime callable of its own: nothing of it but its compiled device code is ever run.
2. All exports use one provider; names, and (plan, step) within a plan, are unique.
3. What a row returns is in canonical order: equal declarations give equal rows, however they were written down.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import msgspec

from config.errors import IntakeError
from config.limits import DIRECT
from config.slot_resources import SlotAbi, load_slot_resources
from intake.direct.exports import Export, parse_export, plans_of
from intake.direct.lifecycle import check_plan
from intake.direct.provider import PROVIDERS
from intake.direct.reading import as_items, shown
from intake.direct.resources import ArtifactResource, check_total, parse_resource
from intake.direct.scope import Scope
from intake.direct.specialization import check_proved, check_separate
from intake.direct.where import Where, row_place

EXPORTS, RESOURCES = "aot_exports", "artifact_resources"
_FOREIGN = ("prepare", "setup", "base_kernel", "override_point", "cuda_sources")
_T = TypeVar("_T")
Take = Callable[[IntakeError], None]


class DirectRow(msgspec.Struct, frozen=True):
    """A valid direct row. Exports are in canonical order, resources sorted by name."""

    slot: str
    variant: str
    exports: tuple[Export, ...]
    resources: tuple[ArtifactResource, ...]

    @property
    def provider(self) -> str:
        """The one provider of all exports."""
        return self.exports[0].provider

    @property
    def feature(self) -> str:
        """The feature this row is observed to have."""
        return PROVIDERS[self.provider].manifest_feature

    @property
    def plans(self) -> Mapping[str, tuple[Export, ...]]:
        """The steps of every plan, by plan name, in step order."""
        return plans_of(self.exports)


def is_direct(row: Mapping[str, Any]) -> bool:
    """Say whether a raw `[[ops]]` row has anything this package parses."""
    return any(row.get(key) not in (None, []) for key in (EXPORTS, RESOURCES))


def parse_direct_row(
    row: Mapping[str, Any],
    *,
    slot: str,
    variant: str,
    metadata_capabilities: Mapping[str, object] | None = None,
    where: Where | None = None,
) -> DirectRow:
    """Parse one raw row. Raises `IntakeError` for the first broken rule; see `read_direct_row`."""
    errors: list[IntakeError] = []
    parsed = read_direct_row(
        row,
        errors.append,
        slot=slot,
        variant=variant,
        metadata_capabilities=metadata_capabilities,
        where=where or row_place(0),
    )
    if parsed is None:
        raise errors[0]
    return parsed


def read_direct_row(
    row: Mapping[str, Any],
    take: Take,
    *,
    slot: str,
    variant: str,
    metadata_capabilities: Mapping[str, object] | None,
    where: Where,
) -> DirectRow | None:
    """Parse one raw row; hand one error per broken export, resource or rule of the row to `take`.

    `metadata_capabilities` is the raw `capabilities` object of the row's metadata file (`read_direct_metadata`).
    Returns None when anything was handed to `take`.
    """
    failed: list[IntakeError] = []

    def fail(error: IntakeError) -> None:
        failed.append(error)
        take(error)

    abi = load_slot_resources().get(slot)
    if abi is None:
        fail(where.at("slot").refusal("DIRECT_ROW", f"slot {shown(slot)} has no call ABI for direct artifacts."))
        return None
    _each(fail, lambda: _check_foreign(row, where))
    resources = _resources(row, where, abi, fail)
    scope = Scope(abi, {resource.name: resource for resource in resources})
    exports = _exports(row, where, scope, fail)
    if failed:
        return None
    capabilities = metadata_capabilities or {}
    _each(fail, lambda: _check_together(exports, scope, capabilities, where.at(EXPORTS)))
    if failed:
        return None
    ordered = tuple(sorted(exports, key=lambda export: export.order))
    return DirectRow(slot, variant, ordered, tuple(sorted(resources, key=lambda resource: resource.name)))


def _each(fail: Take, check: Callable[[], _T]) -> _T | None:
    try:
        return check()
    except IntakeError as error:
        fail(error)
        return None


def _check_foreign(row: Mapping[str, Any], where: Where) -> None:
    for key in _FOREIGN:
        if row.get(key) not in (None, []):
            hint = "Remove it, or remove the direct-artifact declarations."
            raise where.at(key).refusal("DIRECT_ROW", f"a direct row has no {key}.", hint)


def _resources(row: Mapping[str, Any], where: Where, abi: SlotAbi, fail: Take) -> list[ArtifactResource]:
    place = where.at(RESOURCES)
    items = _each(fail, lambda: as_items(row.get(RESOURCES, []), place, 0, DIRECT.resources)) or []
    parsed = [_each(fail, partial(parse_resource, item, at, abi)) for item, at in items]
    resources = [resource for resource in parsed if resource is not None]
    _each(fail, lambda: check_total(tuple(resources), place))
    return resources


def _exports(row: Mapping[str, Any], where: Where, scope: Scope, fail: Take) -> list[Export]:
    place = where.at(EXPORTS)
    items = _each(fail, lambda: as_items(row.get(EXPORTS, []), place, 0, DIRECT.exports))
    if items == []:
        fail(where.refusal("DIRECT_ROW", "the row declares no aot_exports.", "Resources belong to exports."))
    parsed = [_each(fail, partial(parse_export, item, at, scope)) for item, at in items or ()]
    return [export for export in parsed if export is not None]


def _check_together(exports: list[Export], scope: Scope, capabilities: Mapping[str, object], where: Where) -> None:
    if len({export.provider for export in exports}) > 1:
        raise where.refusal("DIRECT_ROW", "the exports of one row use one provider.")
    names: set[str] = set()
    for index, export in enumerate(exports):
        if export.name in names:
            raise where.at(index, "name").refusal("DIRECT_ROW", f"the export name {export.name} stands twice.")
        names.add(export.name)
        check_proved(export.specializes, capabilities, scope.abi, where.at(index, "specializes"))
    places = {export.name: where.at(index) for index, export in enumerate(exports)}
    plans = plans_of(tuple(exports))
    for name, steps in plans.items():
        check_plan(name, steps, scope, lambda export: places[export.name])
    check_separate({name: steps[0].specializes for name, steps in plans.items()}, where)
