"""attention.msa_block_score: entry `msa_block_score(q, index_k, seq_lens, block_size, out)`.

`q` has shape (batch, num_q_heads, head_dim), `index_k` (batch, ctx, 1, head_dim), `seq_lens` (batch,) int32, `out`
(batch, ctx // block_size) in the dtype of the call. score(s) = (sum of the query's heads) . index_k[s], minus infinity
from seq_lens[i] on; out = the largest score of each block.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch

from qualify.comparison import Comparator
from qualify.content import NORMAL, RAGGED, Source, Style
from qualify.ranking import TopK
from qualify.slots.base import Argument, Dimensions, Scalar, Slot, Tensors

_BLOCKS_MIN = 12  # fewer blocks than that could not be ranked meaningfully
_LENGTH_MIN = 8  # blocks
_BAIT = 100.0  # in every feature of the keys behind the end of a sequence


class MsaBlockScore(Slot):
    """Scores by which decoding selects the blocks of the cache it attends to."""

    id: ClassVar[str] = "attention.msa_block_score"
    arguments: ClassVar[tuple[Argument, ...]] = (
        Argument("q", "input"),
        Argument("index_k", "input"),
        Argument("seq_lens", "input", "int32"),
        Argument("block_size", "scalar"),
        Argument("out", "output"),
    )
    stock: ClassVar[tuple[str, str]] = ("msa_block_score.py", "msa_block_score")
    dimensions: ClassVar[tuple[str, ...]] = ("batch", "num_q_heads", "head_dim", "ctx", "block_size")
    count_dimensions: ClassVar[tuple[str, ...]] = ("batch", "ctx")
    row_inputs: ClassVar[frozenset[str]] = frozenset({"q", "index_k", "seq_lens"})
    comparator: ClassVar[Comparator] = TopK(8, mean=0.875, row=0.75)
    edges: ClassVar[tuple[Style, ...]] = (RAGGED,)
    catalog_shapes: ClassVar[tuple[Mapping[str, int], ...]] = (
        {"batch": 4, "num_q_heads": 4, "head_dim": 128, "ctx": 1536, "block_size": 128},
        {"batch": 2, "num_q_heads": 4, "head_dim": 128, "ctx": 2048, "block_size": 128},
        {"batch": 8, "num_q_heads": 8, "head_dim": 64, "ctx": 1536, "block_size": 128},
        {"batch": 3, "num_q_heads": 4, "head_dim": 128, "ctx": 4096, "block_size": 128},
    )

    def shapes(self, dimensions: Dimensions) -> dict[str, tuple[int, ...]]:
        batch, context, head = dimensions["batch"], dimensions["ctx"], dimensions["head_dim"]
        return {
            "q": (batch, dimensions["num_q_heads"], head),
            "index_k": (batch, context, 1, head),
            "seq_lens": (batch,),
            "out": (batch, context // dimensions["block_size"]),
        }

    def legal(self, dimensions: Dimensions) -> dict[str, int]:
        """Return `dimensions` with a context of whole blocks, at least `_BLOCKS_MIN` of them."""
        legal = super().legal(dimensions)
        size = legal["block_size"]
        return {**legal, "ctx": max(_BLOCKS_MIN, legal["ctx"] // size) * size}

    def shown(self, dimensions: Dimensions, style: Style) -> dict[str, int]:
        """Return extents with a second sequence, which may be short."""
        return {**dimensions, "batch": max(2 if style is RAGGED else 1, dimensions["batch"])}

    def descriptor(self, dimensions: Dimensions) -> dict[str, int | str]:
        return {
            "num_tokens": dimensions["batch"],
            "batch_size": dimensions["batch"],
            "q_len": 1,
            "kv_len": dimensions["ctx"],
            "num_q_heads": dimensions["num_q_heads"],
            "num_kv_heads": 1,
            "head_dim": dimensions["head_dim"],
            "last_dim": dimensions["head_dim"],
            "block_size": dimensions["block_size"],
            "phase": "decode",
        }

    def scalars(self, dimensions: Dimensions) -> dict[str, Scalar]:
        return {"block_size": dimensions["block_size"]}

    def draw(self, inputs: Tensors, dimensions: Dimensions, style: Style, source: Source) -> None:
        source.fill(inputs["q"], style)
        source.fill(inputs["index_k"], NORMAL if style.shift else style)  # both shifted: all scores alike
        source.integers(inputs["seq_lens"], _LENGTH_MIN * dimensions["block_size"], dimensions["ctx"])
        inputs["seq_lens"][0] = dimensions["ctx"]
        if style is RAGGED:  # whole blocks, and one key more, in turn; what follows would win every ranking
            lengths, size = inputs["seq_lens"], dimensions["block_size"]
            lengths[1:] = lengths[1:] // size * size
            lengths[2::2] += (lengths[2::2] < dimensions["ctx"]).to(lengths.dtype)
            behind = torch.arange(dimensions["ctx"])[None, :] >= lengths[:, None]
            inputs["index_k"][:, :, 0][behind] = _BAIT

    def perturb(self, inputs: Tensors, dimensions: Dimensions, source: Source) -> None:  # noqa: ARG002
        source.fill(inputs["q"], NORMAL)  # a few other values would seldom change a ranking

    def reference(
        self, inputs: Tensors, scalars: Mapping[str, Scalar], precision: torch.dtype
    ) -> dict[str, torch.Tensor]:
        size = int(scalars["block_size"])
        rows = []
        for row, length in enumerate(inputs["seq_lens"].tolist()):
            query = inputs["q"][row].to(precision).sum(dim=0)
            scores = inputs["index_k"][row, :, 0].to(precision).mv(query)
            scores[length:] = -torch.inf
            rows.append(scores[: len(scores) // size * size].view(-1, size).amax(dim=-1))
        return {"out": torch.stack(rows).to(torch.float32)}
