"""The memory of a group: for every rank files of its own, behind the same face as the memory of one arm.

Invariants
1. A rank sees its own files and nobody else's; what ranks tell each other goes through them, never through the referee.
2. What belongs to all ranks is in the order of the ranks: offsets, descriptors, outputs.
3. An output is named "rank 1 out"; so are its expectation and every complaint about it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from qualify.call_memory import CallMemory, Guards, Places, WeightKey
from qualify.content import Content
from qualify.slots.base import Dimensions, Slot, Tensors

_WORD = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class GroupPlaces(Places):
    """Where the tensors of one call lie in the memory of every rank; `offsets` are those of all ranks in a row."""

    ranks: tuple[Places, ...] = ()


class GroupMemory(CallMemory):
    """The shared files of all ranks of one group."""

    def __init__(
        self,
        slot: Slot,
        dtype: str,
        cases: tuple[Dimensions, ...],
        ranks: int,
        weights: Mapping[WeightKey, Tensors] | None = None,
    ) -> None:
        """`weights` have the ranks as their first axis where every rank has its own. Raises `OSError`."""
        self._per_rank = slot.per_rank
        self.ranks: list[CallMemory] = []
        try:
            for rank in range(ranks):
                own = {key: share(slot, one, rank) for key, one in (weights or {}).items()}
                self.ranks.append(CallMemory(slot, dtype, cases, own))
        except OSError:
            self.close()
            raise

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The files of all ranks."""
        return tuple(fd for memory in self.ranks for fd in memory.descriptors)

    def weight_offsets(self, key: WeightKey) -> tuple[int, ...]:
        """Return where the tensors of one set of weights lie, for all ranks."""
        return tuple(offset for memory in self.ranks for offset in memory.weight_offsets(key))

    def place(self, dimensions: Dimensions, half: int, generator: np.random.Generator) -> GroupPlaces:
        """Draw fresh places for one call of every rank."""
        ranks = tuple(memory.place(dimensions, half, generator) for memory in self.ranks)
        return GroupPlaces((), (), tuple(offset for places in ranks for offset in places.offsets), ranks)

    def write_inputs(self, places: Places, inputs: Mapping[str, torch.Tensor]) -> None:
        """Copy to every rank its share of the private `inputs`."""
        for rank, (memory, own) in enumerate(self._each(places)):
            memory.write_inputs(own, self._share(inputs, rank))

    def inputs_intact(self, places: Places, inputs: Mapping[str, torch.Tensor]) -> bool:
        """Say whether the inputs of every rank still equal the private copies."""
        each = enumerate(self._each(places))
        return all(memory.inputs_intact(own, self._share(inputs, rank)) for rank, (memory, own) in each)

    def write_filler(self, places: Places, content: Content, generator: np.random.Generator) -> None:
        """Overwrite the outputs of every rank and their guards with filler, of every rank another."""
        for memory, own in self._each(places):
            memory.write_filler(own, content, generator)

    def holds_filler(self, places: Places, content: Content, generator: np.random.Generator) -> bool:
        """Say whether no rank has written anything."""
        return all(memory.holds_filler(own, content, generator) for memory, own in self._each(places))

    def outputs_in_place(self, places: Places) -> dict[str, torch.Tensor]:
        """Return zero-copy tensors over all outputs by their names with the rank."""
        return {
            ranked(rank, name): output
            for rank, (memory, own) in enumerate(self._each(places))
            for name, output in memory.outputs_in_place(own).items()
        }

    def fingerprint(self, places: Places, content: Content) -> str:
        """Return one fingerprint over the outputs of all ranks."""
        marks = (int(memory.fingerprint(own, content), 16) for memory, own in self._each(places))
        return f"{sum((2 * rank + 1) * mark for rank, mark in enumerate(marks)) & _WORD:016x}"

    def copy_outputs(self, places: Places) -> tuple[torch.Tensor, ...]:
        """Return copies of the bytes of all outputs."""
        return tuple(copy for memory, own in self._each(places) for copy in memory.copy_outputs(own))

    def outputs_still(self, places: Places, copies: tuple[torch.Tensor, ...]) -> bool:
        """Say whether all outputs are what `copy_outputs` found."""
        count = len(copies) // len(self.ranks)
        each = enumerate(self._each(places))
        return all(memory.outputs_still(own, copies[rank * count : (rank + 1) * count]) for rank, (memory, own) in each)

    def guards(self, places: Places) -> Guards:
        """Return what the guards of all outputs hold now."""
        return Guards(tuple(piece for memory, own in self._each(places) for piece in memory.guards(own).pieces))

    def close(self) -> None:
        """Drop the descriptors."""
        for memory in self.ranks:
            memory.close()

    def _each(self, places: Places) -> Sequence[tuple[CallMemory, Places]]:
        assert isinstance(places, GroupPlaces)
        return list(zip(self.ranks, places.ranks, strict=True))

    def _share(self, inputs: Mapping[str, torch.Tensor], rank: int) -> dict[str, torch.Tensor]:
        return {name: tensor[rank] if name in self._per_rank else tensor for name, tensor in inputs.items()}


def share(slot: Slot, tensors: Tensors, rank: int) -> dict[str, torch.Tensor]:
    """Return what one rank gets of tensors that were drawn for all."""
    return {name: tensor[rank] if name in slot.per_rank else tensor for name, tensor in tensors.items()}


def ranked(rank: int, name: str) -> str:
    """Return the name of an output of one rank."""
    return f"rank {rank} {name}"
