"""What a slot is: a typed call boundary with a reference, a stock implementation and a tolerance of ours.

Invariants
1. Arguments are positional and ordered; the arm builds them from extents and offsets alone.
2. Outputs are allocated by the validator, row-major, disjoint from every input. The return value of an entry is
   ignored.
3. The reference is written independently of the stock implementation and runs in a wider precision.
4. A slot with weights has a load-time half: `prepare(*weights)` runs once for each set of weights, sees nothing else,
   and what it returns is handed to every call as the argument of role "prepared".
5. A slot with an argument of role "group" is a collective: several ranks are asked at once. Shapes are those that one
   rank sees. Inputs and weights named in `per_rank` differ from rank to rank and are drawn, and handed to the
   reference, with the ranks as an additional first axis; all others are the same everywhere. So are all outputs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import torch

from qualify.comparison import ROWS, STANDARD_TOLERANCES, Comparator, Tolerance
from qualify.content import NORMAL, Source, Style
from qualify.dtypes import FIXED_DTYPES

STOCK_ROOT = Path(__file__).resolve().parent / "stock"

Dimensions = Mapping[str, int]
Tensors = Mapping[str, torch.Tensor]
Scalar = float | int | bool

Role = Literal["input", "output", "scalar", "weight", "prepared", "group"]


@dataclass(frozen=True, slots=True)
class Argument:
    """One positional argument of an entry, or of `prepare` for the role "weight".

    dtype   "" for the dtype of the call, else a fixed one: "float32" or "int32"
    pad     elements between two rows of an output that belong to nobody; its last axis has unit stride
    """

    name: str
    role: Role
    dtype: str = ""
    pad: int = 0

    def torch_dtype(self, call: torch.dtype) -> torch.dtype:
        """Return the dtype of this tensor in a call whose dtype is `call`."""
        return FIXED_DTYPES[self.dtype] if self.dtype else call


class Slot(ABC):
    """One slot. Subclasses are stateless; one instance is registered in `qualify.slots.registry`."""

    id: ClassVar[str]
    arguments: ClassVar[tuple[Argument, ...]]
    stock: ClassVar[tuple[str, str]]  # file below `STOCK_ROOT` and entry of what an engine runs today
    stock_prepare: ClassVar[str] = ""  # its load-time half, in the same file
    dimensions: ClassVar[tuple[str, ...]]  # names of the extents, in the order the control channel carries them
    free_scalars: ClassVar[tuple[str, ...]] = ()  # those that a caller chooses, whatever the extents are
    flags: ClassVar[frozenset[str]] = frozenset()  # of these: what is 0 or 1, and no extent
    count_dimensions: ClassVar[tuple[str, ...]] = ("num_tokens",)  # extents that hidden shapes jitter
    row_inputs: ClassVar[frozenset[str]] = frozenset()  # inputs of which row i alone decides row i of every output
    catalog_shapes: ClassVar[tuple[Mapping[str, int], ...]]  # public shapes of the correctness stage
    weights: ClassVar[tuple[Argument, ...]] = ()  # arguments of `prepare`, in order
    weight_dimensions: ClassVar[tuple[str, ...]] = ()  # the extents that name one set of weights
    per_rank: ClassVar[frozenset[str]] = frozenset()  # inputs and weights of which every rank has its own
    comparator: ClassVar[Comparator] = ROWS
    model: ClassVar[str] = ""  # of a profile: whose use of the slot this is
    edges: ClassVar[tuple[Style, ...]] = ()  # distributions of this slot alone, each asked once on a small shape

    @property
    def key(self) -> str:
        """The name this slot is registered under: its id, and for a model profile the model."""
        return f"{self.id}@{self.model}" if self.model else self.id

    @property
    def collective(self) -> bool:
        """Whether a call is made by several ranks at once."""
        return any(argument.role == "group" for argument in self.arguments)

    def stacked(self, name: str, shape: tuple[int, ...], ranks: int) -> tuple[int, ...]:
        """Return the shape in which one input or weight is drawn for all ranks."""
        return (ranks, *shape) if name in self.per_rank else shape

    def rows_of(self, name: str, tensor: torch.Tensor, rows: slice) -> torch.Tensor:
        """Return what some rows of the outputs need of one input, as it was drawn."""
        if name not in self.row_inputs:
            return tensor
        return tensor[:, rows] if name in self.per_rank else tensor[rows]

    @abstractmethod
    def shapes(self, dimensions: Dimensions) -> dict[str, tuple[int, ...]]:
        """Return the shape of every tensor argument, weights included."""

    def jittered(self, dimensions: Dimensions) -> tuple[str, ...]:  # noqa: ARG002 - most slots jitter all they count
        """Return the extents of a public shape that hidden shapes change."""
        return self.count_dimensions

    def legal(self, dimensions: Dimensions) -> dict[str, int]:
        """Return the nearest extents that a call may have. Of what this returns, `shapes` and all else are defined."""
        return {name: min(extent, 1) if name in self.flags else max(extent, 1) for name, extent in dimensions.items()}

    def shown(self, dimensions: Dimensions, style: Style) -> dict[str, int]:  # noqa: ARG002 - most edges always show
        """Return the nearest extents at which an edge can tell a mistake; not always legal ones."""
        return dict(dimensions)

    def telling(self, dimensions: Dimensions) -> bool:
        """Say whether one call of a public shape tells every mistake from a right answer: admission needs such."""
        return self.shapes(dimensions)[self.names("output")[0]][0] > 1

    @abstractmethod
    def descriptor(self, dimensions: Dimensions) -> dict[str, int | str]:
        """Return what the live call reports about its extents, in the public capability vocabulary."""

    @abstractmethod
    def reference(
        self, inputs: Tensors, scalars: Mapping[str, Scalar], precision: torch.dtype
    ) -> dict[str, torch.Tensor]:
        """Return the expected outputs as float32, computed in `precision` from the rounded inputs and weights."""

    def scalars(self, dimensions: Dimensions) -> dict[str, Scalar]:  # noqa: ARG002 - most slots have none
        """Return the scalar arguments of a call, as a model of these extents has them. Timed calls have these."""
        return {}

    def draw_scalars(
        self,
        dimensions: Dimensions,  # noqa: ARG002 - most slots have no free scalar
        style: Style,  # noqa: ARG002
        source: Source,  # noqa: ARG002
    ) -> dict[str, Scalar]:
        """Return what `free_scalars` are in a call of one style, where they are not those of `scalars`."""
        return {}

    def draw(self, inputs: Tensors, dimensions: Dimensions, style: Style, source: Source) -> None:  # noqa: ARG002
        """Fill fresh inputs of one call."""
        for tensor in inputs.values():
            source.fill(tensor, style)

    def draw_weights(self, weights: Tensors, dimensions: Dimensions, source: Source) -> None:  # noqa: ARG002
        """Fill one set of weights."""
        for tensor in weights.values():
            source.fill(tensor, NORMAL)

    def perturb(self, inputs: Tensors, dimensions: Dimensions, source: Source) -> None:  # noqa: ARG002
        """Change some values of every input that carries values, in place, to other legal ones."""
        for tensor in inputs.values():
            if tensor.is_floating_point():
                source.perturb(tensor)

    def tolerance(self, dtype: str) -> Tolerance:
        """Return the bounds for `dtype`."""
        return STANDARD_TOLERANCES[dtype]

    def bounds(self, dtype: str, style: Style) -> Tolerance:  # noqa: ARG002 - only edges have bounds of their own
        """Return the bounds for `dtype` where inputs are drawn in `style`."""
        return self.tolerance(dtype)

    def output_bounds(self, output: str, dtype: str, style: Style) -> Tolerance:  # noqa: ARG002 - few outputs differ
        """Return the bounds of one output: those of `bounds`, unless an edge makes that output alone exact."""
        return self.bounds(dtype, style)

    def names(self, role: Role) -> tuple[str, ...]:
        """Return the argument names of one role, in call order."""
        return tuple(argument.name for argument in self.arguments if argument.role == role)

    def tensors(self) -> tuple[Argument, ...]:
        """Return the tensor arguments of a call in order; offsets on the control channel follow it."""
        return tuple(argument for argument in self.arguments if argument.role in ("input", "output"))

    def weight_key(self, dimensions: Dimensions) -> tuple[int, ...]:
        """Return what names the set of weights that a call of `dimensions` uses."""
        return tuple(dimensions[name] for name in self.weight_dimensions)


def live_descriptor(
    slot: Slot, dimensions: Dimensions, dtype: str, architecture: str, world_size: int = 1
) -> dict[str, int | str]:
    """Return the complete live call descriptor that routing matches variants against."""
    return {
        "architecture": architecture,
        "dtype": dtype,
        "graph_mode": "eager",
        "layout": "row_major",
        "quant": "dense",
        "world_size": world_size,
        "tp_size": world_size,
        **({"model": slot.model} if slot.model else {}),
        **slot.descriptor(dimensions),
    }
