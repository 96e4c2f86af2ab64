"""moe.fused_experts: `prepare(w13, w2)`, then entry `fused_experts(x, topk_ids, topk_weights, prepared, out)`.

`x` and `out` have shape (num_tokens, hidden), `w13` (num_experts, 2 * inter, hidden) with the gate's rows first, `w2`
(num_experts, hidden, inter), `topk_ids` (num_tokens, topk) int32, `topk_weights` (num_tokens, topk) float32: positive
multipliers, not normalised. out = sum over k of weight_k * ((silu(gate) * up) . w2[expert_k]).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

import torch

from qualify.comparison import Tolerance
from qualify.content import CROWDED, NORMAL, Source, Style
from qualify.slots.base import Argument, Dimensions, Scalar, Slot, Tensors

_X_SCALE, WEIGHT_SCALE = 0.1, 0.05
_ROUTING_LOW, _ROUTING_HIGH = 0.25, 0.75
_CROWD = 3  # tokens that choose the same experts, at least

# Two roundings to the dtype of the call lie between the input and the output, one of them before a long sum, and an
# engine may round what every choice and every rank adds besides. In bfloat16 all of that takes about 0.5 % of a row,
# and weights of eight bits 1 %: the bound of the whole lies between. Single rows may lose more: choices cancel.
MOE_TOLERANCES: Mapping[str, Tolerance] = {
    "bfloat16": Tolerance(0.02, 0.02, 0.02, 0.008, 1e-38, stray=0.03, outlier=4.0, spread=1.0, whole=0.0075),
    "float16": Tolerance(0.01, 0.01, 0.003, 0.0015, 6e-8, stray=0.03, outlier=4.0, spread=1.0),
    "float32": Tolerance(1e-5, 1e-5, 1e-5, 1e-5, 1e-38, stray=0.03, outlier=8.0, spread=1.0),
}


class FusedExperts(Slot):
    """A mixture of experts: two matrix products around a gated activation, for the experts each token chose."""

    id: ClassVar[str] = "moe.fused_experts"
    arguments: ClassVar[tuple[Argument, ...]] = (
        Argument("x", "input"),
        Argument("topk_ids", "input", "int32"),
        Argument("topk_weights", "input", "float32"),
        Argument("prepared", "prepared"),
        Argument("out", "output"),
    )
    weights: ClassVar[tuple[Argument, ...]] = (Argument("w13", "weight"), Argument("w2", "weight"))
    weight_dimensions: ClassVar[tuple[str, ...]] = ("num_experts", "hidden", "inter")
    stock: ClassVar[tuple[str, str]] = ("fused_experts.py", "fused_experts")
    stock_prepare: ClassVar[str] = "prepare"
    dimensions: ClassVar[tuple[str, ...]] = ("num_tokens", "num_experts", "hidden", "inter", "topk")
    row_inputs: ClassVar[frozenset[str]] = frozenset({"x", "topk_ids", "topk_weights"})
    edges: ClassVar[tuple[Style, ...]] = (CROWDED,)
    catalog_shapes: ClassVar[tuple[Mapping[str, int], ...]] = (
        {"num_tokens": 4, "num_experts": 8, "hidden": 256, "inter": 128, "topk": 2},
        {"num_tokens": 16, "num_experts": 32, "hidden": 512, "inter": 256, "topk": 4},
        {"num_tokens": 8, "num_experts": 4, "hidden": 384, "inter": 192, "topk": 1},
        {"num_tokens": 33, "num_experts": 16, "hidden": 320, "inter": 160, "topk": 4},
    )

    def shapes(self, dimensions: Dimensions) -> dict[str, tuple[int, ...]]:
        tokens, hidden, inter = dimensions["num_tokens"], dimensions["hidden"], dimensions["inter"]
        experts, routes = dimensions["num_experts"], (tokens, dimensions["topk"])
        return {
            "x": (tokens, hidden),
            "topk_ids": routes,
            "topk_weights": routes,
            "w13": (experts, 2 * inter, hidden),
            "w2": (experts, hidden, inter),
            "out": (tokens, hidden),
        }

    def legal(self, dimensions: Dimensions) -> dict[str, int]:
        """Return `dimensions` with at most as many choices as experts: a token chooses each once."""
        legal = super().legal(dimensions)
        return {**legal, "topk": min(legal["topk"], legal["num_experts"])}

    def shown(self, dimensions: Dimensions, style: Style) -> dict[str, int]:
        """Return extents with so many tokens that one expert can have too many of them."""
        return {**dimensions, "num_tokens": max(_CROWD if style is CROWDED else 1, dimensions["num_tokens"])}

    def descriptor(self, dimensions: Dimensions) -> dict[str, int | str]:
        return {
            "num_tokens": dimensions["num_tokens"],
            "hidden_dim": dimensions["hidden"],
            "last_dim": dimensions["hidden"],
            "intermediate_dim": dimensions["inter"],
            "num_experts": dimensions["num_experts"],
            "top_k": dimensions["topk"],
        }

    def tolerance(self, dtype: str) -> Tolerance:
        return MOE_TOLERANCES[dtype]

    def draw(self, inputs: Tensors, dimensions: Dimensions, style: Style, source: Source) -> None:
        source.fill(inputs["x"], style, _X_SCALE)
        source.choices(inputs["topk_ids"], dimensions["num_experts"])
        if style is CROWDED:
            inputs["topk_ids"][1:] = inputs["topk_ids"][:1].clone()
        source.uniform(inputs["topk_weights"], _ROUTING_LOW, _ROUTING_HIGH)

    def draw_weights(self, weights: Tensors, dimensions: Dimensions, source: Source) -> None:  # noqa: ARG002
        for tensor in weights.values():
            source.fill(tensor, NORMAL, WEIGHT_SCALE)

    def perturb(self, inputs: Tensors, dimensions: Dimensions, source: Source) -> None:
        source.perturb(inputs["x"])
        row = slice(source.index(dimensions["num_tokens"]), None)
        source.choices(inputs["topk_ids"][row], dimensions["num_experts"])
        source.uniform(inputs["topk_weights"][row], _ROUTING_LOW, _ROUTING_HIGH)

    def reference(
        self,
        inputs: Tensors,
        scalars: Mapping[str, Scalar],  # noqa: ARG002 - this slot has none
        precision: torch.dtype,
    ) -> dict[str, torch.Tensor]:
        result = mixture(inputs, inputs["w13"], inputs["w2"], precision, self.activation)
        return {"out": result.to(torch.float32)}

    def activation(self, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        """Return what stands between the two products of an expert."""
        return gate / (1.0 + torch.exp(-gate)) * up


Activation = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def mixture(
    inputs: Tensors, w13: torch.Tensor, w2: torch.Tensor, precision: torch.dtype, activation: Activation
) -> torch.Tensor:
    """Return what the experts of one set of weights make of `inputs`, in `precision`."""
    x, weights, inter = inputs["x"].to(precision), inputs["topk_weights"].to(precision), w2.shape[-1]
    result = torch.zeros(inputs["x"].shape, dtype=precision)
    for expert in sorted(set(inputs["topk_ids"].flatten().tolist())):
        chosen = inputs["topk_ids"] == expert
        rows = chosen.any(dim=-1)
        share = torch.where(chosen, weights, 0.0).sum(dim=-1, keepdim=True)[rows]
        both = x[rows] @ w13[expert].to(precision).T
        activated = activation(both[:, :inter], both[:, inter:])
        result[rows] += share * (activated @ w2[expert].to(precision).T)
    return result
