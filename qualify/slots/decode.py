"""attention.decode: entry `attention_decode(q, k, v, seq_lens, sm_scale, out)`.

`q` and `out` have shape (batch, num_q_heads, head_dim), `k` and `v` (batch, ctx, num_kv_heads, head_dim), `seq_lens`
(batch,) int32. The query of sequence i sees its first seq_lens[i] positions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch

from qualify.comparison import Tolerance
from qualify.content import LARGE, RAGGED, SCALARS, Source, Style
from qualify.slots.attention import (
    ATTENTION_TOLERANCES,
    attend,
    draw_queries_and_keys,
    drawn_scale,
    whole_groups,
)
from qualify.slots.base import Argument, Dimensions, Scalar, Slot, Tensors

_BAIT = 3e4  # in keys and values behind the end of a sequence


class Decode(Slot):
    """One new token per sequence against a cache of ragged length."""

    id: ClassVar[str] = "attention.decode"
    arguments: ClassVar[tuple[Argument, ...]] = (
        Argument("q", "input"),
        Argument("k", "input"),
        Argument("v", "input"),
        Argument("seq_lens", "input", "int32"),
        Argument("sm_scale", "scalar"),
        Argument("out", "output"),
    )
    stock: ClassVar[tuple[str, str]] = ("attention_decode.py", "attention_decode")
    dimensions: ClassVar[tuple[str, ...]] = ("batch", "num_q_heads", "num_kv_heads", "head_dim", "ctx")
    count_dimensions: ClassVar[tuple[str, ...]] = ("batch", "ctx")
    row_inputs: ClassVar[frozenset[str]] = frozenset({"q", "k", "v", "seq_lens"})
    free_scalars: ClassVar[tuple[str, ...]] = ("sm_scale",)
    edges: ClassVar[tuple[Style, ...]] = (LARGE, RAGGED, SCALARS)
    catalog_shapes: ClassVar[tuple[Mapping[str, int], ...]] = (
        {"batch": 4, "num_q_heads": 8, "num_kv_heads": 8, "head_dim": 64, "ctx": 16},
        {"batch": 2, "num_q_heads": 8, "num_kv_heads": 2, "head_dim": 128, "ctx": 32},
        {"batch": 8, "num_q_heads": 16, "num_kv_heads": 16, "head_dim": 128, "ctx": 64},
        {"batch": 3, "num_q_heads": 8, "num_kv_heads": 1, "head_dim": 128, "ctx": 48},
    )

    def shapes(self, dimensions: Dimensions) -> dict[str, tuple[int, ...]]:
        batch, head = dimensions["batch"], dimensions["head_dim"]
        queries = (batch, dimensions["num_q_heads"], head)
        cache = (batch, dimensions["ctx"], dimensions["num_kv_heads"], head)
        return {"q": queries, "k": cache, "v": cache, "seq_lens": (batch,), "out": queries}

    def legal(self, dimensions: Dimensions) -> dict[str, int]:
        return whole_groups(super().legal(dimensions))

    def shown(self, dimensions: Dimensions, style: Style) -> dict[str, int]:
        """Return extents with a second sequence, which may be short, or with two keys, of which a scale tells."""
        batch, context = (2 if style is RAGGED else 1), (2 if style in (RAGGED, SCALARS) else 1)
        return {**dimensions, "batch": max(batch, dimensions["batch"]), "ctx": max(context, dimensions["ctx"])}

    def descriptor(self, dimensions: Dimensions) -> dict[str, int | str]:
        return {
            "num_tokens": dimensions["batch"],
            "batch_size": dimensions["batch"],
            "q_len": 1,
            "kv_len": dimensions["ctx"],
            "num_q_heads": dimensions["num_q_heads"],
            "num_kv_heads": dimensions["num_kv_heads"],
            "head_dim": dimensions["head_dim"],
            "last_dim": dimensions["head_dim"],
            "phase": "decode",
        }

    def scalars(self, dimensions: Dimensions) -> dict[str, Scalar]:
        return {"sm_scale": dimensions["head_dim"] ** -0.5}

    def draw_scalars(self, dimensions: Dimensions, style: Style, source: Source) -> dict[str, Scalar]:
        return {**drawn_scale(dimensions["head_dim"], style, source)}

    def tolerance(self, dtype: str) -> Tolerance:
        return ATTENTION_TOLERANCES[dtype]

    def draw(self, inputs: Tensors, dimensions: Dimensions, style: Style, source: Source) -> None:
        draw_queries_and_keys(inputs["q"], inputs["k"], style, source)
        source.fill(inputs["v"], style)
        source.integers(inputs["seq_lens"], 1, dimensions["ctx"])
        inputs["seq_lens"][0] = dimensions["ctx"]
        if style is RAGGED:
            inputs["seq_lens"][1:] = 1
            inputs["k"][1:, 1:] = _BAIT
            inputs["v"][1:, 1:] = _BAIT

    def reference(
        self, inputs: Tensors, scalars: Mapping[str, Scalar], precision: torch.dtype
    ) -> dict[str, torch.Tensor]:
        rows = []
        for row, length in enumerate(inputs["seq_lens"].tolist()):
            query = inputs["q"][row : row + 1].to(precision)
            key, value = (inputs[name][row, :length].to(precision) for name in ("k", "v"))
            rows.append(attend(query, key, value, torch.ones(1, length, dtype=torch.bool), scalars["sm_scale"]))
        return {"out": torch.cat(rows)}
