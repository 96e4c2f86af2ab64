"""What one export may name: the slot's resources and the row's own, narrowed by the export's role.

Invariants
1. A run step sees the call's arguments; a prepare step the arguments of the load-time half; init, reset and destroy
   see only storage, stream and group. Outputs belong to run steps alone.
2. Workspace does not exist in init and destroy, prepared storage does not exist in init and is not reset.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from config.slot_resources import SlotAbi, SlotResource
from intake.direct.reading import one_of, shown
from intake.direct.resources import ArtifactResource
from intake.direct.where import Where

ROLES = ("init", "prepare", "reset", "run", "destroy")  # in the order of a plan's steps
_STORAGE = frozenset(("workspace", "prepared", "state", "group", "stream"))
_ABSENT = {
    "workspace": frozenset(("init", "destroy")),
    "prepared": frozenset(("init", "reset")),
}  # family of a declared resource -> roles in which it does not exist


class Scope(msgspec.Struct, frozen=True):
    """The names of one row. `declared` are the row's artifact resources, by name."""

    abi: SlotAbi
    declared: Mapping[str, ArtifactResource]

    def resource(self, name: str) -> SlotResource | None:
        """Return the resource called `name`, or None."""
        declared = self.declared.get(name)
        return self.abi.by_name.get(name) if declared is None else declared.as_slot_resource()

    def reach(self, name: str, role: str, where: Where) -> SlotResource:
        """Return the resource `name` as a step of `role` may name it. Raises DIRECT_SOURCE."""
        resource = self.resource(name)
        if resource is None:
            hint = one_of((*self.abi.by_name, *self.declared))
            raise where.refusal("DIRECT_SOURCE", f"{shown(name)} is no resource of {self.abi.slot} or this row.", hint)
        if not self._is_reachable(resource, role) or role in self._absent_in(name):
            raise where.refusal("DIRECT_SOURCE", f"a {role} step cannot touch {name}.")
        return resource

    def _is_reachable(self, resource: SlotResource, role: str) -> bool:
        if resource.family in _STORAGE:
            return role != "init" or resource.family != "prepared"
        arguments = {"run": self.abi.call_args, "prepare": self.abi.prepare_args}.get(role, ())
        return resource.name in arguments

    def _absent_in(self, name: str) -> frozenset[str]:
        if name not in self.declared:
            return frozenset()
        return _ABSENT.get(name.partition(".")[0], frozenset())
