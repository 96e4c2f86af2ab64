"""One call under full suspicion: fresh inputs, fresh places, filler, a timed run, and every check on what came back.

Invariants
1. The expectation is computed before the call from a private copy of the inputs; nothing of it is in shared memory.
2. Everything is checked while the arm is frozen: output values, guards, inputs, and the previous call's output.
3. A wrong output is looked at once more after the arm was allowed to run: one that changed was filled in late.
4. The first fault ends the attempt; it is raised as `ArmError` with a kind of `scoring.incidents`.
5. A collective is asked of all ranks at once: inputs of which every rank has its own are held for all ranks, and the
   output of every rank has an expectation of its own (`qualify.group_memory`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from qualify.arm_handle import Arm, ArmError
from qualify.call_memory import Places, WeightKey
from qualify.cold_caches import ColdCaches
from qualify.comparison import Expectation, passes
from qualify.content import Content, Source, Style
from qualify.dtypes import DTYPES
from qualify.group_memory import ranked, share
from qualify.memory import PAGE
from qualify.slots.base import Argument, Dimensions, Scalar, Slot, Tensors
from scoring.attempt import CallCheck

_GRACE_SECONDS = 0.15  # how long a wrong output is watched for a late change
_GRACE_STEP_SECONDS = 0.01
_PIECE_ROWS = 32  # rows of a reference computed at a time
_PLACING_NS, _PLACING_PAGE_NS = 1_000_000, 1_000  # free of charge: a wake-up, and a look at every page


@dataclass(slots=True)
class Question:
    """The content of one call: private inputs and what the outputs have to be."""

    dimensions: Dimensions
    style: Style
    inputs: dict[str, torch.Tensor]
    answers: dict[str, torch.Tensor]
    expectations: dict[str, Expectation]
    digest: str
    scalars: dict[str, Scalar]


@dataclass(frozen=True, slots=True)
class Draws:
    """Names the random choices of one call's places and filler; the same for both roles of a block."""

    stage: int
    launch: int
    block: int
    call: int

    def generator(self, content: Content, purpose: str) -> np.random.Generator:
        """Return the generator of one purpose for this call."""
        return content.generator(purpose, self.stage, self.launch, self.block, self.call)


