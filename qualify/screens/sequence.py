"""A group through many shapes in a row, as it would serve them: what one call leaves behind must not reach the next.

Invariants
1. One fresh group answers every case from the largest count to the smallest and back, three times over.
2. Every step has fresh inputs and is checked like any other call; the first fault decides.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from qualify.arm_handle import ArmError
from qualify.checked_call import Draws
from qualify.correctness import STAGE, STAGE_NUMBER, CorrectnessCase, elements
from qualify.screens.bench import Bench
from scoring.attempt import StageRecord

_ROUNDS = 3
_DRAWS = 1  # second index of this part's draws; single cases use 0


def sequence_of(sizes: Sequence[int]) -> list[int]:
    """Return the indices of `sizes` in the order they are asked: descending, then ascending, repeated."""
    down = sorted(range(len(sizes)), key=lambda index: (-sizes[index], index))
    return (down + down[::-1]) * _ROUNDS


def ask_in_sequence(bench: Bench) -> int:
    """Ask all cases in sequence and record every step; return how many there were. Raises `ArmError`."""
    rig, routes = bench.rig, bench.case_routes()
    shapes = [case.dimensions for case in bench.cases]
    order = sequence_of([elements(rig.slot, shape) for shape in shapes])
    rig.inquirer.renew_weights(shapes, STAGE_NUMBER, _DRAWS)
    with rig.start_arm(bench.setup("candidate", routes), shapes) as arm:
        for step, index in enumerate(order):
            case, implementation = bench.cases[index], routes.by_case[index]
            inputs = rig.content.generator("inputs", STAGE_NUMBER, _DRAWS, 0, step)
            question = rig.inquirer.question(case.dimensions, case.style, inputs, torch.float64)
            try:
                took, check = rig.inquirer.ask(arm, implementation, question, Draws(STAGE_NUMBER, _DRAWS, step, 0))
            except ArmError as fault:
                detail = f"step {step + 1} of {_words(bench.cases, order, step)}: {fault.detail}"
                raise ArmError(fault.kind, detail, fault.outcome) from fault
            bench.findings.stages.append(StageRecord(STAGE, dict(case.dimensions), rig.dtype, (check,), (took,)))
        rig.inquirer.look_again(arm)
        arm.require_steadiness()
    return len(order)


def _words(cases: Sequence[CorrectnessCase], order: Sequence[int], step: int) -> str:
    if step == 0:
        return "a sequence"
    before = " ".join(f"{name}={extent}" for name, extent in cases[order[step - 1]].dimensions.items())
    return f"a sequence, after {before}"
