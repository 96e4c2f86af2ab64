"""Wrong answers that every slot has to reject: what the admission of a slot tries on its comparator and its inputs.

Invariants
1. A mistake is a pure function of a rehearsed call. It writes the first rank's outputs and nothing else.
2. A `Filling` knows nothing of the slot and has to be found in every output; an `Answering` answers another question
   than was asked, or by another rule, and has to be found in some output.
3. Where a mistake would be no mistake (a ranking does not know units; a slot has no mask) it says so beforehand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from qualify.comparison import Rows
from qualify.content import CROWDED, DENORMAL, INTEGERS, LARGE, PADDED, RAGGED, SCALARS, SMALL, Style
from qualify.slots.fused_experts import Activation, mixture
from qualify.slots.rehearsal import Rehearsal

Outputs = dict[str, torch.Tensor]

# Bits of mantissa, of which the first is not stored. Each is what the next narrower format in use would leave.
_NARROWER = {"float32": 11, "float16": 5, "bfloat16": 4}


@dataclass(frozen=True, slots=True)
class Filling:
    """One output filled without knowing the slot. `write` gets the output, an input, and what was expected."""

    name: str
    write: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], object]
    of_values: bool = False  # no mistake where only a ranking is judged

    def applies(self, call: Rehearsal) -> bool:
        """Say whether this is a mistake for the slot."""
        return not self.of_values or (isinstance(call.slot.comparator, Rows) and not faint(call))


def faint(call: Rehearsal) -> bool:
    """Say whether inputs are so small that they hardly matter: a softmax is flat, a product of gates nothing."""
    return call.style is SMALL and ("v" in call.tensors or "w2" in call.tensors)


@dataclass(frozen=True, slots=True)
class Answering:
    """An answer to another question. `applies` says for which calls that is wrong."""

    name: str
    answer: Callable[[Rehearsal], Outputs]
    applies: Callable[[Rehearsal], bool]


def _copied(out: torch.Tensor, x: torch.Tensor, expected: torch.Tensor) -> None:
    del expected
    values = x.flatten()
    out.copy_(values.repeat(out.numel() // len(values) + 1)[: out.numel()].view(out.shape))


def _left_half(out: torch.Tensor, x: torch.Tensor, expected: torch.Tensor) -> None:
    del x
    width = out.shape[-1] // 2
    out[..., :width].copy_(expected[..., :width])


def _nan(out: torch.Tensor, x: torch.Tensor, expected: torch.Tensor) -> None:
    del x
    out.copy_(expected).view(out.shape)[..., -1] = torch.nan


def _infinite(out: torch.Tensor, x: torch.Tensor, expected: torch.Tensor) -> None:
    del x
    out.copy_(expected)[..., -1] = torch.inf


def _one_off(out: torch.Tensor, x: torch.Tensor, expected: torch.Tensor) -> None:
    del x
    out.copy_(expected)[0].view(-1)[7:8].add_(1e4)


def _mean(out: torch.Tensor, x: torch.Tensor, expected: torch.Tensor) -> None:
    del x
    out.fill_(float(expected[expected.isfinite()].mean()))


FILLINGS: tuple[Filling, ...] = (
    Filling("no-op", lambda out, x, expected: None),  # noqa: ARG005 - they all take the same
    Filling("zeros", lambda out, x, expected: out.zero_()),  # noqa: ARG005
    Filling("ones", lambda out, x, expected: out.fill_(1.0)),  # noqa: ARG005
    Filling("mean", _mean),
    Filling("row mean", lambda out, x, expected: out.copy_(expected.mean(-1, keepdim=True).expand_as(out))),  # noqa: ARG005
    Filling("copied input", _copied),
    Filling("shuffled rows", lambda out, x, expected: out.copy_(expected.roll(1, dims=0))),  # noqa: ARG005
    Filling("shuffled columns", lambda out, x, expected: out.copy_(expected.roll(1, dims=-1))),  # noqa: ARG005
    Filling("sign turned", lambda out, x, expected: out.copy_(-expected)),  # noqa: ARG005
    Filling("all but the last row", lambda out, x, expected: out[:-1].copy_(expected[:-1])),  # noqa: ARG005
    Filling("left half of every row", _left_half),
    Filling("one NaN", _nan),
    Filling("one infinity", _infinite),
    Filling("one element off", _one_off, of_values=True),
    Filling("three percent off", lambda out, x, expected: out.copy_(expected * 1.03), of_values=True),  # noqa: ARG005
)


def narrowed(values: torch.Tensor, bits: int) -> torch.Tensor:
    """Return float32 `values` rounded to a mantissa of `bits` bits, the leading one included."""
    mantissa, exponent = torch.frexp(values)
    rounded: torch.Tensor = torch.ldexp((mantissa * 2.0**bits).round_(), exponent - bits)
    return torch.where(values.isfinite(), rounded, values)


def _narrower(call: Rehearsal) -> Outputs:
    return {name: narrowed(value, _NARROWER[call.dtype]) for name, value in call.expected().items()}


def _one_bit(call: Rehearsal) -> Outputs:
    floats = {name: one for name, one in call.tensors.items() if one.is_floating_point()}
    return call.expected({name: one.sign() * one.abs().float().mean() for name, one in floats.items()})


def _swapped(call: Rehearsal) -> Outputs:
    """Answer with two arguments exchanged that have the same form, or with the two halves of one."""
    tensors, slot = call.tensors, call.slot
    if slot.id == "activation.silu_and_mul":
        return call.expected({"x": tensors["x"].roll(call.dimensions["d"], -1)})
    if "v" in tensors:
        return call.expected({"k": tensors["v"], "v": tensors["k"]})
    if "w13" in tensors:
        return call.expected({"w13": tensors["w13"].roll(call.dimensions["inter"], -2)})
    if "row_map" in tensors:
        routes = tensors["row_map"].view(call.dimensions["topk"], -1)
        return call.expected({"row_map": routes.T.flatten()})
    if "residual" in tensors:
        return call.expected({"x": tensors["residual"].expand_as(tensors["x"]), "residual": tensors["x"][0]})
    if "weight" in tensors:
        rows = len(tensors["x"])
        return call.expected({"x": tensors["weight"].expand(rows, -1), "weight": tensors["x"][0]})
    if "index_k" in tensors:  # queries of one sequence, or position, for those of another
        return call.expected({"q": tensors["q"].roll(1, 0)})
    return call.expected({name: tensors[name][:1].expand_as(tensors[name]) for name in slot.per_rank})


def _with(name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Rehearsal], Outputs]:
    """Return the answer that is right when one tensor is another."""
    return lambda call: call.expected({name: change(call.tensors[name])})


def _scalar(name: str, value: float) -> Callable[[Rehearsal], Outputs]:
    """Return the answer that is right when one scalar is another."""
    return lambda call: call.expected(scalars={name: value})


def _first(size: int, axis: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return what keeps the first `size` along an axis and takes all others for zero."""

    def change(tensor: torch.Tensor) -> torch.Tensor:
        kept = torch.zeros_like(tensor)
        kept.narrow(axis, 0, size).copy_(tensor.narrow(axis, 0, size))
        return kept

    return change


