"""What engines do differently, and rightly, passes in every distribution; what only looks like it does not.

The forms here are written as kernels are: they round where kernels round, and sum in the order in which kernels sum.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from qualify.comparison import passes
from qualify.content import ALL_STYLES, HEAVY, LARGE, RAGGED, ROWS, SCALED, Style
from qualify.dtypes import DTYPES
from qualify.slots.base import Dimensions, Slot
from qualify.slots.registry import find_slot
from qualify.slots.rehearsal import Rehearsal, worst

Outputs = dict[str, torch.Tensor]
Rounding = Callable[[torch.Tensor], torch.Tensor]
NARROW = {"num_tokens": 16, "hidden": 512}
FINALIZE = {"num_tokens": 16, "exp_tokens": 24, "topk": 5, "hidden": 512}


def judged(slot: Slot, dtype: str, style: Style, form: Callable[[Rehearsal], Outputs], **call: object) -> int:
    """Return the figure of what `form` answers."""
    dimensions, ranks = call.get("dimensions"), call.get("ranks")
    assert dimensions is None or isinstance(dimensions, dict)
    assert ranks is None or isinstance(ranks, int)
    one = Rehearsal(slot, dtype, style, dimensions=dimensions, ranks=ranks)
    one.answer(form(one))
    return worst(one.figures(one.expected()))


def rounding(call: Rehearsal) -> Rounding:
    """Return what a round trip through the dtype of the call does."""
    return lambda tensor: tensor.to(DTYPES[call.dtype]).float()


def on_the_wire(parts: list[torch.Tensor], rounded: Rounding) -> torch.Tensor:
    """Return a sum that goes from rank to rank in the dtype of the call."""
    total = parts[0]
    for part in parts[1:]:
        total = rounded(total + part)
    return total


def normed(call: Rehearsal, total: torch.Tensor) -> Outputs:
    """Return both outputs of a sum, the norm taken of what was rounded."""
    wide = rounding(call)(total)
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + call.scalars["eps"])
    return {"out_norm": wide * scale * call.inputs["weight"].float(), "out_residual": total}


def ring(call: Rehearsal) -> Outputs:
    """A ring of ranks, the residual and the norm."""
    total = on_the_wire([part.float() for part in call.inputs["x"]], rounding(call))
    return normed(call, total + call.inputs["residual"].float())


def ring_behind_experts(call: Rehearsal) -> Outputs:
    """The same behind the rows of experts."""
    inputs, rounded = call.inputs, rounding(call)
    tokens, (padded, topk) = inputs["residual"].shape[0], inputs["scales"].shape
    routes = inputs["row_map"].view(topk, padded)[:, :tokens].long()
    parts = [
        rounded(sum((inputs["scales"][:tokens, k, None] * rows[routes[k]].float() for k in range(topk)),
                    torch.zeros(inputs["residual"].shape)))
        for rows in inputs["gemm_out"]
    ]  # fmt: skip
    return normed(call, on_the_wire(parts, rounded) + inputs["residual"].float())


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("style", [SCALED, HEAVY, ROWS], ids=lambda style: style.name)
def test_sums_that_travel_in_the_dtype_of_the_call_are_right(dtype: str, style: Style, ranks: int) -> None:
    """Parts that cancel leave an element whose rounding goes with the parts."""
    slot = find_slot("collective.ar_residual_rmsnorm")
    assert passes(judged(slot, dtype, style, ring, dimensions=NARROW, ranks=ranks))
    slot = find_slot("collective.moe_finalize_ar_rmsnorm")
    assert passes(judged(slot, dtype, style, ring_behind_experts, dimensions=FINALIZE, ranks=ranks))


def tiled(call: Rehearsal) -> Outputs:
    """Attention tile by tile, with powers of two and probabilities in the dtype of the call."""
    rounded, inputs = rounding(call), call.inputs
    if "seq_lens" not in inputs:
        tokens = torch.arange(inputs["q"].shape[0])
        visible = tokens[None, :] <= tokens[:, None] if call.scalars["causal"] else torch.ones(len(tokens), len(tokens))
        return {"out": one_by_one(inputs["q"], inputs["k"], inputs["v"], visible.bool(), call, rounded)}
    rows = []
    for row, length in enumerate(inputs["seq_lens"].tolist()):
        visible = (torch.arange(inputs["k"].shape[1]) < length)[None, :]
        query = inputs["q"][row : row + 1]
        rows.append(one_by_one(query, inputs["k"][row], inputs["v"][row], visible, call, rounded))
    return {"out": torch.cat(rows)}


def one_by_one(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    visible: torch.Tensor,
    call: Rehearsal,
    rounded: Rounding,
) -> torch.Tensor:
    """Return the output of one sequence with a running maximum and a running sum."""
    scale, group = float(call.scalars["sm_scale"]) * 1.4426950409, query.shape[1] // key.shape[1]
    out = torch.empty(query.shape)
    for head in range(query.shape[1]):
        top = torch.full((len(query), 1), -1e30)
        total, mean = torch.zeros(len(query), 1), torch.zeros(len(query), query.shape[-1])
        for start in range(0, len(key), 16):
            piece = slice(start, start + 16)
            logits = query[:, head].float() @ key[piece, head // group].float().T * scale
            logits = torch.where(visible[:, piece], logits, -torch.inf)
            higher = torch.maximum(top, logits.amax(-1, keepdim=True))
            weights, kept = torch.exp2(logits - higher), torch.exp2(top - higher)
            total = total * kept + weights.sum(-1, keepdim=True)
            mean = mean * kept + rounded(weights) @ value[piece, head // group].float()
            top = higher
        out[:, head] = mean / total
    return out


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("target", ["attention.sdpa", "attention.decode"])
def test_attention_tile_by_tile_is_right(target: str, dtype: str) -> None:
    """The usual kernel passes in all distributions, edges included."""
    for style in (*ALL_STYLES, LARGE, *([RAGGED] if target == "attention.decode" else [])):
        assert passes(judged(find_slot(target), dtype, style, tiled)), style.name


def experts(call: Rehearsal) -> Outputs:
    """Experts one after the other; everything that leaves a kernel is rounded, and what a choice adds as well."""
    rounded, inputs, inter = rounding(call), call.inputs, call.dimensions["inter"]
    out = torch.zeros(inputs["x"].shape)
    for expert in range(call.dimensions["num_experts"]):
        tokens, choices = torch.nonzero(inputs["topk_ids"] == expert, as_tuple=True)
        both = rounded(inputs["x"][tokens].float() @ call.weights["w13"][expert].float().T)
        hidden = rounded(rounded(torch.nn.functional.silu(both[:, :inter])) * both[:, inter:])
        part = rounded(hidden @ call.weights["w2"][expert].float().T)
        out.index_add_(0, tokens, rounded(part * inputs["topk_weights"][tokens, choices, None]))
    return {"out": out}


@pytest.mark.parametrize("dtype", DTYPES)
def test_experts_that_round_at_every_step_are_right(dtype: str) -> None:
    """Weights of eight bits are not (a control of the slot's admission); this has to be."""
    slot = find_slot("moe.fused_experts")
    for style in (*ALL_STYLES, *slot.edges):
        assert passes(judged(slot, dtype, style, experts)), style.name


def test_every_kernel_has_to_know_attention_without_a_mask() -> None:
    """Domains cannot speak of `causal`: one that always masks fails on a public shape."""
    slot = find_slot("attention.sdpa")

    def always(call: Rehearsal) -> Outputs:
        return call.expected(scalars={"causal": True})

    def fails(shape: Dimensions) -> bool:
        return not passes(judged(slot, "bfloat16", ALL_STYLES[0], always, dimensions=dict(shape)))

    assert [shape["causal"] for shape in slot.catalog_shapes if fails(shape)] == [0]
