"""What the steps of a plan must do together, once each of them is well formed.

Invariants
1. In step order the roles of a plan never go back: init, prepare, reset, run, destroy; at least one step runs.
2. The run steps of every plan write or fill every output of the slot.
3. Every declared resource is used in every plan; a prepared one is exposed while preparing and bound while running.
4. One destroy step touches storage of one lifetime and scope only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise

from intake.direct.exports import Export
from intake.direct.resources import ArtifactResource
from intake.direct.scalars import same_scalar
from intake.direct.scope import ROLES, Scope
from intake.direct.where import Where

Steps = tuple[Export, ...]
PlaceOf = Callable[[Export], Where]  # where an export stands in the manifest


def check_plan(name: str, steps: Steps, scope: Scope, place_of: PlaceOf) -> None:
    """Check one plan's steps, in step order. Raises DIRECT_LIFECYCLE, DIRECT_COVERAGE, DIRECT_SPECIALIZATION."""
    _check_order(name, steps, place_of)
    for export in steps[1:]:
        if not _same(export.specializes, steps[0].specializes):
            message = f"the steps of plan {name} do not all specialize on the same values."
            raise place_of(export).refusal("DIRECT_SPECIALIZATION", message)
    _check_outputs(name, steps, scope, place_of)
    for resource in scope.declared.values():
        _check_use(name, resource, steps, place_of(steps[0]))
    for export in steps:
        if export.role == "destroy":
            _check_destroy(export, scope, place_of(export))


def _check_order(name: str, steps: Steps, place_of: PlaceOf) -> None:
    for one, other in pairwise(steps):
        place = place_of(other)
        if one.step == other.step:
            message = f"{one.name} and {other.name} are both step {one.step} of plan {name}."
            raise place.at("step").refusal("DIRECT_LIFECYCLE", message, "Number the steps of a plan.")
        if ROLES.index(one.role) > ROLES.index(other.role):
            message = f"plan {name} has the {other.role} step {other.step} after the {one.role} step {one.step}."
            raise place.at("role").refusal("DIRECT_LIFECYCLE", message, f"The order of roles is {', '.join(ROLES)}.")
    if not any(export.role == "run" for export in steps):
        raise place_of(steps[0]).refusal("DIRECT_LIFECYCLE", f"plan {name} has no run step.")


def _check_outputs(name: str, steps: Steps, scope: Scope, place_of: PlaceOf) -> None:
    running = [export for export in steps if export.role == "run"]
    for output in scope.abi.outputs:
        resource = scope.abi.by_name[output]
        written = any(
            output in export.filled or any(binding.writes(resource) for binding in export.bindings)
            for export in running
        )
        if not written:
            hint = "Bind it as a tensor or as a device_ptr pointer, or fill it before a run step."
            raise place_of(running[0]).refusal("DIRECT_COVERAGE", f"no run step of plan {name} writes {output}.", hint)


def _check_use(name: str, resource: ArtifactResource, steps: Steps, where: Where) -> None:
    used = {export.role for export in steps if resource.name in export.bound | export.filled}
    if not used:
        message = f"plan {name} never uses {resource.name}."
        raise where.refusal("DIRECT_LIFECYCLE", message, "Bind it in a step, or remove the declaration.")
    if resource.lifetime != "prepared":
        return
    if "prepare" not in used:
        raise where.refusal("DIRECT_LIFECYCLE", f"no prepare step of plan {name} makes {resource.name}.")
    if not any(resource.name in export.bound for export in steps if export.role == "run"):
        raise where.refusal("DIRECT_LIFECYCLE", f"no run step of plan {name} binds {resource.name}.")


def _check_destroy(export: Export, scope: Scope, where: Where) -> None:
    touched = [scope.declared[name] for name in export.bound | export.filled if name in scope.declared]
    if len({(resource.lifetime, resource.scope) for resource in touched}) > 1:
        message = f"the destroy step {export.name} touches storage of several lifetimes or scopes."
        raise where.refusal("DIRECT_LIFECYCLE", message, "Write one destroy step for each.")


def _same(one: Mapping[str, object], other: Mapping[str, object]) -> bool:
    return one.keys() == other.keys() and all(same_scalar(one[name], other[name]) for name in one)