class Inquirer:
    """Asks arms questions and checks the answers."""

    def __init__(self, slot: Slot, dtype: str, content: Content, *, call_deadline_ms: int, ranks: int = 1) -> None:
        self._slot = slot
        self._ranks = ranks
        self._dtype = DTYPES[dtype]
        self._weights: dict[WeightKey, dict[str, torch.Tensor]] = {}
        self._dtype_name = dtype
        self._content = content
        self._deadline_ms = call_deadline_ms
        self._caches = ColdCaches()

    @property
    def weights(self) -> Mapping[WeightKey, Tensors]:
        """The weights in use, by `Slot.weight_key`; empty for slots without."""
        return self._weights

    def renew_weights(self, cases: Sequence[Dimensions], stage: int, launch: int) -> None:
        """Draw the weights that calls of `cases` use in one stage or launch."""
        self._weights = {}
        for case in cases if self._slot.weights else ():
            key = self._slot.weight_key(case)
            if key not in self._weights:
                shapes = self._slot.shapes(case)
                weights = {one.name: self._room(one, shapes) for one in self._slot.weights}
                source = Source(self._content, self._content.generator("weights", stage, launch, *key))
                self._slot.draw_weights(weights, case, source)
                self._weights[key] = weights

    def prepare(self, arm: Arm, implementations: Sequence[int], cases: Sequence[Dimensions], deadline_ms: int) -> int:
        """Run the load-time half of what serves each case, once for each set of weights. Returns the ns it took.

        Weights cannot be changed by it: they lie in memory that the arm can only read. Raises `ArmError`.
        """
        if not self._weights:
            return 0
        took = 0
        done: set[tuple[int, WeightKey]] = set()
        for implementation, case in zip(implementations, cases, strict=True):
            key = self._slot.weight_key(case)
            if key in self._weights and (implementation, key) not in done:
                done.add((implementation, key))
                extents = [case[name] for name in self._slot.dimensions]
                try:
                    took += arm.prepare(implementation, extents, arm.memory.weight_offsets(key), deadline_ms)
                except ArmError as fault:
                    kind = "prepare_failed" if fault.kind == "raised" else fault.kind
                    raise ArmError(kind, f"prepare: {fault.detail}", fault.outcome) from fault
        return took

    def question(
        self,
        dimensions: Dimensions,
        style: Style,
        generator: np.random.Generator,
        precision: torch.dtype,
        reuse: Question | None = None,
    ) -> Question:
        """Draw the inputs of one call and compute what the outputs have to be, in `precision`.

        `reuse` is an old question of the same dimensions whose memory may be overwritten.
        """
        question = reuse or self._blank(dimensions, style)
        question.style = style
        source = Source(self._content, generator)
        self._slot.draw(question.inputs, dimensions, style, source)
        question.scalars = {**self._slot.scalars(dimensions), **self._slot.draw_scalars(dimensions, style, source)}
        return self._answered(question, precision)

    def perturbed(self, question: Question, generator: np.random.Generator, precision: torch.dtype) -> Question:
        """Return `question` with some inputs changed: a private perturbation that the outputs have to follow."""
        changed = self._blank(question.dimensions, question.style)
        for name, tensor in changed.inputs.items():
            tensor.copy_(question.inputs[name])
        changed.scalars = question.scalars
        self._slot.perturb(changed.inputs, question.dimensions, Source(self._content, generator))
        return self._answered(changed, precision)

    def _blank(self, dimensions: Dimensions, style: Style) -> Question:
        shapes = self._slot.shapes(dimensions)
        inputs = {one.name: self._room(one, shapes) for one in self._slot.tensors() if one.role == "input"}
        answers = {name: torch.empty(shapes[name], dtype=torch.float32) for name in self._slot.names("output")}
        return Question(dimensions, style, inputs, answers, {}, "", {})

    def _room(self, argument: Argument, shapes: Mapping[str, tuple[int, ...]]) -> torch.Tensor:
        shape = self._slot.stacked(argument.name, shapes[argument.name], self._ranks)
        return torch.empty(shape, dtype=argument.torch_dtype(self._dtype))

    def _answered(self, question: Question, precision: torch.dtype) -> Question:
        comparator = self._slot.comparator
        tolerances = {
            name: self._slot.output_bounds(name, self._dtype_name, question.style) for name in question.answers
        }
        weights = self._weights.get(self._slot.weight_key(question.dimensions), {})
        rows = next(iter(question.answers.values())).shape[0] if self._slot.row_inputs else 1
        step = _PIECE_ROWS if self._slot.row_inputs else rows
        bounds: dict[str, list[torch.Tensor]] = {name: [] for name in question.answers}
        for start in range(0, rows, step):  # in pieces that stay in the cache
            piece = slice(start, start + step)
            inputs = {name: self._slot.rows_of(name, tensor, piece) for name, tensor in question.inputs.items()}
            for name, value in self._slot.reference({**inputs, **weights}, question.scalars, precision).items():
                target = question.answers[name]
                (target[piece] if self._slot.row_inputs else target).copy_(value)
                bounds[name].append(comparator.row_bounds(value, tolerances[name]))
        for name, answer in question.answers.items():
            expectation = comparator.expect(answer, tolerances[name], torch.cat(bounds[name]))
            names = [ranked(rank, name) for rank in range(self._ranks)] if self._slot.collective else [name]
            question.expectations.update(dict.fromkeys(names, expectation))
        question.digest = self._fingerprint(question.inputs)
        return question

    def _fingerprint(self, inputs: Tensors) -> str:
        shares = {
            ranked(rank, name): tensor
            for rank in range(self._ranks if self._slot.per_rank else 1)
            for name, tensor in share(self._slot, inputs, rank).items()
        }
        return self._content.fingerprint_inputs(shares)

    def ask(self, arm: Arm, implementation: int, question: Question, draws: Draws) -> tuple[int, CallCheck]:
        """Run one call and check it. Returns its duration in ns and the evidence. Raises `ArmError`.

        What placing took beyond what it may take is part of the duration.
        """
        memory = arm.memory
        places = memory.place(question.dimensions, arm.calls % 2, draws.generator(self._content, "places"))
        placing = self.place(arm, implementation, question, places)
        memory.write_inputs(places, question.inputs)
        memory.write_filler(places, self._content, draws.generator(self._content, "filler"))
        guards = memory.guards(places)
        self._caches.empty(arm.core)
        elapsed = arm.call(self._deadline_ms) + overtime_ns(placing, question, self._ranks)
        digest = memory.fingerprint(places, self._content)
        worst = self._judge(arm, places, question)
        self.look_again(arm)
        if not passes(worst):
            self._raise_wrong(arm, places, question, draws)
        if not guards.still(memory.guards(places)):
            raise ArmError("out_of_bounds", "bytes outside the output were written")
        if not memory.inputs_intact(places, question.inputs):
            raise ArmError("input_mutated", "an input changed during the call")
        arm.last_output = (places, memory.copy_outputs(places))
        return elapsed, CallCheck(question.digest, digest, "", worst)

    def place(self, arm: Arm, implementation: int, question: Question, places: Places) -> int:
        """Let the arm build the arguments of a call. Returns the ns it took. Raises `ArmError`."""
        extents = [question.dimensions[name] for name in self._slot.dimensions]
        scalars = [float(question.scalars[name]) for name in self._slot.free_scalars]
        return arm.place(implementation, extents, places.offsets, self._deadline_ms, scalars)

    def look_again(self, arm: Arm) -> None:
        """Raise `ArmError` (late_write) when the arm's previous output is no longer what it was at its return."""
        if arm.last_output is None:
            return
        places, copies = arm.last_output
        arm.last_output = None
        if not arm.memory.outputs_still(places, copies):
            raise ArmError("late_write", "an output changed after its call had returned")

    def _judge(self, arm: Arm, places: Places, question: Question) -> int:
        figures = [
            self._slot.comparator.judge(output, question.expectations[name])
            for name, output in arm.memory.outputs_in_place(places).items()
        ]
        return next((figure for figure in figures if figure < 0), max(figures))

    def _raise_wrong(self, arm: Arm, places: Places, question: Question, draws: Draws) -> None:
        text, copies = self._describe(arm, places, question), arm.memory.copy_outputs(places)
        for _ in range(math.ceil(_GRACE_SECONDS / _GRACE_STEP_SECONDS)):
            arm.run_freely(_GRACE_STEP_SECONDS)
            if not arm.memory.outputs_still(places, copies):
                raise ArmError("late_write", f"the output was wrong at its return and was written later; {text}")
        if arm.memory.holds_filler(places, self._content, draws.generator(self._content, "filler")):
            raise ArmError("not_executed", f"the output was never written; {text}")
        raise ArmError("wrong_output", text)

    def _describe(self, arm: Arm, places: Places, question: Question) -> str:
        usual = self._slot.scalars(question.dimensions)
        odd = {name: value for name, value in question.scalars.items() if value != usual[name]}
        named = {**question.dimensions, **{name: f"{value:.9g}" for name, value in odd.items()}}
        shape = " ".join(f"{name}={extent}" for name, extent in named.items())
        for name, output in arm.memory.outputs_in_place(places).items():
            expectation = question.expectations[name]
            if not passes(self._slot.comparator.judge(output, expectation)):
                return f"{shape} {name} {self._slot.comparator.locate(output, expectation)}"
        return shape


def overtime_ns(placing: int, question: Question, ranks: int = 1) -> int:
    """Return how much of the time that placing a call took is charged to the call, in ns. Ranks place in turn.

    Placing is not timed because it depends on nothing in the call. An arm that works there all the same, to prepare
    what it can or to keep its core at a high frequency, pays for it.
    """
    size = sum(tensor.nbytes for tensor in (*question.inputs.values(), *question.answers.values()))
    return max(0, placing - ranks * (_PLACING_NS + _PLACING_PAGE_NS * (size // PAGE)))
