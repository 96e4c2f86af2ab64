"""Where the tensors of one call lie in an arm's memory, and what the referee writes there before the call.

Invariants
1. Every call has fresh places: offsets are drawn per call and alternate between two halves of each file.
2. Before a call its whole output range, guards included, is overwritten with filler; a guard that changed is a write
   outside the output.
3. Two calls in a row use different halves, so an output can be looked at again after the arm has run once more.
4. Weights are written once, before the arm may run, and lie in a file of their own that the arm can only read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from qualify.content import Content
from qualify.dtypes import DTYPES
from qualify.memory import ALIGNMENT, Region, SharedFile, tensor_bytes
from qualify.slots.base import Argument, Dimensions, Slot, Tensors

GUARD = 1024  # bytes of filler on both sides of every output
_FREEDOM = 64 * 1024  # bytes by which a tensor's place may vary

WeightKey = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """Where one tensor lies: byte offset, shape, dtype, and the elements between its rows."""

    argument: Argument
    offset: int
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def region(self) -> Region:
        """The bytes of the tensor, padding included."""
        return Region(self.offset, tensor_bytes(self.shape, self.dtype, self.argument.pad))

    def view(self, file: SharedFile) -> torch.Tensor:
        """Return the tensor, zero-copy."""
        return file.view(self.offset, self.shape, self.dtype, self.argument.pad)


@dataclass(frozen=True, slots=True)
class Places:
    """Where one call's tensors lie, in the slot's argument order."""

    inputs: tuple[Place, ...]
    outputs: tuple[Place, ...]
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Guards:
    """Copies of the bytes that belong to nobody: around outputs, and between their rows."""

    pieces: tuple[torch.Tensor, ...]

    def still(self, now: Guards) -> bool:
        """Say whether nothing changed."""
        return all(torch.equal(before, after) for before, after in zip(self.pieces, now.pieces, strict=True))


class CallMemory:
    """The shared files of one arm, laid out for the largest call of an attempt."""

    def __init__(
        self, slot: Slot, dtype: str, cases: tuple[Dimensions, ...], weights: Mapping[WeightKey, Tensors] | None = None
    ) -> None:
        """`weights` are the sets that calls of `cases` use, by `Slot.weight_key`. Raises `OSError`."""
        self._slot = slot
        self._dtype = DTYPES[dtype]
        self._half_inputs = max(self._span(case, "input") for case in cases)
        self._half_outputs = max(self._span(case, "output") for case in cases)
        self._files: list[SharedFile] = []
        self._weight_offsets: dict[WeightKey, tuple[int, ...]] = {}
        try:
            self.inputs = self._file("cacheon-inputs", 2 * self._half_inputs, arm_may_write=False)
            self.outputs = self._file("cacheon-outputs", 2 * self._half_outputs, arm_may_write=True)
            if weights:
                self._write_weights(weights)
        except OSError:
            self.close()
            raise

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The files in the order an arm gets them."""
        return tuple(file.fd for file in self._files)

    def weight_offsets(self, key: WeightKey) -> tuple[int, ...]:
        """Return where the tensors of one set of weights lie, in the order of `Slot.weights`."""
        return self._weight_offsets[key]

    def _file(self, name: str, size: int, *, arm_may_write: bool) -> SharedFile:
        file = SharedFile(name, size, arm_may_write=arm_may_write)
        self._files.append(file)
        return file

    def _write_weights(self, weights: Mapping[WeightKey, Tensors]) -> None:
        cursor, tensors = 0, []
        for key, one in weights.items():
            offsets = []
            for tensor in one.values():
                offsets.append(cursor)
                tensors.append((cursor, tensor))
                cursor += -(-tensor.nbytes // ALIGNMENT) * ALIGNMENT
            self._weight_offsets[key] = tuple(offsets)
        file = self._file("cacheon-weights", cursor, arm_may_write=False)
        for offset, tensor in tensors:
            file.view(offset, tuple(tensor.shape), tensor.dtype).copy_(tensor)

    def place(self, dimensions: Dimensions, half: int, generator: np.random.Generator) -> Places:
        """Draw fresh places for one call in half 0 or 1 of both files."""
        shapes = self._slot.shapes(dimensions)
        cursors: dict[str, int] = {"input": half * self._half_inputs, "output": half * self._half_outputs}
        places: dict[str, list[Place]] = {"input": [], "output": []}
        offsets = []
        for argument in self._slot.tensors():
            guard = GUARD if argument.role == "output" else 0
            gap = int(generator.integers(0, _FREEDOM // ALIGNMENT)) * ALIGNMENT
            start = cursors[argument.role] + gap + guard
            place = Place(argument, start, shapes[argument.name], argument.torch_dtype(self._dtype))
            places[argument.role].append(place)
            offsets.append(start)
            cursors[argument.role] = start + -(-place.region.size // ALIGNMENT) * ALIGNMENT + guard
        return Places(tuple(places["input"]), tuple(places["output"]), tuple(offsets))

    def write_inputs(self, places: Places, inputs: Mapping[str, torch.Tensor]) -> None:
        """Copy the private `inputs` into place."""
        for place in places.inputs:
            place.view(self.inputs).copy_(inputs[place.argument.name])

    def inputs_intact(self, places: Places, inputs: Mapping[str, torch.Tensor]) -> bool:
        """Say whether the inputs in place still equal the private copies, byte for byte."""
        return all(
            torch.equal(_bits(place.view(self.inputs)), _bits(inputs[place.argument.name])) for place in places.inputs
        )

    def write_filler(self, places: Places, content: Content, generator: np.random.Generator) -> None:
        """Overwrite the call's outputs and their guards with filler."""
        for place in places.outputs:
            content.fill_words(self.outputs.words(_with_guards(place.region)), generator)

    def holds_filler(self, places: Places, content: Content, generator: np.random.Generator) -> bool:
        """Say whether the outputs still are what `write_filler` wrote with the same draws."""
        return all(
            content.holds_fill(self.outputs.words(_with_guards(place.region)), generator) for place in places.outputs
        )

    def outputs_in_place(self, places: Places) -> dict[str, torch.Tensor]:
        """Return zero-copy tensors over the call's outputs."""
        return {place.argument.name: place.view(self.outputs) for place in places.outputs}

    def fingerprint(self, places: Places, content: Content) -> str:
        """Return one fingerprint over all outputs of the call."""
        marks = [content.fingerprint(self.outputs.words(place.region)) for place in places.outputs]
        return marks[0] if len(marks) == 1 else f"{sum(int(mark, 16) for mark in marks) & (1 << 64) - 1:016x}"

    def copy_outputs(self, places: Places) -> tuple[torch.Tensor, ...]:
        """Return copies of the bytes of the call's outputs."""
        return tuple(self.outputs.words(place.region).clone() for place in places.outputs)

    def outputs_still(self, places: Places, copies: tuple[torch.Tensor, ...]) -> bool:
        """Say whether the call's outputs are what `copy_outputs` found, byte for byte."""
        words = (self.outputs.words(place.region) for place in places.outputs)
        return all(torch.equal(now, before) for now, before in zip(words, copies, strict=True))

    def guards(self, places: Places) -> Guards:
        """Return what the guards of the call's outputs hold now."""
        pieces: list[torch.Tensor] = []
        for place in places.outputs:
            region, pad = place.region, place.argument.pad
            end = region.offset + region.size  # not always that of a word
            around = (Region(region.offset - GUARD, GUARD), Region(end, GUARD))
            pieces.extend(self.outputs.octets(guard).clone() for guard in around)
            if pad:
                whole = (*place.shape[:-1], place.shape[-1] + pad)
                rows = self.outputs.view(place.offset, whole, place.dtype)
                pieces.append(rows[..., place.shape[-1] :].clone().view(torch.uint8))
        return Guards(tuple(pieces))

    def close(self) -> None:
        """Drop the descriptors."""
        for file in self._files:
            file.close()

    def _span(self, dimensions: Dimensions, role: str) -> int:
        total = 0
        shapes = self._slot.shapes(dimensions)
        for argument in self._slot.tensors():
            if argument.role == role:
                size = tensor_bytes(shapes[argument.name], argument.torch_dtype(self._dtype), argument.pad)
                total += -(-size // ALIGNMENT) * ALIGNMENT + _FREEDOM + 2 * GUARD
        return total


def _with_guards(region: Region) -> Region:
    return Region(region.offset - GUARD, region.size + 2 * GUARD)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes of a contiguous tensor in the widest integers that divide them."""
    raw = tensor.reshape(-1).view(torch.uint8)
    return raw.view(torch.int64) if raw.numel() % 8 == 0 else raw


def words_needed(slot: Slot, dtype: str, cases: tuple[Dimensions, ...]) -> tuple[int, int]:
    """Return (largest tensor in elements, largest filled or fingerprinted range in 8-byte words) over `cases`."""
    elements = size = 0
    for case in cases:
        shapes = slot.shapes(case)
        for argument in (*slot.tensors(), *slot.weights):
            elements = max(elements, math.prod(shapes[argument.name]))
            size = max(size, tensor_bytes(shapes[argument.name], argument.torch_dtype(DTYPES[dtype]), argument.pad))
    return elements, (size + 2 * GUARD) // 8 + 2
