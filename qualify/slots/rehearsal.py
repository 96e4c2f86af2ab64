"""One call of a slot inside this process: our own code and recorded mistakes are judged as an arm's outputs would be.

Invariants
1. Only code of ours runs here: stock forms and `qualify.slots.mistakes`. Foreign code runs in arms and nowhere else.
2. Inputs are drawn, shared among ranks and judged by the code that does so in an attempt.
3. Outputs hold plausible values before anything is written, so that writing nothing is a mistake like any other.
"""

from __future__ import annotations

import math
import runpy
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from qualify.content import Content, Source, Style
from qualify.dtypes import DTYPES
from qualify.group_memory import share
from qualify.slots.base import STOCK_ROOT, Argument, Dimensions, Scalar, Slot, Tensors

GROUP_SIZE = 2  # ranks of a collective, where nothing else is asked for


def small(slot: Slot) -> Dimensions:
    """Return the public shape with the smallest product of extents that tells every mistake; of equals the first."""
    telling = filter(slot.telling, slot.catalog_shapes)
    return min(telling, key=lambda one: math.prod(max(extent, 1) for extent in one.values()))


def content_for(slot: Slot, dimensions: Dimensions, ranks: int) -> Content:
    """Return fixed content that is large enough for one call of `dimensions` on `ranks` ranks."""
    elements = max(math.prod(shape) for shape in slot.shapes(dimensions).values()) * ranks
    return Content(bytes(32), "rehearsal", dtype="float32", elements=elements, words=1)


class Rehearsal:
    """One call of all ranks: inputs and weights as they are drawn, and the outputs of every rank."""

    def __init__(
        self,
        slot: Slot,
        dtype: str,
        style: Style,
        *,
        ranks: int | None = None,
        dimensions: Dimensions | None = None,
        content: Content | None = None,
    ) -> None:
        """`content` has to be large enough for `dimensions`, which are the `small` ones where none are given."""
        self.slot, self.dtype, self.style = slot, dtype, style
        self.ranks = (ranks or GROUP_SIZE) if slot.collective else 1
        self.dimensions = dimensions or small(slot)
        self.content = content or content_for(slot, self.dimensions, self.ranks)
        self._shapes, self._call = slot.shapes(self.dimensions), DTYPES[dtype]
        source = Source(self.content, self.content.generator("inputs", self.ranks, sum(style.name.encode())))
        self.weights = {one.name: self._room(one) for one in slot.weights}
        slot.draw_weights(self.weights, self.dimensions, source)
        self.inputs = {one.name: self._room(one) for one in slot.tensors() if one.role == "input"}
        slot.draw(self.inputs, self.dimensions, style, source)
        self.scalars = {**slot.scalars(self.dimensions), **slot.draw_scalars(self.dimensions, style, source)}
        noise = torch.Generator().manual_seed(3)
        self.outputs = [self._written(noise) for _ in range(self.ranks)]

    def _room(self, one: Argument) -> torch.Tensor:
        shape = self.slot.stacked(one.name, self._shapes[one.name], self.ranks)
        return torch.empty(shape, dtype=one.torch_dtype(self._call))

    def _written(self, noise: torch.Generator) -> dict[str, torch.Tensor]:
        """Return the outputs of one rank, with the pitch they have in an arm and plausible values."""
        outputs = {}
        for one in self.slot.tensors():
            if one.role == "output":
                *rows, width = self._shapes[one.name]
                values = torch.randn(*rows, width + one.pad, generator=noise).to(one.torch_dtype(self._call))
                outputs[one.name] = values[..., :width]
        return outputs

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        """All inputs and weights, as they were drawn."""
        return self.inputs | self.weights

    @property
    def own(self) -> dict[str, torch.Tensor]:
        """What every rank has for itself, with the ranks as first axis."""
        return {name: tensor for name, tensor in self.tensors.items() if name in self.slot.per_rank}

    def expected(
        self,
        tensors: Tensors | None = None,
        scalars: Mapping[str, Scalar] | None = None,
        precision: torch.dtype = torch.float64,
    ) -> dict[str, torch.Tensor]:
        """Return the reference's answer to this call, or to one with some tensors or scalars changed."""
        changed = {name: self._like(name, tensor) for name, tensor in (tensors or {}).items()}
        return self.slot.reference({**self.tensors, **changed}, {**self.scalars, **(scalars or {})}, precision)

    def _like(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self.tensors[name].dtype)

    def answer(self, outputs: Mapping[str, torch.Tensor], rank: int = 0) -> None:
        """Write `outputs` as one rank's answer."""
        for name, value in outputs.items():
            self.outputs[rank][name].copy_(value)

    def run_stock(self) -> None:
        """Run the stock form, its load-time half included, on all ranks at once."""
        stock = runpy.run_path(str(STOCK_ROOT / self.slot.stock[0]))
        groups = Ranks(self.ranks).groups if self.slot.collective else ()
        arguments = []
        for rank in range(self.ranks):
            known: dict[str, Any] = {**share(self.slot, self.inputs, rank), **self.outputs[rank], **self.scalars}
            if self.slot.weights:
                prepare = stock[self.slot.stock_prepare]
                known["prepared"] = prepare(*share(self.slot, self.weights, rank).values())
            if groups:
                known["group"] = groups[rank]
            arguments.append([known[one.name] for one in self.slot.arguments])
        on_every_rank(stock[self.slot.stock[1]], arguments)

    def figures(self, expected: Tensors, rank: int = 0) -> list[int]:
        """Return for each output of one rank what `Comparator.judge` makes of it."""
        slot, comparator = self.slot, self.slot.comparator
        return [
            comparator.judge(
                output, comparator.expect(expected[name], slot.output_bounds(name, self.dtype, self.style))
            )
            for name, output in self.outputs[rank].items()
        ]


