"""Model profiles: slots as one model uses them, where that differs from the slot itself.

Invariants
1. A profile changes what is computed, the stock form and the bounds; arguments, shapes and names stay the slot's.
2. A live call of a profile reports `model`, so a row can ask for it. A workload names its profile, and the digest of
   its arena binds it.
3. `MiniMax-M3` keeps the bounds of the slot, per element and per row: they imply the cosine its protocol asks for.
   `MiniMax-M3-NVFP4` has room for weights of four bits: cosine over everything, and for each row an error and a norm.

The activation of both, "swigluoai": with g = min(gate, 7) and u = clamp(up, -7, 7), g * sigmoid(1.702 * g) * (u + 1).
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import torch

from qualify.alignment import Alignment
from qualify.comparison import Comparator, Tolerance
from qualify.content import CROWDED, LARGE, Source, Style
from qualify.slots.base import Dimensions, Tensors
from qualify.slots.fused_experts import FusedExperts
from qualify.slots.fused_experts_reduce import FusedExpertsReduce

LIMIT, SLOPE = 7.0, 1.702
_GATE_SCALE = 12.0  # of inputs whose gates go beyond the limit on both sides
_SIZE = 16.0  # of outputs there
_ROOM = Alignment(cosine=0.985, row=0.25, norm=0.1)


def swigluoai(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """Return the clamped activation."""
    low = gate.clamp(max=LIMIT)
    return low / (1.0 + torch.exp(-SLOPE * low)) * (up.clamp(-LIMIT, LIMIT) + 1.0)


def widened(tolerance: Tolerance, style: Style) -> Tolerance:
    """Return the bounds where large activations cancel: outputs near zero are sums of values about `_SIZE`."""
    return replace(tolerance, absolute=_SIZE * tolerance.absolute) if style is LARGE else tolerance


class _Clamped(FusedExperts):
    """What both slots share: the clamped activation, and a case whose gates go beyond its limits."""

    model: ClassVar[str] = "MiniMax-M3"
    edges: ClassVar[tuple[Style, ...]] = (CROWDED, LARGE)

    def activation(self, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        return swigluoai(gate, up)

    def draw(self, inputs: Tensors, dimensions: Dimensions, style: Style, source: Source) -> None:
        super().draw(inputs, dimensions, style, source)
        if style is LARGE:
            source.fill(inputs["x"], style, _GATE_SCALE)

    def bounds(self, dtype: str, style: Style) -> Tolerance:
        return widened(self.tolerance(dtype), style)


class MiniMaxExperts(_Clamped):
    """`moe.fused_experts` with the clamped activation."""

    stock: ClassVar[tuple[str, str]] = ("fused_experts_swigluoai.py", "fused_experts")


class MiniMaxExpertsReduce(_Clamped, FusedExpertsReduce):
    """`moe.fused_experts_reduce` with the clamped activation."""

    stock: ClassVar[tuple[str, str]] = ("fused_experts_reduce_swigluoai.py", "fused_experts_reduce")


class MiniMaxNvfp4Experts(MiniMaxExperts):
    """The same with room for weights of four bits."""

    model: ClassVar[str] = "MiniMax-M3-NVFP4"
    comparator: ClassVar[Comparator] = _ROOM


class MiniMaxNvfp4ExpertsReduce(MiniMaxExpertsReduce):
    """The same with room for weights of four bits."""

    model: ClassVar[str] = "MiniMax-M3-NVFP4"
    comparator: ClassVar[Comparator] = _ROOM
