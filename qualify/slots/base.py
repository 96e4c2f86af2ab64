"""What a slot is: a typed call boundary with a reference, a stock implementation and a tolerance of ours.

Invariants
1. Arguments are positional and ordered; the arm builds them from extents and offsets alone.
2. Outputs are allocated by the validator, contiguous, of the call's dtype, disjoint from every input. The return
   value of an entry is ignored.
3. The reference is written independently of the stock implementation and runs in a wider precision.
4. An output passes only when every element is within `element` of the expected one AND every row's error norm is
   within `row` of the row's norm (and `peak` of its largest element), so a tolerance cannot be spent everywhere.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import torch

STOCK_ROOT = Path(__file__).resolve().parent / "stock"

Dimensions = Mapping[str, int]
Tensors = Mapping[str, torch.Tensor]

DTYPES: Mapping[str, torch.dtype] = {
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float32": torch.float32,
}


@dataclass(frozen=True, slots=True)
class Argument:
    """One positional argument of an entry."""

    name: str
    role: Literal["input", "output", "scalar"]


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Bounds for one dtype; all relative figures are fractions of the expected value."""

    absolute: float  # element: |got - expected| <= absolute + relative * |expected|
    relative: float
    row: float  # row: ||got - expected|| <= row * ||expected|| + peak * max |expected| + row_floor * sqrt(row length)
    peak: float  # room for the roundings of a row that one element dominates
    row_floor: float  # what rounding of the smallest representable values may cost one element


# Row bounds leave room for three roundings of the output, and for nothing else.
STANDARD_TOLERANCES: Mapping[str, Tolerance] = {
    "bfloat16": Tolerance(0.02, 0.02, 0.005, 0.008, 1e-38),
    "float16": Tolerance(0.01, 0.01, 0.0008, 0.0015, 6e-8),
    "float32": Tolerance(1e-5, 1e-5, 2e-6, 2e-6, 1e-38),
}


class Slot(ABC):
    """One slot. Subclasses are stateless; one instance is registered in `qualify.slots.registry`."""

    id: ClassVar[str]
    arguments: ClassVar[tuple[Argument, ...]]
    stock: ClassVar[tuple[str, str]]  # file below `STOCK_ROOT` and entry of what an engine runs today
    dimensions: ClassVar[tuple[str, ...]]  # names of the extents, in the order the control channel carries them
    count_dimensions: ClassVar[tuple[str, ...]] = ("num_tokens",)  # extents that hidden shapes jitter
    row_inputs: ClassVar[frozenset[str]] = frozenset()  # inputs of which row i alone decides row i of every output
    catalog_shapes: ClassVar[tuple[Mapping[str, int], ...]]  # public shapes of the correctness stage

    @abstractmethod
    def shapes(self, dimensions: Dimensions) -> dict[str, tuple[int, ...]]:
        """Return the shape of every tensor argument."""

    @abstractmethod
    def descriptor(self, dimensions: Dimensions) -> dict[str, int | str]:
        """Return what the live call reports about its extents, in the public capability vocabulary."""

    @abstractmethod
    def reference(
        self, inputs: Tensors, scalars: Mapping[str, float], precision: torch.dtype
    ) -> dict[str, torch.Tensor]:
        """Return the expected outputs as float32, computed in `precision` from the rounded inputs."""

    def scalars(self) -> dict[str, float]:
        """Return the scalar arguments of every call."""
        return {}

    def tolerance(self, dtype: str) -> Tolerance:
        """Return the bounds for `dtype`."""
        return STANDARD_TOLERANCES[dtype]

    def names(self, role: Literal["input", "output", "scalar"]) -> tuple[str, ...]:
        """Return the argument names of one role, in call order."""
        return tuple(argument.name for argument in self.arguments if argument.role == role)

    def tensor_names(self) -> tuple[str, ...]:
        """Return the tensor arguments in call order; offsets on the control channel follow it."""
        return tuple(argument.name for argument in self.arguments if argument.role != "scalar")


def live_descriptor(slot: Slot, dimensions: Dimensions, dtype: str, architecture: str) -> dict[str, int | str]:
    """Return the complete live call descriptor that routing matches variants against."""
    return {
        "architecture": architecture,
        "dtype": dtype,
        "graph_mode": "eager",
        "layout": "row_major",
        "quant": "dense",
        "world_size": 1,
        "tp_size": 1,
        **slot.descriptor(dimensions),
    }
