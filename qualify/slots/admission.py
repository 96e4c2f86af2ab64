"""The admission of a slot: what has to pass passes and what has to fail fails, or nothing is measured with it.

Invariants
1. The stock form, on all ranks, and the reference itself in float32 pass in every distribution; every mistake of
   `qualify.slots.mistakes` that is one for the slot fails. A table says so in figures, row by row.
2. The referee admits a slot before the first attempt of a process that uses it (`admit`), in the dtype it is used
   with; tests look at every dtype and every distribution (`examine`).
3. Nothing of an attempt's seed is drawn here, and nothing here runs in an arm.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch

from config.errors import ConfigurationError
from qualify.comparison import passes
from qualify.content import ALL_STYLES, SHIFTED, Source, Style
from qualify.slots.base import Slot
from qualify.slots.mistakes import ANSWERINGS, EDGE_ANSWERINGS, FILLINGS, Answering, faint
from qualify.slots.rehearsal import GROUP_SIZE, Rehearsal, content_for, small, worst

GATE_STYLES = (SHIFTED,)  # of the general distributions, that which assumptions about statistics survive least
_NAMED = 3  # trials that a refusal names


@dataclass(frozen=True, slots=True)
class Trial:
    """One row of the table. `figure` is in ppm of the bound, negative where an output is no number."""

    slot: str
    dtype: str
    style: str
    control: str
    wanted: bool  # whether it has to pass
    figure: int

    @property
    def kept(self) -> bool:
        """Whether it went as it has to."""
        return passes(self.figure) == self.wanted

    def __str__(self) -> str:
        verb = "passes" if passes(self.figure) else "fails"
        share = "no number" if self.figure < 0 else f"{self.figure / 10_000:.0f} % of the bound"
        return f"{self.control} {verb} for {self.style} inputs in {self.dtype} ({share})"


def examine(slot: Slot, dtype: str, styles: Iterable[Style], ranks: int = GROUP_SIZE) -> Iterator[Trial]:
    """Run every control of `slot` in one dtype, with inputs of each style, on its smallest public shape."""
    content = content_for(slot, small(slot), ranks)
    for style in styles:
        call = Rehearsal(slot, dtype, style, ranks=ranks, content=content)
        for control, wanted, figure in _figures(call):
            yield Trial(slot.key, dtype, style.name, control, wanted, figure)


@functools.cache
def admit(slot: Slot, dtype: str) -> tuple[Trial, ...]:
    """Return the table of a slot that may be used, once for each process.

    Raises `ConfigurationError` (SLOT_NOT_ADMITTED) with the controls that went the other way.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # splitting tensors this small among threads takes longer than the work
    try:
        table = tuple(examine(slot, dtype, (*GATE_STYLES, *slot.edges)))
    finally:
        torch.set_num_threads(threads)
    odd = [str(trial) for trial in table if not trial.kept]
    if odd:
        more = f" and {len(odd) - _NAMED} more" if len(odd) > _NAMED else ""
        raise ConfigurationError(
            "SLOT_NOT_ADMITTED",
            f"slot {slot.key} tells right from wrong no longer: {'; '.join(odd[:_NAMED])}{more}",
            hint="its reference, stock form, comparator or inputs were changed; run tests/qualify/test_admission.py",
        )
    return table


def _figures(call: Rehearsal) -> Iterator[tuple[str, bool, int]]:
    """Yield name, whether it has to pass, and the figure of everything that is tried on one call."""
    expected = call.expected()
    edge = call.style not in ALL_STYLES
    if not edge:
        yield from _fill(call, expected)
    answerings = EDGE_ANSWERINGS if edge else () if faint(call) else ANSWERINGS
    for answering in answerings:
        if answering.applies(call):
            yield answering.name, False, _tried(call, answering, expected)
    call.answer(call.expected(precision=torch.float32))
    yield "reference in float32", True, worst(call.figures(expected))
    if not edge:
        yield "remembered answer", False, _stale(call, expected)
    call.run_stock()
    ranks: Sequence[list[int]] = [call.figures(expected, rank) for rank in range(call.ranks)]
    yield "stock", True, worst([figure for figures in ranks for figure in figures])


def _fill(call: Rehearsal, expected: dict[str, torch.Tensor]) -> Iterator[tuple[str, bool, int]]:
    """Yield the fillings; the output that is judged most kindly decides."""
    source = next(iter(call.inputs.values()))
    for filling in FILLINGS:
        if filling.applies(call):
            for name, output in call.outputs[0].items():
                filling.write(output, source, expected[name])
            figures = call.figures(expected)
            yield filling.name, False, next((one for one in figures if passes(one)), figures[0])


def _tried(call: Rehearsal, answering: Answering, expected: dict[str, torch.Tensor]) -> int:
    call.answer(answering.answer(call))
    return worst(call.figures(expected))


def _stale(call: Rehearsal, expected: dict[str, torch.Tensor]) -> int:
    """Return the figure of this call's answer for the same call after the referee's private perturbation."""
    generator = call.content.generator("perturbation", 1)
    kept = {name: tensor.clone() for name, tensor in call.inputs.items()}
    call.slot.perturb(call.inputs, call.dimensions, Source(call.content, generator))
    call.answer(expected)
    figure = worst(call.figures(call.expected()))
    for name, tensor in kept.items():
        call.inputs[name].copy_(tensor)
    return figure


def table_of(trials: Iterable[Trial]) -> str:
    """Return trials as text: one line for each control, one column for each slot, the worst figure over the rest.

    A figure is in percent of the bound: at most 100 passes. `NaN` stands for an output that is no number, `-` where
    the control is no mistake.
    """
    cells: dict[str, dict[str, Trial]] = {}
    for trial in trials:
        row = cells.setdefault(trial.control, {})
        other = row.get(trial.slot)
        if other is None or _closeness(trial) > _closeness(other):
            row[trial.slot] = trial
    slots = sorted({slot for row in cells.values() for slot in row})
    width = max(map(len, cells), default=0)
    lines = [f"{index:2} {slot}" for index, slot in enumerate(slots, 1)]
    lines.append(" " * width + "".join(f"{index:>9}" for index in range(1, len(slots) + 1)))
    for control, row in cells.items():
        shown = (_cell(row[slot]) if slot in row else "-" for slot in slots)
        lines.append(f"{control:{width}}" + "".join(f"{text:>9}" for text in shown))
    return "\n".join(lines)


def _closeness(trial: Trial) -> int:
    """Order trials of one control so that the one nearest to going wrong is the largest."""
    if trial.wanted:
        return 1 << 62 if trial.figure < 0 else trial.figure
    return -(1 << 62) if trial.figure < 0 else -trial.figure


def _cell(trial: Trial) -> str:
    if trial.figure < 0:
        return "NaN"
    percent = trial.figure // 10_000
    return f"{percent}" if percent < 10**6 else "huge"