def _halves(tensor: torch.Tensor) -> torch.Tensor:
    return torch.full_like(tensor, 0.5)


def _has(*names: str) -> Callable[[Rehearsal], bool]:
    return lambda call: all(name in call.tensors for name in names)


def _is(*slots: str) -> Callable[[Rehearsal], bool]:
    return lambda call: call.slot.id in slots


def _in(style: Style) -> Callable[[Rehearsal], bool]:
    return lambda call: call.style is style


def _collective(call: Rehearsal) -> bool:
    return call.slot.collective


def _by_value(call: Rehearsal) -> bool:
    return isinstance(call.slot.comparator, Rows)


def _grouped(call: Rehearsal) -> bool:
    return "v" in call.tensors and call.dimensions["num_kv_heads"] > 1


def _in_eight_bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return `tensor` with every row scaled to whole numbers from -127 to 127, as weights are stored to read less."""
    wide = tensor.double()
    step = wide.abs().amax(-1, keepdim=True).clamp(min=1e-30) / 127
    return (wide / step).round_().mul_(step)


def _weights_in_eight_bits(call: Rehearsal) -> Outputs:
    wide = {name: one.double() for name, one in call.inputs.items() if one.is_floating_point()}
    weights = {name: _in_eight_bits(one) for name, one in call.weights.items()}
    return call.slot.reference({**call.inputs, **wide, **weights}, call.scalars, torch.float64)


def _ungated(call: Rehearsal) -> Outputs:
    gate, up = call.inputs["x"].double().chunk(2, dim=-1)
    return {"out": (gate * up).float()}


def _unstable(call: Rehearsal) -> Outputs:
    """A softmax that does not subtract the largest logit, in float32."""
    query, key, value = (call.inputs[name].float() for name in ("q", "k", "v"))
    if query.dim() == key.dim():
        key, value, query = key.unsqueeze(0), value.unsqueeze(0), query.unsqueeze(0)
    else:
        query = query.unsqueeze(1)
    group = query.shape[2] // key.shape[2]
    key, value = (one.repeat_interleave(group, dim=2) for one in (key, value))
    weights = torch.exp(torch.einsum("bthd,bshd->bhts", query, key) * call.scalars["sm_scale"])
    out = torch.einsum("bhts,bshd->bthd", weights / weights.sum(-1, keepdim=True), value)
    return {"out": out.reshape(call.outputs[0]["out"].shape)}


def _without_eps(call: Rehearsal) -> Outputs:
    return call.expected(scalars={"eps": 0.0})


def _hard_coded(call: Rehearsal) -> Outputs:
    """Answer with the scalars that every model of these extents has, whatever the call says."""
    return call.expected(scalars=call.slot.scalars(call.dimensions))


def _average_over_blocks(call: Rehearsal) -> Outputs:
    expected = call.expected()["out"]
    return {"out": torch.where(expected.isfinite(), expected.roll(1, -1) + expected.roll(-1, -1), expected)}


def _alone(call: Rehearsal) -> Outputs:
    return call.expected({name: one[:1] for name, one in call.own.items()})


def _averaged(call: Rehearsal) -> Outputs:
    own = {name: one / call.ranks for name, one in call.own.items()}
    if "w2" in own:
        own["w13"] = call.weights["w13"]
    return call.expected(own)


def _own_twice(call: Rehearsal) -> Outputs:
    return call.expected({name: one[:1].expand_as(one) for name, one in call.own.items()})


def _one_too_few(call: Rehearsal) -> Outputs:
    return call.expected({name: one[:-1] for name, one in call.own.items()})


def _next_expert(call: Rehearsal) -> Outputs:
    return call.expected({"topk_ids": (call.inputs["topk_ids"] + 1) % call.dimensions["num_experts"]})


def _whole_context(call: Rehearsal) -> Outputs:
    return call.expected({"seq_lens": torch.full_like(call.inputs["seq_lens"], call.dimensions["ctx"])})


def _with_activation(activation: Activation) -> Callable[[Rehearsal], Outputs]:
    """Return the answer that is right when the experts have another activation."""

    def answer(call: Rehearsal) -> Outputs:
        first, second = call.weights["w13"], call.weights["w2"]
        if not call.own:
            first, second = first.unsqueeze(0), second.unsqueeze(0)
        parts = [
            mixture(call.inputs, w13, w2, torch.float64, activation) for w13, w2 in zip(first, second, strict=True)
        ]
        return {"out": torch.stack(parts).sum(0).float()}

    return answer


def _silu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.silu(gate) * up


def _unclamped(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return gate * torch.sigmoid(1.702 * gate) * (up + 1.0)


def _profiled(call: Rehearsal) -> bool:
    return bool(call.slot.model)


def _residual_of_all(call: Rehearsal) -> Outputs:
    return call.expected({"residual": call.inputs["residual"] * call.ranks})


def _one_bit_less(call: Rehearsal) -> Outputs:
    """Keep one bit less than the largest whole number of the slot's exact case needs."""
    return {
        name: narrowed(value, int(value.abs().max()).bit_length() - 1 if call.slot.collective else 7)
        for name, value in call.expected().items()
    }


