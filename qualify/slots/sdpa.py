"""attention.sdpa: entry `attention(q, k, v, out, sm_scale, causal)`.

`q` and `out` have shape (num_tokens, num_q_heads, head_dim), `k` and `v` (num_tokens, num_kv_heads, head_dim); query
head h reads key-value head h // (num_q_heads // num_kv_heads).
out = softmax(q . k * sm_scale) . v, where with `causal` token t sees the tokens s <= t.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch

from qualify.comparison import Tolerance
from qualify.content import LARGE, SCALARS, Source, Style
from qualify.slots.attention import (
    ATTENTION_TOLERANCES,
    attend,
    draw_queries_and_keys,
    drawn_scale,
    whole_groups,
)
from qualify.slots.base import Argument, Dimensions, Scalar, Slot, Tensors


class Sdpa(Slot):
    """Scaled dot-product attention with grouped heads."""

    id: ClassVar[str] = "attention.sdpa"
    arguments: ClassVar[tuple[Argument, ...]] = (
        Argument("q", "input"),
        Argument("k", "input"),
        Argument("v", "input"),
        Argument("out", "output"),
        Argument("sm_scale", "scalar"),
        Argument("causal", "scalar"),
    )
    stock: ClassVar[tuple[str, str]] = ("attention.py", "attention")
    dimensions: ClassVar[tuple[str, ...]] = ("num_tokens", "num_q_heads", "num_kv_heads", "head_dim", "causal")
    flags: ClassVar[frozenset[str]] = frozenset({"causal"})
    free_scalars: ClassVar[tuple[str, ...]] = ("sm_scale",)
    edges: ClassVar[tuple[Style, ...]] = (LARGE, SCALARS)
    catalog_shapes: ClassVar[tuple[Mapping[str, int], ...]] = (
        {"num_tokens": 1, "num_q_heads": 8, "num_kv_heads": 8, "head_dim": 64, "causal": 1},
        {"num_tokens": 16, "num_q_heads": 8, "num_kv_heads": 2, "head_dim": 128, "causal": 1},
        {"num_tokens": 64, "num_q_heads": 16, "num_kv_heads": 16, "head_dim": 128, "causal": 1},
        {"num_tokens": 128, "num_q_heads": 8, "num_kv_heads": 1, "head_dim": 128, "causal": 1},
        # No domain can rule this out, so every kernel has to know it.
        {"num_tokens": 24, "num_q_heads": 8, "num_kv_heads": 2, "head_dim": 64, "causal": 0},
    )

    def shapes(self, dimensions: Dimensions) -> dict[str, tuple[int, ...]]:
        tokens, head = dimensions["num_tokens"], dimensions["head_dim"]
        queries, keys = (tokens, dimensions["num_q_heads"], head), (tokens, dimensions["num_kv_heads"], head)
        return {"q": queries, "k": keys, "v": keys, "out": queries}

    def legal(self, dimensions: Dimensions) -> dict[str, int]:
        return whole_groups(super().legal(dimensions))

    def shown(self, dimensions: Dimensions, style: Style) -> dict[str, int]:
        """Return extents with two tokens at least where the scale matters: a softmax over one key knows none."""
        least = 2 if style is SCALARS else 1
        return {**dimensions, "num_tokens": max(least, dimensions["num_tokens"])}

    def telling(self, dimensions: Dimensions) -> bool:
        """Say whether more than one token sees a mask."""
        return super().telling(dimensions) and bool(dimensions["causal"])

    def descriptor(self, dimensions: Dimensions) -> dict[str, int | str]:
        return {
            "num_tokens": dimensions["num_tokens"],
            "q_len": dimensions["num_tokens"],
            "kv_len": dimensions["num_tokens"],
            "num_q_heads": dimensions["num_q_heads"],
            "num_kv_heads": dimensions["num_kv_heads"],
            "head_dim": dimensions["head_dim"],
            "last_dim": dimensions["head_dim"],
            "phase": "prefill",
        }

    def scalars(self, dimensions: Dimensions) -> dict[str, Scalar]:
        return {"sm_scale": dimensions["head_dim"] ** -0.5, "causal": bool(dimensions["causal"])}

    def draw_scalars(self, dimensions: Dimensions, style: Style, source: Source) -> dict[str, Scalar]:
        return {**drawn_scale(dimensions["head_dim"], style, source)}

    def tolerance(self, dtype: str) -> Tolerance:
        return ATTENTION_TOLERANCES[dtype]

    def draw(self, inputs: Tensors, dimensions: Dimensions, style: Style, source: Source) -> None:  # noqa: ARG002
        draw_queries_and_keys(inputs["q"], inputs["k"], style, source)
        source.fill(inputs["v"], style)

    def reference(
        self, inputs: Tensors, scalars: Mapping[str, Scalar], precision: torch.dtype
    ) -> dict[str, torch.Tensor]:
        tokens, keys = inputs["q"].shape[0], inputs["k"].shape[0]
        visible = torch.ones(tokens, keys, dtype=torch.bool)
        if scalars["causal"]:
            visible = visible.tril(keys - tokens)
        query, key, value = (inputs[name].to(precision) for name in ("q", "k", "v"))
        return {"out": attend(query, key, value, visible, scalars["sm_scale"])}
