"""The correctness stage: one fresh arm of the candidate, many shapes and distributions, before anything is timed.

Invariants
1. Cases are the slot's public shapes with hidden jitter (the public shape itself when jitter leaves the candidate's
   domain), every shape of the workload that reaches the candidate, and one far from all public ones where the domain
   holds such (`qualify.far_shapes`); other shapes do not apply.
2. Every edge of the slot is one case: on the smallest shape that applies and on which it shows, or where that takes
   many rows, on the one with the most of them. Where it shows on none, a shape is changed if the domain allows it.
3. Every case is asked twice: once with fresh inputs, once after a private perturbation of the same inputs (edges: with
   inputs drawn again), with other filler and at another place. An output that does not follow the inputs is wrong.
4. Expectations are computed in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from qualify.arm_handle import Arm
from qualify.checked_call import Draws, Inquirer
from qualify.content import ALL_STYLES, Content, Style
from qualify.far_shapes import far_shape
from qualify.slots.base import Dimensions, Slot
from scoring.attempt import StageRecord

STAGE = "correctness"
STAGE_NUMBER = 0  # first index of this stage's draws; launches use another
_ELEMENTS_MAX = 4 << 20  # larger public shapes are left to arenas whose workload has them


@dataclass(frozen=True, slots=True)
class CorrectnessCase:
    """One shape with one distribution of inputs."""

    dimensions: Dimensions
    style: Style


def plan_cases(
    slot: Slot, content: Content, workload: Sequence[Dimensions], reaches: Callable[[Dimensions], bool]
) -> list[CorrectnessCase]:
    """Return the cases of this attempt. `reaches` says whether a shape is inside the candidate's domain."""
    generator = content.generator("shapes")
    shapes: list[Dimensions] = []
    for public in slot.catalog_shapes:
        hidden = _jittered(slot, public, generator)
        shape = hidden if reaches(hidden) else public
        if reaches(shape) and elements(slot, shape) <= _ELEMENTS_MAX:
            shapes.append(shape)
    shapes += [shape for shape in workload if reaches(shape)]
    order = content.generator("styles").permutation(len(ALL_STYLES))
    edges = [CorrectnessCase(_edge_shape(slot, shapes, style, reaches), style) for style in slot.edges if shapes]
    far = None
    if shapes:
        far = far_shape(slot, content.generator("far"), reaches, lambda shape: elements(slot, shape), workload)
    shapes += [] if far is None else [far]
    cases = [CorrectnessCase(shape, ALL_STYLES[order[index % len(ALL_STYLES)]]) for index, shape in enumerate(shapes)]
    return cases + edges


def run_case(
    inquirer: Inquirer, content: Content, arm: Arm, implementation: int, dtype: str, case: CorrectnessCase, index: int
) -> StageRecord:
    """Ask one case twice. Raises `ArmError` for the first wrong answer."""
    precision = torch.float64
    inputs = content.generator("inputs", STAGE_NUMBER, 0, 0, index)
    first = inquirer.question(case.dimensions, case.style, inputs, precision)
    again = content.generator("perturbation", index)
    if case.style in ALL_STYLES:
        second = inquirer.perturbed(first, again, precision)
    else:
        second = inquirer.question(case.dimensions, case.style, again, precision)
    answers = [
        inquirer.ask(arm, implementation, question, Draws(STAGE_NUMBER, 0, index, call))
        for call, question in enumerate((first, second))
    ]
    checks, times = tuple(check for _, check in answers), tuple(ns for ns, _ in answers)
    return StageRecord(STAGE, dict(case.dimensions), dtype, checks, times)


def _edge_shape(
    slot: Slot, shapes: Sequence[Dimensions], style: Style, reaches: Callable[[Dimensions], bool]
) -> Dimensions:
    output = slot.names("output")[0]
    changed = [shape for shape in (slot.legal(slot.shown(one, style)) for one in shapes) if reaches(shape)]
    chosen = [shape for shape in shapes if slot.shown(shape, style) == dict(shape)] or changed or shapes
    if style.crowd:
        return max(chosen, key=lambda shape: (slot.shapes(shape)[output][0], -elements(slot, shape)))
    return min(chosen, key=lambda shape: elements(slot, shape))


def _jittered(slot: Slot, public: Dimensions, generator: np.random.Generator) -> Dimensions:
    hidden = dict(public)
    for name in slot.jittered(public):
        extent = public[name]
        extent += int(generator.integers(-1, 4)) + extent // 3 * int(generator.integers(0, 2))
        hidden[name] = max(1, extent)
    return slot.legal(hidden)


def elements(slot: Slot, dimensions: Dimensions) -> int:
    """Return how many elements the tensors of one call have."""
    total = 0
    for shape in slot.shapes(dimensions).values():
        size = 1
        for extent in shape:
            size *= extent
        total += size
    return total
