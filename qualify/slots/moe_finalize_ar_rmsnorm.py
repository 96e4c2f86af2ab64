"""collective.moe_finalize_ar_rmsnorm: what follows the last product of a mixture of experts, with a sum over ranks.

Entry `moe_finalize_ar_rmsnorm(gemm_out, row_map, scales, residual, weight, eps, out_norm, out_residual, group)`.
`gemm_out` (exp_tokens * topk, hidden), of every rank its own; `row_map` (exp_tokens * topk,) int32, choice k of token t
at t + k * exp_tokens; `scales` (exp_tokens, topk) float32; `residual` and both outputs (num_tokens, hidden), where
num_tokens <= exp_tokens; `weight` (hidden,).
acc[t] = sum over k of scales[t, k] * gemm_out[row_map[t + k * exp_tokens]];
out_residual = sum of acc over the ranks + residual; out_norm = rmsnorm(that sum, eps) * weight. Both are rounded once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch

from qualify.comparison import Tolerance
from qualify.content import PADDED, SCALARS, Source, Style
from qualify.slots.all_reduce import PART_SCALE
from qualify.slots.ar_residual_rmsnorm import SUM_TOLERANCES, WEIGHT_HIGH, WEIGHT_LOW, normalised
from qualify.slots.base import Argument, Dimensions, Scalar, Slot, Tensors
from qualify.slots.rmsnorm import EPSILON, FAINT, drawn_epsilon

_SCALE_LOW, _SCALE_HIGH = 0.25, 0.75
_PADDING_PART = 8  # of the tokens, where a shape without padding is given some
_POISON = 3e4  # in rows that belong to no token


class MoeFinalizeArRmsNorm(Slot):
    """Rows of experts gathered and weighted, summed over the ranks, added to a residual and normalised."""

    id: ClassVar[str] = "collective.moe_finalize_ar_rmsnorm"
    arguments: ClassVar[tuple[Argument, ...]] = (
        Argument("gemm_out", "input"),
        Argument("row_map", "input", "int32"),
        Argument("scales", "input", "float32"),
        Argument("residual", "input"),
        Argument("weight", "input"),
        Argument("eps", "scalar"),
        Argument("out_norm", "output"),
        Argument("out_residual", "output"),
        Argument("group", "group"),
    )
    stock: ClassVar[tuple[str, str]] = ("moe_finalize_ar_rmsnorm.py", "moe_finalize_ar_rmsnorm")
    dimensions: ClassVar[tuple[str, ...]] = ("num_tokens", "exp_tokens", "topk", "hidden")
    per_rank: ClassVar[frozenset[str]] = frozenset({"gemm_out"})
    free_scalars: ClassVar[tuple[str, ...]] = ("eps",)
    edges: ClassVar[tuple[Style, ...]] = (PADDED, SCALARS)
    catalog_shapes: ClassVar[tuple[Mapping[str, int], ...]] = (
        {"num_tokens": 8, "exp_tokens": 16, "topk": 5, "hidden": 4096},
        {"num_tokens": 64, "exp_tokens": 64, "topk": 5, "hidden": 6144},
        {"num_tokens": 224, "exp_tokens": 256, "topk": 5, "hidden": 6144},
    )

    def shapes(self, dimensions: Dimensions) -> dict[str, tuple[int, ...]]:
        padded, topk, hidden = dimensions["exp_tokens"], dimensions["topk"], dimensions["hidden"]
        shape = (dimensions["num_tokens"], hidden)
        return {
            "gemm_out": (padded * topk, hidden),
            "row_map": (padded * topk,),
            "scales": (padded, topk),
            "residual": shape,
            "weight": (hidden,),
            "out_norm": shape,
            "out_residual": shape,
        }

    def legal(self, dimensions: Dimensions) -> dict[str, int]:
        legal = super().legal(dimensions)
        return {**legal, "exp_tokens": max(legal["exp_tokens"], legal["num_tokens"])}

    def descriptor(self, dimensions: Dimensions) -> dict[str, int | str]:
        return {
            "num_tokens": dimensions["num_tokens"],
            "exp_tokens": dimensions["exp_tokens"],
            "top_k": dimensions["topk"],
            "hidden_dim": dimensions["hidden"],
            "last_dim": dimensions["hidden"],
        }

    def scalars(self, dimensions: Dimensions) -> dict[str, Scalar]:  # noqa: ARG002 - the same for every call
        return {"eps": EPSILON}

    def draw_scalars(self, dimensions: Dimensions, style: Style, source: Source) -> dict[str, Scalar]:  # noqa: ARG002
        return drawn_epsilon(style, source)

    def shown(self, dimensions: Dimensions, style: Style) -> dict[str, int]:
        """Return extents with padding, where that is what is asked for."""
        tokens, padded = dimensions["num_tokens"], dimensions["exp_tokens"]
        if style is PADDED and padded <= tokens:
            padded = tokens + max(1, tokens // _PADDING_PART)
        return {**dimensions, "exp_tokens": padded}

    def tolerance(self, dtype: str) -> Tolerance:
        return SUM_TOLERANCES[dtype]

    def draw(self, inputs: Tensors, dimensions: Dimensions, style: Style, source: Source) -> None:
        scale = FAINT if style is SCALARS else 1.0
        for part in inputs["gemm_out"]:
            source.fill(part, style, PART_SCALE * scale)
        source.permutation(inputs["row_map"])
        source.uniform(inputs["scales"], _SCALE_LOW, _SCALE_HIGH)
        source.fill(inputs["residual"], style, scale)
        source.uniform(inputs["weight"], WEIGHT_LOW, WEIGHT_HIGH)
        if style is PADDED:
            routes = inputs["row_map"].view(dimensions["topk"], dimensions["exp_tokens"])
            inputs["gemm_out"][:, routes[:, dimensions["num_tokens"] :].flatten().long()] = _POISON

    def perturb(self, inputs: Tensors, dimensions: Dimensions, source: Source) -> None:  # noqa: ARG002
        for name in ("gemm_out", "residual"):
            source.perturb(inputs[name])
        source.permutation(inputs["row_map"])

    def reference(
        self, inputs: Tensors, scalars: Mapping[str, Scalar], precision: torch.dtype
    ) -> dict[str, torch.Tensor]:
        tokens = inputs["residual"].shape[0]
        padded, topk = inputs["scales"].shape
        total = inputs["residual"].to(precision)
        if total is inputs["residual"]:
            total = total.clone()
        for choice in range(topk):
            rows = inputs["row_map"][choice * padded : choice * padded + tokens].long()
            part = inputs["gemm_out"][:, rows].to(precision).sum(0)
            total.addcmul_(part, inputs["scales"][:tokens, choice, None].to(precision))
        return normalised(total, inputs["weight"], float(scalars["eps"]))