ANSWERINGS: tuple[Answering, ...] = (
    Answering("lower precision", _narrower, _by_value),
    Answering("inputs of one bit", _one_bit, lambda call: not call.slot.collective),
    Answering("swapped arguments", _swapped, lambda call: True),  # noqa: ARG005
    Answering(
        "weights of eight bits", _weights_in_eight_bits, lambda call: bool(call.weights) and _by_value(call),
    ),
    Answering("leaves out the activation", _ungated, _is("activation.silu_and_mul")),
    Answering("skips the affine weight", _with("weight", torch.ones_like), _has("weight")),
    Answering("weight of the next column", _with("weight", lambda weight: weight.roll(1)), _has("weight")),
    Answering("forgets the mask", _scalar("causal", False), _is("attention.sdpa")),
    Answering("forgets the scale", _scalar("sm_scale", 1.0), _has("v")),
    Answering("heads of another group", _with("k", lambda key: key.roll(1, -2)), _grouped),
    Answering("ignores the lengths", _whole_context, _has("seq_lens")),
    Answering("one key too few", _with("seq_lens", lambda one: (one - 1).clamp(min=1)), _is("attention.decode")),
    Answering("first head only", _with("q", _first(1, 1)), _is("attention.msa_block_score")),
    Answering("scores of other blocks", _average_over_blocks, _has("index_k")),
    Answering("looks at what is masked", _scalar("prefix_len", 1 << 30), _is("attention.msa_prefill_block_score")),
    Answering("skips the routing weights", _with("topk_weights", _halves), _has("topk_weights")),
    Answering("first choice only", _with("topk_weights", _first(1, 1)), _has("topk_weights")),
    Answering("next expert", _next_expert, _has("topk_ids")),
    Answering("activation of other models", _with_activation(_silu), _profiled),
    Answering("forgets to reduce", _alone, _collective),
    Answering("averages over ranks", _averaged, _collective),
    Answering("sums its own part", _own_twice, _collective),
    Answering("leaves out the last rank", _one_too_few, _collective),
    Answering("residual from every rank", _residual_of_all, _has("residual")),
    Answering("skips the residual", _with("residual", torch.zeros_like), _has("residual")),
    Answering("ignores the row map", _with("row_map", lambda one: torch.arange(one.numel())), _has("row_map")),
    Answering("ignores the scales", _with("scales", _halves), _has("scales")),
)
# What an edge is for: each of these is found where inputs are drawn so, if nowhere else.
EDGE_ANSWERINGS: tuple[Answering, ...] = (
    Answering("softmax without its maximum", _unstable, lambda call: call.style is LARGE and "v" in call.tensors),
    Answering("forgets the clamp", _with_activation(_unclamped), lambda call: call.style is LARGE and _profiled(call)),
    Answering("forgets epsilon", _without_eps, _in(DENORMAL)),
    Answering("hard-coded scalar", _hard_coded, _in(SCALARS)),
    Answering("one bit too few", _one_bit_less, _in(INTEGERS)),
    Answering("looks behind the end", _whole_context, _in(RAGGED)),
    Answering("no room for a third token", _with("topk_weights", _first(2, 0)), _in(CROWDED)),
    Answering("reads the padding", _with("row_map", lambda routes: routes.roll(1)), _in(PADDED)),
)
