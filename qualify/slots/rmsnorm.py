"""norm.rmsnorm: entry `rmsnorm(x, weight, out, eps)`.

`x` and `out` have shape (num_tokens, hidden_dim), `weight` (hidden_dim,).
out = x * rsqrt(mean(x^2, last axis) + eps) * weight, rounded once to the dtype of the call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import torch

from qualify.comparison import Tolerance
from qualify.content import DENORMAL, NORMAL, SCALARS, Source, Style
from qualify.slots.base import Argument, Dimensions, Scalar, Slot, Tensors

EPSILON = 1e-6
_EPSILONS = (2e-5, 2e-4)  # what no model has
FAINT = 3e-3  # of values whose squares are about as large
_VANISHED = 1e-30  # a kernel may take denormal inputs for zero; one that forgets epsilon gives values about 1


class RmsNorm(Slot):
    """Root-mean-square normalisation with an affine weight."""

    id: ClassVar[str] = "norm.rmsnorm"
    arguments: ClassVar[tuple[Argument, ...]] = (
        Argument("x", "input"),
        Argument("weight", "input"),
        Argument("out", "output"),
        Argument("eps", "scalar"),
    )
    stock: ClassVar[tuple[str, str]] = ("rmsnorm.py", "rmsnorm")
    dimensions: ClassVar[tuple[str, ...]] = ("num_tokens", "hidden_dim")
    row_inputs: ClassVar[frozenset[str]] = frozenset({"x"})
    free_scalars: ClassVar[tuple[str, ...]] = ("eps",)
    edges: ClassVar[tuple[Style, ...]] = (DENORMAL, SCALARS)
    catalog_shapes: ClassVar[tuple[Mapping[str, int], ...]] = (
        {"num_tokens": 1, "hidden_dim": 2880},
        {"num_tokens": 8, "hidden_dim": 2880},
        {"num_tokens": 128, "hidden_dim": 2880},
        {"num_tokens": 333, "hidden_dim": 1536},
    )

    def shapes(self, dimensions: Dimensions) -> dict[str, tuple[int, ...]]:
        tokens, width = dimensions["num_tokens"], dimensions["hidden_dim"]
        return {"x": (tokens, width), "weight": (width,), "out": (tokens, width)}

    def descriptor(self, dimensions: Dimensions) -> dict[str, int | str]:
        return {
            "num_tokens": dimensions["num_tokens"],
            "last_dim": dimensions["hidden_dim"],
            "hidden_dim": dimensions["hidden_dim"],
        }

    def scalars(self, dimensions: Dimensions) -> dict[str, Scalar]:  # noqa: ARG002 - the same for every call
        return {"eps": EPSILON}

    def draw_scalars(self, dimensions: Dimensions, style: Style, source: Source) -> dict[str, Scalar]:  # noqa: ARG002
        return drawn_epsilon(style, source)

    def bounds(self, dtype: str, style: Style) -> Tolerance:
        return vanishing(self.tolerance(dtype), style)

    def draw(self, inputs: Tensors, dimensions: Dimensions, style: Style, source: Source) -> None:  # noqa: ARG002
        source.fill(inputs["x"], style, FAINT if style is SCALARS else 1.0)
        source.fill(inputs["weight"], NORMAL if style is DENORMAL else style)

    def reference(
        self, inputs: Tensors, scalars: Mapping[str, Scalar], precision: torch.dtype
    ) -> dict[str, torch.Tensor]:
        x = inputs["x"].to(precision)
        mean_square = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_().div_(x.shape[-1])
        result = x / mean_square.add_(scalars["eps"]).sqrt_()
        return {"out": result.mul_(inputs["weight"]).to(torch.float32)}


def drawn_epsilon(style: Style, source: Source) -> dict[str, Scalar]:
    """Return the `eps` of a norm whose inputs are `FAINT` in style `SCALARS`, so that it matters."""
    return {"eps": source.scalar(*_EPSILONS)} if style is SCALARS else {}


def vanishing(tolerance: Tolerance, style: Style) -> Tolerance:
    """Return the bounds of a norm, which for denormal inputs do not ask for what is left of them."""
    return replace(tolerance, row_floor=_VANISHED) if style is DENORMAL else tolerance
