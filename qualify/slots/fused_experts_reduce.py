"""moe.fused_experts_reduce: `prepare(w13, w2)`, then `fused_experts_reduce(x, ids, weights, prepared, out, group)`.

As `moe.fused_experts`, but out is the sum of what the ranks have for their own weights, rounded once. Tokens and
routing are the same on every rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch

from qualify.content import NORMAL, Source
from qualify.slots.base import Argument, Dimensions, Scalar, Tensors
from qualify.slots.fused_experts import WEIGHT_SCALE, FusedExperts, mixture


class FusedExpertsReduce(FusedExperts):
    """A mixture of experts whose weights are spread over the ranks."""

    id: ClassVar[str] = "moe.fused_experts_reduce"
    arguments: ClassVar[tuple[Argument, ...]] = (*FusedExperts.arguments, Argument("group", "group"))
    stock: ClassVar[tuple[str, str]] = ("fused_experts_reduce.py", "fused_experts_reduce")
    per_rank: ClassVar[frozenset[str]] = frozenset({"w13", "w2"})
    catalog_shapes: ClassVar[tuple[Mapping[str, int], ...]] = FusedExperts.catalog_shapes[:3]

    def draw_weights(self, weights: Tensors, dimensions: Dimensions, source: Source) -> None:  # noqa: ARG002
        for tensor in weights.values():
            for part in tensor:
                source.fill(part, NORMAL, WEIGHT_SCALE)

    def reference(
        self,
        inputs: Tensors,
        scalars: Mapping[str, Scalar],  # noqa: ARG002 - this slot has none
        precision: torch.dtype,
    ) -> dict[str, torch.Tensor]:
        each = zip(inputs["w13"], inputs["w2"], strict=True)
        parts = [mixture(inputs, *own, precision, self.activation) for own in each]
        return {"out": torch.stack(parts).sum(0).to(torch.float32)}
