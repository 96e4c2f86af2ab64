"""The least work a right answer takes: bytes that have to be read or written, and operations that have to be done.

Invariants
1. Both are lower bounds, for any algorithm whose output passes the slot's comparator. What an answer may leave out is
   left out here: padding, keys behind the shortest legal length, experts that nobody may have chosen, the part of a
   ranking that may differ, weights that `prepare` may have packed.
2. Of the multiplications and additions of a product of matrices half are counted: fast algorithms get by with fewer.
3. They count all ranks of a call together, and nothing of what happens outside it.
4. Nothing here is measured. A call that takes less than `work / peak`, with the peaks of the arena, did not happen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import NamedTuple

from qualify.dtypes import DTYPES
from qualify.slots.base import Dimensions, Slot

_PACKED_BITS = 4  # of one weight, where a model's profile has room for that
_RANKED_PART = 2  # a ranking may be right although one key in so many was not looked at


class Work(NamedTuple):
    """Bytes and operations of one call."""

    least_bytes: int
    least_operations: int


def least_work(slot: Slot, dimensions: Dimensions, dtype: str, ranks: int = 1) -> Work:
    """Return the least work of one call of `slot` by `ranks` ranks. A slot without a rule has to write its outputs."""
    shapes = slot.shapes(dimensions)
    sizes = {
        argument.name: prod(shapes[argument.name]) * argument.torch_dtype(DTYPES[dtype]).itemsize
        for argument in (*slot.tensors(), *slot.weights)
    }
    rule = _RULES.get(slot.id, _outputs_only)
    one = rule(slot, sizes, dimensions)
    return Work(ranks * one.least_bytes, ranks * one.least_operations)


def has_rule(slot: Slot) -> bool:
    """Say whether more is known of a slot than that its outputs are written."""
    return slot.id in _RULES


Sizes = Mapping[str, int]  # bytes of every tensor that one rank sees


def _outputs(slot: Slot, sizes: Sizes) -> int:
    return sum(sizes[name] for name in slot.names("output"))


def _outputs_only(slot: Slot, sizes: Sizes, dimensions: Dimensions) -> Work:  # noqa: ARG001 - what all rules take
    return Work(_outputs(slot, sizes), 0)


def _everything(operations: int) -> Callable[[Slot, Sizes, Dimensions], Work]:
    """Return the rule of a slot in which all inputs count, with so many operations for each element of an output."""

    def rule(slot: Slot, sizes: Sizes, dimensions: Dimensions) -> Work:
        elements = prod(slot.shapes(dimensions)[slot.names("output")[0]])
        moved = sum(sizes[argument.name] for argument in slot.tensors())
        return Work(moved, operations * elements)

    return rule


def _attention(slot: Slot, sizes: Sizes, dimensions: Dimensions) -> Work:  # noqa: ARG001
    tokens = dimensions["num_tokens"]
    pairs = tokens * (tokens + 1) // 2 if dimensions["causal"] else tokens * tokens
    per_pair = 2 * dimensions["num_q_heads"] * dimensions["head_dim"]  # half of two products
    return Work(sum(sizes[name] for name in ("q", "k", "v", "out")), pairs * per_pair)


def _decode(slot: Slot, sizes: Sizes, dimensions: Dimensions) -> Work:  # noqa: ARG001
    """The first sequence is as long as the context, the others have one key at least."""
    keys = dimensions["ctx"] + dimensions["batch"] - 1
    cache = (sizes["k"] + sizes["v"]) * keys // (dimensions["batch"] * dimensions["ctx"])
    per_key = 2 * dimensions["num_q_heads"] * dimensions["head_dim"]
    return Work(sizes["q"] + sizes["out"] + cache, keys * per_key)


def _block_score(slot: Slot, sizes: Sizes, dimensions: Dimensions) -> Work:  # noqa: ARG001
    """The first sequence is as long as the context; of the others eight blocks are in use, and no rule counts them."""
    keys, head = dimensions["ctx"] // _RANKED_PART, dimensions["head_dim"]
    bytes_of_one = sizes["index_k"] // (dimensions["batch"] * dimensions["ctx"])
    return Work(sizes["q"] + sizes["out"] + keys * bytes_of_one, keys * head)


def _prefill_block_score(slot: Slot, sizes: Sizes, dimensions: Dimensions) -> Work:
    """Every query sees the whole prefix; what lies behind it is not counted."""
    length, head = slot.shapes(dimensions)["q"]
    prefix = slot.shapes(dimensions)["index_k"][0] - length
    moved = sizes["q"] + sizes["out"] + sizes["index_k"] // _RANKED_PART
    return Work(moved, length * prefix * head // _RANKED_PART)


def _experts(slot: Slot, sizes: Sizes, dimensions: Dimensions) -> Work:
    """At least as many experts as one token chooses; the weights of a profile may be packed into few bits."""
    chosen = dimensions["topk"] * (sizes["w13"] + sizes["w2"]) // dimensions["num_experts"]
    if slot.model:
        elements = 3 * dimensions["inter"] * dimensions["hidden"] * dimensions["topk"]
        chosen = min(chosen, elements * _PACKED_BITS // 8)
    moved = chosen + sizes["x"] + sizes["topk_ids"] + sizes["topk_weights"] + sizes["out"]
    per_token = 3 * dimensions["topk"] * dimensions["inter"] * dimensions["hidden"]  # half of three products
    return Work(moved, dimensions["num_tokens"] * per_token)


def _finalize(slot: Slot, sizes: Sizes, dimensions: Dimensions) -> Work:
    """Rows of padding belong to no token; every rank adds up its own rows."""
    tokens, padded = dimensions["num_tokens"], dimensions["exp_tokens"]
    routed = sum(sizes[name] * tokens // padded for name in ("gemm_out", "row_map", "scales"))
    moved = routed + sizes["residual"] + sizes["weight"] + _outputs(slot, sizes)
    return Work(moved, tokens * dimensions["hidden"] * (2 * dimensions["topk"] + 2))


_RULES: Mapping[str, Callable[[Slot, Sizes, Dimensions], Work]] = {
    "activation.silu_and_mul": _everything(2),
    "attention.decode": _decode,
    "attention.msa_block_score": _block_score,
    "attention.msa_prefill_block_score": _prefill_block_score,
    "attention.sdpa": _attention,
    "collective.all_reduce": _everything(0),
    "collective.ar_residual_rmsnorm": _everything(3),
    "collective.moe_finalize_ar_rmsnorm": _finalize,
    "moe.fused_experts": _experts,
    "moe.fused_experts_reduce": _experts,
    "norm.rmsnorm": _everything(3),
}
