"""activation.silu_and_mul: entry `silu_and_mul(x, out)`.

`x` has shape (num_tokens, 2 * d), `out` (num_tokens, d). out = silu(gate) * up with gate the first half of the last
axis; silu is evaluated in float32 or wider and both factors are rounded to the dtype of the call at most once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch

from qualify.comparison import EXACT, Tolerance
from qualify.content import INTEGERS, Source, Style
from qualify.slots.base import Argument, Dimensions, Scalar, Slot, Tensors

_GATE_STEP = 32  # silu of it is itself in every dtype
_UP_MAX = 255  # eight bits, and so is the product


class SiluAndMul(Slot):
    """The gated activation of a feed-forward layer."""

    id: ClassVar[str] = "activation.silu_and_mul"
    arguments: ClassVar[tuple[Argument, ...]] = (Argument("x", "input"), Argument("out", "output"))
    stock: ClassVar[tuple[str, str]] = ("silu_and_mul.py", "silu_and_mul")
    dimensions: ClassVar[tuple[str, ...]] = ("num_tokens", "d")
    row_inputs: ClassVar[frozenset[str]] = frozenset({"x"})
    edges: ClassVar[tuple[Style, ...]] = (INTEGERS,)
    catalog_shapes: ClassVar[tuple[Mapping[str, int], ...]] = (
        {"num_tokens": 1, "d": 1024},
        {"num_tokens": 8, "d": 1024},
        {"num_tokens": 128, "d": 4096},
        {"num_tokens": 333, "d": 2880},
    )

    def shapes(self, dimensions: Dimensions) -> dict[str, tuple[int, ...]]:
        tokens, width = dimensions["num_tokens"], dimensions["d"]
        return {"x": (tokens, 2 * width), "out": (tokens, width)}

    def descriptor(self, dimensions: Dimensions) -> dict[str, int | str]:
        return {
            "num_tokens": dimensions["num_tokens"],
            "last_dim": 2 * dimensions["d"],
            "intermediate_dim": dimensions["d"],
        }

    def bounds(self, dtype: str, style: Style) -> Tolerance:
        return EXACT if style is INTEGERS else self.tolerance(dtype)

    def draw(self, inputs: Tensors, dimensions: Dimensions, style: Style, source: Source) -> None:
        x, width = inputs["x"], dimensions["d"]
        if style is INTEGERS:
            source.integers(x[:, :width], 0, 1)
            x[:, :width] *= _GATE_STEP
            source.integers(x[:, width:], -_UP_MAX, _UP_MAX)
        else:
            source.fill(x, style)

    def reference(
        self,
        inputs: Tensors,
        scalars: Mapping[str, Scalar],  # noqa: ARG002 - this slot has none
        precision: torch.dtype,
    ) -> dict[str, torch.Tensor]:
        x = inputs["x"]
        width = x.shape[-1] // 2
        gate = x[..., :width].to(precision)
        result = torch.exp(-gate).add_(1.0)
        torch.div(gate, result, out=result)
        return {"out": result.mul_(x[..., width:]).to(torch.float32)}
