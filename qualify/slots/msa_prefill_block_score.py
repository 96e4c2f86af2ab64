"""attention.msa_prefill_block_score: entry `msa_prefill_block_score(q, index_k, prefix_len, scale, block_size, out)`.

`q` has shape (q_len, head_dim), `index_k` (prefix_len + q_len, head_dim), `out` (q_len, ceil(keys / block_size)) in
float32 with padded rows. score = scale * q . index_k; row m sees the keys n <= prefix_len + m, all others count as
minus infinity; out = the largest score of each block, of which the last may be short.

A case with `causal_probe` is built so that a kernel which looks one key too far ranks other blocks first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch

from qualify.comparison import Comparator
from qualify.content import NORMAL, Source, Style
from qualify.ranking import TopK
from qualify.slots.base import Argument, Dimensions, Scalar, Slot, Tensors

_BLOCKS_MIN = 12
_RAGGED = 39  # keys of the prefix beyond its last whole block
_LOG2_E = 1.4426950409  # scores are used with powers of two
_PAD = 7
_PROBE_BLOCKS = 10
_PROBE_NOISE = 2.0**-10
_PROBE_BAIT = 100.0


def _prefix(dimensions: Dimensions) -> int:
    return max(_BLOCKS_MIN, dimensions["prefix_blocks"]) * dimensions["block_size"] + _RAGGED


class MsaPrefillBlockScore(Slot):
    """Scores by which prefilling selects the blocks it attends to."""

    id: ClassVar[str] = "attention.msa_prefill_block_score"
    arguments: ClassVar[tuple[Argument, ...]] = (
        Argument("q", "input"),
        Argument("index_k", "input"),
        Argument("prefix_len", "scalar"),
        Argument("scale", "scalar"),
        Argument("block_size", "scalar"),
        Argument("out", "output", "float32", _PAD),
    )
    stock: ClassVar[tuple[str, str]] = ("msa_prefill_block_score.py", "msa_prefill_block_score")
    dimensions: ClassVar[tuple[str, ...]] = ("q_len", "prefix_blocks", "head_dim", "block_size", "causal_probe")
    flags: ClassVar[frozenset[str]] = frozenset({"causal_probe"})
    count_dimensions: ClassVar[tuple[str, ...]] = ("q_len", "prefix_blocks")
    comparator: ClassVar[Comparator] = TopK(8, mean=0.9, row=0.75)
    catalog_shapes: ClassVar[tuple[Mapping[str, int], ...]] = tuple(
        {"q_len": length, "prefix_blocks": blocks, "head_dim": head, "block_size": size, "causal_probe": probe}
        for length, blocks, head, size, probe in (
            (16, 12, 128, 128, 0),
            (128, 16, 128, 128, 0),
            (33, 20, 64, 128, 0),
            (64, 24, 128, 64, 0),
            (16, 12, 128, 128, 1),
            (128, 16, 128, 128, 1),
            (33, 20, 64, 128, 1),
            (64, 24, 128, 64, 1),
            (512, 12, 64, 128, 0),
            (512, 12, 128, 64, 0),
            (512, 12, 128, 128, 0),
        )
    )

    def shapes(self, dimensions: Dimensions) -> dict[str, tuple[int, ...]]:
        length, head = dimensions["q_len"], dimensions["head_dim"]
        keys = _prefix(dimensions) + length
        return {
            "q": (length, head),
            "index_k": (keys, head),
            "out": (length, -(-keys // dimensions["block_size"])),
        }

    def jittered(self, dimensions: Dimensions) -> tuple[str, ...]:
        """Return the extents that hidden shapes change; the probe's queries stand in a fixed relation to its keys."""
        return ("prefix_blocks",) if dimensions["causal_probe"] else self.count_dimensions

    def telling(self, dimensions: Dimensions) -> bool:
        """Say whether whole blocks are hidden from the first rows: parts of one seldom change a ranking."""
        return dimensions["q_len"] > 2 * dimensions["block_size"]

    def descriptor(self, dimensions: Dimensions) -> dict[str, int | str]:
        return {
            "num_tokens": dimensions["q_len"],
            "q_len": dimensions["q_len"],
            "kv_len": _prefix(dimensions) + dimensions["q_len"],
            "head_dim": dimensions["head_dim"],
            "last_dim": dimensions["head_dim"],
            "block_size": dimensions["block_size"],
            "phase": "prefill",
        }

    def scalars(self, dimensions: Dimensions) -> dict[str, Scalar]:
        scale = dimensions["head_dim"] ** -0.5 * _LOG2_E
        return {"prefix_len": _prefix(dimensions), "scale": scale, "block_size": dimensions["block_size"]}

    def draw(self, inputs: Tensors, dimensions: Dimensions, style: Style, source: Source) -> None:
        if dimensions["causal_probe"]:
            self._draw_probe(inputs["q"], inputs["index_k"], dimensions, source)
        else:
            source.fill(inputs["q"], style)
            source.fill(inputs["index_k"], NORMAL if style.shift else style)  # both shifted: all scores alike

    def _draw_probe(self, query: torch.Tensor, key: torch.Tensor, dimensions: Dimensions, source: Source) -> None:
        (length, head), prefix, size = query.shape, _prefix(dimensions), dimensions["block_size"]
        source.fill(query, NORMAL, _PROBE_NOISE)
        source.fill(key, NORMAL, _PROBE_NOISE)
        features = torch.arange(length) % head
        query[torch.arange(length), features] = 1.0
        key[torch.arange(min(_PROBE_BLOCKS, prefix // size)) * size] = 1.0
        key[prefix + 1 + torch.arange(length - 1), features[: length - 1]] = _PROBE_BAIT

    def perturb(self, inputs: Tensors, dimensions: Dimensions, source: Source) -> None:  # noqa: ARG002
        source.fill(inputs["q"], NORMAL)  # a few other values would seldom change a ranking

    def reference(
        self, inputs: Tensors, scalars: Mapping[str, Scalar], precision: torch.dtype
    ) -> dict[str, torch.Tensor]:
        size, prefix = int(scalars["block_size"]), int(scalars["prefix_len"])
        scores = (inputs["q"].to(precision) @ inputs["index_k"].to(precision).T).mul_(scalars["scale"])
        length, keys = scores.shape
        hidden = torch.arange(keys)[None, :] > prefix + torch.arange(length)[:, None]
        scores.masked_fill_(hidden, -torch.inf)
        blocks = [scores[:, start : start + size].amax(dim=-1) for start in range(0, keys, size)]
        return {"out": torch.stack(blocks, dim=-1).to(torch.float32)}
