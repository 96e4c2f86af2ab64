"""build: whatever has to be compiled before the bundle can run.

Bundles that need a build are refused by `static` (FEATURE_NOT_SERVED) as long as nothing here can build them, so what
reaches this screen is Python source that runs as it is.
"""

from __future__ import annotations

from dataclasses import dataclass

from qualify.screens.base import Examined, ScreenReceipt
from qualify.screens.bench import Bench


@dataclass(frozen=True, slots=True)
class Build:
    """The build screen."""

    name: str = "build"

    def run(self, bench: Bench, /) -> ScreenReceipt:
        """Say that nothing has to be built."""
        return bench.receipt(self.name, _examine)


def _examine(bench: Bench) -> Examined:
    sources = len({variant.source for variant in bench.docket.candidate.report.variants})
    return Examined("not_applicable", "nothing to build: the bundle is Python source", {"sources": sources})
