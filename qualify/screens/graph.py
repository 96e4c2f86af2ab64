"""graph: capture of the entry in a device graph and its replay on fresh inputs. Needs a device."""

from __future__ import annotations

from dataclasses import dataclass

from qualify.screens.base import Examined, ScreenReceipt
from qualify.screens.bench import Bench


@dataclass(frozen=True, slots=True)
class Graph:
    """The graph screen."""

    name: str = "graph"

    def run(self, bench: Bench, /) -> ScreenReceipt:
        """Say that there is no device to capture on."""
        return bench.receipt(self.name, _examine)


def _examine(bench: Bench) -> Examined:
    arena = bench.docket.arena
    return Examined("not_applicable", f"no device: arena {arena.id} measures eager calls on the {arena.kind.upper()}")
