"""collective.ar_residual_rmsnorm: entry `ar_residual_rmsnorm(x, residual, weight, eps, out_norm, out_residual, group)`.

`x`, `residual` and both outputs have shape (num_tokens, hidden), `weight` (hidden,); every rank has its own `x`.
out_residual = sum of x over the ranks + residual; out_norm = rmsnorm(that sum, eps) * weight. Both are rounded once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import torch

from qualify.comparison import EXACT, STANDARD_TOLERANCES, Tolerance
from qualify.content import DENORMAL, INTEGERS, SCALARS, Source, Style
from qualify.slots.all_reduce import PART_SCALE, WHOLE_MAX
from qualify.slots.base import Argument, Dimensions, Scalar, Slot, Tensors
from qualify.slots.rmsnorm import EPSILON, FAINT, drawn_epsilon, vanishing

WEIGHT_LOW, WEIGHT_HIGH = 0.75, 1.25
# Engines send parts in the dtype of the call. Where parts and residual cancel, what that rounds goes with their size,
# and with the row's, but not with what is left in the element.
SUM_TOLERANCES: Mapping[str, Tolerance] = {
    dtype: replace(tolerance, spread=1.0) for dtype, tolerance in STANDARD_TOLERANCES.items()
}
_RESIDUAL_MAX = 100  # whole, with what eight ranks add: 220, and eight bits hold that


class ArResidualRmsNorm(Slot):
    """A sum over the ranks, added to a residual and normalised."""

    id: ClassVar[str] = "collective.ar_residual_rmsnorm"
    arguments: ClassVar[tuple[Argument, ...]] = (
        Argument("x", "input"),
        Argument("residual", "input"),
        Argument("weight", "input"),
        Argument("eps", "scalar"),
        Argument("out_norm", "output"),
        Argument("out_residual", "output"),
        Argument("group", "group"),
    )
    stock: ClassVar[tuple[str, str]] = ("ar_residual_rmsnorm.py", "ar_residual_rmsnorm")
    dimensions: ClassVar[tuple[str, ...]] = ("num_tokens", "hidden")
    row_inputs: ClassVar[frozenset[str]] = frozenset({"x", "residual"})
    per_rank: ClassVar[frozenset[str]] = frozenset({"x"})
    free_scalars: ClassVar[tuple[str, ...]] = ("eps",)
    edges: ClassVar[tuple[Style, ...]] = (DENORMAL, INTEGERS, SCALARS)
    catalog_shapes: ClassVar[tuple[Mapping[str, int], ...]] = (
        {"num_tokens": 4, "hidden": 4096},
        {"num_tokens": 8, "hidden": 6144},
        {"num_tokens": 32, "hidden": 6144},
        {"num_tokens": 64, "hidden": 6144},
        {"num_tokens": 256, "hidden": 6144},
    )

    def shapes(self, dimensions: Dimensions) -> dict[str, tuple[int, ...]]:
        shape = (dimensions["num_tokens"], dimensions["hidden"])
        return {"x": shape, "residual": shape, "weight": shape[1:], "out_norm": shape, "out_residual": shape}

    def descriptor(self, dimensions: Dimensions) -> dict[str, int | str]:
        return {
            "num_tokens": dimensions["num_tokens"],
            "hidden_dim": dimensions["hidden"],
            "last_dim": dimensions["hidden"],
        }

    def scalars(self, dimensions: Dimensions) -> dict[str, Scalar]:  # noqa: ARG002 - the same for every call
        return {"eps": EPSILON}

    def draw_scalars(self, dimensions: Dimensions, style: Style, source: Source) -> dict[str, Scalar]:  # noqa: ARG002
        return drawn_epsilon(style, source)

    def tolerance(self, dtype: str) -> Tolerance:
        return SUM_TOLERANCES[dtype]

    def bounds(self, dtype: str, style: Style) -> Tolerance:
        return vanishing(self.tolerance(dtype), style)

    def output_bounds(self, output: str, dtype: str, style: Style) -> Tolerance:
        exact = style is INTEGERS and output == "out_residual"  # a sum of whole numbers; its norm is rounded
        return EXACT if exact else self.bounds(dtype, style)

    def draw(self, inputs: Tensors, dimensions: Dimensions, style: Style, source: Source) -> None:  # noqa: ARG002
        source.uniform(inputs["weight"], WEIGHT_LOW, WEIGHT_HIGH)
        if style is INTEGERS:
            for part in inputs["x"]:
                source.integers(part, -WHOLE_MAX, WHOLE_MAX)
            source.integers(inputs["residual"], -_RESIDUAL_MAX, _RESIDUAL_MAX)
            return
        scale = FAINT if style is SCALARS else 1.0
        for part in inputs["x"]:
            source.fill(part, style, PART_SCALE * scale)
        source.fill(inputs["residual"], style, scale)

    def reference(
        self, inputs: Tensors, scalars: Mapping[str, Scalar], precision: torch.dtype
    ) -> dict[str, torch.Tensor]:
        total = inputs["x"].to(precision).sum(0).add_(inputs["residual"])
        return normalised(total, inputs["weight"], float(scalars["eps"]))


def normalised(total: torch.Tensor, weight: torch.Tensor, eps: float) -> dict[str, torch.Tensor]:
    """Return both outputs from the sum of everything, (rows, hidden)."""
    mean_square = torch.linalg.vector_norm(total, dim=-1, keepdim=True).square_().div_(total.shape[-1])
    norm = (total / mean_square.add_(eps).sqrt_()).mul_(weight)
    return {"out_norm": norm.to(torch.float32), "out_residual": total.to(torch.float32)}
