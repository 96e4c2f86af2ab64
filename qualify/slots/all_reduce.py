"""collective.all_reduce: entry `all_reduce(x, out, group)`.

`x` and `out` have shape (num_tokens, hidden); every rank has its own `x`.
out = sum of x over the ranks, in float32, rounded once to the dtype of the call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch

from qualify.comparison import EXACT, Tolerance
from qualify.content import INTEGERS, Source, Style
from qualify.slots.base import Argument, Dimensions, Scalar, Slot, Tensors

PART_SCALE = 0.1  # of what one rank adds
WHOLE_MAX = 15  # of whole numbers: eight ranks of it are 120, and seven bits hold that


class AllReduce(Slot):
    """A sum over the ranks."""

    id: ClassVar[str] = "collective.all_reduce"
    arguments: ClassVar[tuple[Argument, ...]] = (
        Argument("x", "input"),
        Argument("out", "output"),
        Argument("group", "group"),
    )
    stock: ClassVar[tuple[str, str]] = ("all_reduce.py", "all_reduce")
    dimensions: ClassVar[tuple[str, ...]] = ("num_tokens", "hidden")
    row_inputs: ClassVar[frozenset[str]] = frozenset({"x"})
    per_rank: ClassVar[frozenset[str]] = frozenset({"x"})
    edges: ClassVar[tuple[Style, ...]] = (INTEGERS,)
    catalog_shapes: ClassVar[tuple[Mapping[str, int], ...]] = (
        {"num_tokens": 1, "hidden": 4096},
        {"num_tokens": 8, "hidden": 4096},
        {"num_tokens": 128, "hidden": 7168},
    )

    def shapes(self, dimensions: Dimensions) -> dict[str, tuple[int, ...]]:
        shape = (dimensions["num_tokens"], dimensions["hidden"])
        return {"x": shape, "out": shape}

    def descriptor(self, dimensions: Dimensions) -> dict[str, int | str]:
        return {
            "num_tokens": dimensions["num_tokens"],
            "hidden_dim": dimensions["hidden"],
            "last_dim": dimensions["hidden"],
        }

    def bounds(self, dtype: str, style: Style) -> Tolerance:
        return EXACT if style is INTEGERS else self.tolerance(dtype)

    def draw(self, inputs: Tensors, dimensions: Dimensions, style: Style, source: Source) -> None:  # noqa: ARG002
        for part in inputs["x"]:
            if style is INTEGERS:
                source.integers(part, -WHOLE_MAX, WHOLE_MAX)
            else:
                source.fill(part, style, PART_SCALE)

    def reference(
        self,
        inputs: Tensors,
        scalars: Mapping[str, Scalar],  # noqa: ARG002 - this slot has none
        precision: torch.dtype,
    ) -> dict[str, torch.Tensor]:
        return {"out": inputs["x"].to(precision).sum(0).to(torch.float32)}