def worst(figures: Sequence[int]) -> int:
    """Return the figure that decides: one for something that is no number before the largest."""
    return next((figure for figure in figures if figure < 0), max(figures))


class Ranks:
    """A group of threads of this process that can sum: enough for a stock form, with no socket and no process."""

    def __init__(self, size: int) -> None:
        self.groups = tuple(_Group(self, rank) for rank in range(size))
        self._barrier = threading.Barrier(size)
        self._parts: list[torch.Tensor | None] = [None] * size

    def sum(self, rank: int, tensor: torch.Tensor) -> None:
        """Replace `tensor` of every rank by the sum over the ranks, in the order of the ranks."""
        self._parts[rank] = tensor.clone()
        self._barrier.wait(timeout=60)
        parts = [part for part in self._parts if part is not None]
        tensor.copy_(torch.stack(parts).sum(0))
        self._barrier.wait(timeout=60)

    def give_up(self) -> None:
        """Let ranks that wait for each other fail instead."""
        self._barrier.abort()


class _Group:
    """What `torch.distributed.all_reduce` needs of a group."""

    def __init__(self, ranks: Ranks, rank: int) -> None:
        self._ranks, self._rank = ranks, rank

    def allreduce(self, tensors: list[torch.Tensor], options: object) -> None:
        """Sum in place."""
        del options
        for tensor in tensors:
            self._ranks.sum(self._rank, tensor)

    def give_up(self) -> None:
        """End the wait of the other ranks."""
        self._ranks.give_up()


def on_every_rank(entry: Callable[..., object], arguments: list[list[Any]]) -> None:
    """Call `entry` on all ranks at once, each with its own arguments; the first error is raised again."""
    if len(arguments) == 1:
        entry(*arguments[0])
        return
    errors: list[Exception] = []

    def guarded(rank: int) -> None:
        try:
            entry(*arguments[rank])
        except Exception as error:  # noqa: BLE001 - raised again below, on the thread that asked
            errors.append(error)
            for argument in arguments[rank]:
                if isinstance(argument, _Group):
                    argument.give_up()

    threads = [threading.Thread(target=guarded, args=(rank,)) for rank in range(len(arguments))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
