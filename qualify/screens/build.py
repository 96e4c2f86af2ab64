"""build: whatever has to be compiled before the bundle can run.

Bundles that need a build are refused by `static` (FEATURE_NOT_SERVED) as long as nothing here can build them, so what
reaches this screen is Python source that runs as it is. A row that fills an override point needs a base kernel of ours
as well, and fails where there is none.
"""

from __future__ import annotations

from dataclasses import dataclass

from qualify.arm_handle import ArmError
from qualify.measure import RoleError
from qualify.override import base_absent
from qualify.screens.base import Examined, ScreenReceipt
from qualify.screens.bench import Bench


@dataclass(frozen=True, slots=True)
class Build:
    """The build screen."""

    name: str = "build"

    def run(self, bench: Bench, /) -> ScreenReceipt:
        """Say that nothing has to be built, or that a base kernel is missing."""
        return bench.receipt(self.name, _examine)


def _examine(bench: Bench) -> Examined:
    for variant in bench.docket.candidate.report.variants:
        point = variant.override_point
        reason = base_absent(variant.slot, point, bench.docket.arena.kind) if point is not None else ""
        if reason:
            raise RoleError("candidate", "build", -1, ArmError("base_absent", reason))
    sources = len({variant.source for variant in bench.docket.candidate.report.variants})
    return Examined("not_applicable", "nothing to build: the bundle is Python source", {"sources": sources})
