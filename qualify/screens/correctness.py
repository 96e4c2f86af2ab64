"""correctness: one fresh arm of the candidate, many shapes and distributions, before anything is timed.

Invariants
1. The first fault decides and is the one that is recorded.
2. A group is started afresh for every case, so that a case that is right is right by itself; then a sequence of all
   cases shows that calls do not disturb each other.
3. A miner's own run may ask for every case all the same (`every_case`). Then a fault that leaves the next case
   meaningful is told and a fresh arm goes on; it changes nothing about the first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from qualify.arm_handle import ArmError
from qualify.correctness import STAGE_NUMBER, run_case
from qualify.screens.base import Examined, ScreenReceipt
from qualify.screens.bench import Bench
from qualify.screens.sequence import ask_in_sequence
from scoring.attempt import AT_BOUND

_CASE_FAULTS = frozenset({"wrong_output", "not_executed", "raised"})  # the next case may fare differently


@dataclass(frozen=True, slots=True)
class Correctness:
    """The correctness screen."""

    every_case: bool = False
    name: str = "correctness"

    def run(self, bench: Bench, /) -> ScreenReceipt:
        """Ask every case twice and check every answer."""
        return bench.receipt(self.name, self._examine)

    def _examine(self, bench: Bench) -> Examined:
        for view in bench.judged_views():
            self._ask_all(view)
        worst = max(check.worst_ppm for record in bench.findings.stages for check in record.checks)
        calls = sum(len(record.checks) for record in bench.findings.stages)
        share = f"{worst * 100 / AT_BOUND:.0f} %"
        facts = {"cases": sum(len(view.cases) for view in bench.views()), "calls": calls, "worst_ppm": worst}
        return Examined("passed", f"{calls} calls answered right; the worst error is {share} of its bound", facts)

    def _ask_all(self, bench: Bench) -> None:
        """Ask all cases of one slot. Raises `ArmError` for the first fault."""
        asked, first = 0, None
        while asked < len(bench.cases):
            asked, fault = _ask_from(bench, asked)
            first = first or fault
            if fault is not None and not (self.every_case and fault.kind in _CASE_FAULTS):
                break
        if first is not None:
            raise first
        if bench.rig.slot.collective:
            ask_in_sequence(bench)


def _ask_from(bench: Bench, start: int) -> tuple[int, ArmError | None]:
    """Ask a fresh arm the cases from `start` on, up to the first fault; a fresh group is asked one case.

    Returns the case to go on with, and the fault.
    """
    routes, rig, index = bench.case_routes(), bench.rig, start
    stop = start + 1 if rig.slot.collective else len(bench.cases)
    shapes = [case.dimensions for case in bench.cases[start:stop]]
    setup = replace(bench.setup("candidate", routes), by_case=routes.by_case[start:stop])
    rig.inquirer.renew_weights(shapes, STAGE_NUMBER, 0)
    try:
        with rig.start_arm(setup, shapes) as arm:
            bench.findings.layers = arm.process.layers
            for index in range(start, stop):
                implementation, case = routes.by_case[index], bench.cases[index]
                record = run_case(rig.inquirer, rig.content, arm, implementation, rig.dtype, case, index)
                bench.findings.stages.append(record)
                _tell(bench, index, worst_ppm=max(check.worst_ppm for check in record.checks))
            rig.inquirer.look_again(arm)
            arm.require_steadiness()
    except ArmError as fault:
        _tell(bench, index, kind=fault.kind, detail=fault.detail)
        return index + 1, fault
    return stop, None


def _tell(bench: Bench, index: int, *, worst_ppm: int = 0, kind: str = "", detail: str = "") -> None:
    """Emit what became of one case: `kind` is an incident's, empty for a case that is right."""
    case = bench.cases[index]
    bench.emit(
        {
            "event": "stage",
            "index": index,
            "count": len(bench.cases),
            "shape": dict(case.dimensions),
            "style": case.style.name,
            "worst_ppm": worst_ppm,
            "kind": kind,
            "detail": detail,
        }
    )
