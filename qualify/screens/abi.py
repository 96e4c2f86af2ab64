"""abi: in a fresh arm, every implementation loads, takes the slot's arguments and returns from one call.

Invariants
1. One call per implementation, at the smallest shape it serves; what it computed is the correctness screen's matter.
2. What the arm says about its own entries (imports, names, signatures) can only hurt the bundle.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from qualify.arm_handle import Arm, ArmError
from qualify.checked_call import Draws
from qualify.correctness import CorrectnessCase, elements
from qualify.measure import RoleError
from qualify.screens.base import Examined, ScreenReceipt
from qualify.screens.bench import Bench

STAGE_NUMBER = 2  # first index of this screen's draws; correctness and launches use others


@dataclass(frozen=True, slots=True)
class Abi:
    """The abi screen."""

    name: str = "abi"

    def run(self, bench: Bench, /) -> ScreenReceipt:
        """Load and call every implementation that the workload or a correctness case reaches."""
        return bench.receipt(self.name, _examine)


def _examine(bench: Bench) -> Examined:
    judged = bench.judged_views()
    for view in judged:  # an atomic bundle has to serve calls of every member
        if not view.routes.variants:
            detail = "every shape of the workload lies outside the domains of the bundle"
            detail += f" for {view.docket.slot.id}" if len(judged) > 1 else ""
            raise RoleError("candidate", "routing", -1, ArmError("never_routed", detail))
    found = [_examine_view(view) for view in judged]
    facts = {name: sum(int(one.facts[name]) for one in found) for name in ("entries", "load_ns", "prepare_ns")}
    facts["first_call_ns"] = max(int(one.facts["first_call_ns"]) for one in found)
    return Examined("passed", "; ".join(one.message for one in found), facts)


def _examine_view(bench: Bench) -> Examined:
    routes = bench.case_routes()
    chosen: dict[int, CorrectnessCase] = {}
    for implementation, case in zip(routes.by_case, bench.cases, strict=True):
        known = chosen.setdefault(implementation, case)
        if elements(bench.rig.slot, case.dimensions) < elements(bench.rig.slot, known.dimensions):
            chosen[implementation] = case
    shapes = [case.dimensions for case in chosen.values()]
    bench.rig.inquirer.renew_weights(shapes, STAGE_NUMBER, 0)
    setup = replace(bench.setup("candidate", routes), by_case=tuple(chosen))
    started_ns = bench.rig.now_ns()
    with bench.rig.start_arm(setup, shapes) as arm:
        load_ns = bench.rig.now_ns() - started_ns
        bench.findings.layers = arm.process.layers
        calls = [_call(bench, arm, implementation, case) for implementation, case in chosen.items()]
    entries = ", ".join(f"{routes.implementations[index].entry}" for index in chosen)
    taken = ", ".join(argument.name for argument in bench.rig.slot.arguments)
    facts = {"entries": len(calls), "load_ns": load_ns, "prepare_ns": arm.prepare_ns, "first_call_ns": max(calls)}
    return Examined("passed", f"{entries}({taken}) loads and returns", facts)


def _call(bench: Bench, arm: Arm, implementation: int, case: CorrectnessCase) -> int:
    """Make one unjudged call and return its duration in ns. Raises `ArmError`."""
    rig, dimensions = bench.rig, case.dimensions
    draws = Draws(STAGE_NUMBER, 0, 0, arm.calls)
    question = rig.inquirer.question(dimensions, case.style, draws.generator(rig.content, "inputs"), torch.float32)
    places = arm.memory.place(dimensions, arm.calls % 2, draws.generator(rig.content, "places"))
    rig.inquirer.place(arm, implementation, question, places)
    arm.memory.write_inputs(places, question.inputs)
    arm.memory.write_filler(places, rig.content, draws.generator(rig.content, "filler"))
    return arm.call(rig.arena.call_deadline_ms)
