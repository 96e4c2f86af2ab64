"""`cacheon.device-launch-plan.v1`: every kernel of the CUBIN, and every launch of one step.

Invariants
1. Kernels are the whole inventory, sorted by name and unique; launches are numbered from 0 without gaps.
2. Every binding a plan refers to exists in its export and has the kind the reference needs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from config.canonical import domain_digest
from config.limits import DIRECT
from intake.direct.bindings import Binding
from intake.direct.launch import Launch, parse_launch
from intake.direct.reading import Table, as_integer
from intake.direct.where import Where

SCHEMA = "cacheon.device-launch-plan.v1"
_KERNEL_NAME = re.compile(rf"[A-Za-z_.$][A-Za-z0-9_.$@]{{0,{DIRECT.kernel_name_characters - 1}}}")


class Kernel(msgspec.Struct, frozen=True):
    """One kernel: its logical name and the width of each formal parameter, in bytes."""

    name: str
    parameter_sizes: tuple[int, ...]

    def document(self) -> dict[str, object]:
        """Return the identity form."""
        return {"name": self.name, "parameter_sizes": list(self.parameter_sizes)}


class DevicePlan(msgspec.Struct, frozen=True):
    """The kernels of one CUBIN and the launches of one step, in order."""

    kernels: tuple[Kernel, ...]
    launches: tuple[Launch, ...]

    def document(self) -> dict[str, object]:
        """Return the identity form, which parses to an equal plan."""
        return {
            "schema": SCHEMA,
            "kernels": [kernel.document() for kernel in self.kernels],
            "launches": [launch.document() for launch in self.launches],
        }

    @property
    def digest(self) -> str:
        """Lower-hex identity of the plan."""
        return domain_digest("cacheon.device-launch-plan", self.document())


def parse_device_plan(value: object, where: Where, bindings: Sequence[Binding]) -> DevicePlan:
    """Parse the plan of an export with `bindings`. Raises as `parse_launch`."""
    table = Table(value, where, "schema kernels launches")
    table.choice("schema", (SCHEMA,))
    kernels = _kernels(table)
    widths = {kernel.name: kernel.parameter_sizes for kernel in kernels}
    items = table.items("launches", 1, DIRECT.launches)
    launches = tuple(parse_launch(item, at, i, widths, bindings) for i, (item, at) in enumerate(items))
    return DevicePlan(kernels, launches)


def _kernels(table: Table) -> tuple[Kernel, ...]:
    kernels: list[Kernel] = []
    for item, place in table.items("kernels", 1, DIRECT.kernels):
        row = Table(item, place, "name parameter_sizes")
        name = row.matching("name", _KERNEL_NAME, "a kernel name")
        if kernels and name <= kernels[-1].name:
            raise row.at("name").refusal("DIRECT_PLAN", "kernels are sorted by name, each once.")
        sizes = row.items("parameter_sizes", 0, DIRECT.kernel_parameters)
        widths = tuple(as_integer(size, at, 1, DIRECT.kernel_parameter_bytes) for size, at in sizes)
        kernels.append(Kernel(name, widths))
    return tuple(kernels)
