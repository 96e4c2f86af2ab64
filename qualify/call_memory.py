"""Where the tensors of one call lie in an arm's memory, and what the referee writes there before the call.

Invariants
1. Every call has fresh places: offsets are drawn per call and alternate between two halves of each file.
2. Before a call its whole output range, guards included, is overwritten with filler; a guard that changed is a write
   outside the output.
3. Two calls in a row use different halves, so an output can be looked at again after the arm has run once more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from qualify.content import Content
from qualify.memory import ALIGNMENT, Region, SharedFile, tensor_bytes
from qualify.slots.base import DTYPES, Dimensions, Slot

GUARD = 1024  # bytes of filler on both sides of every output
_FREEDOM = 64 * 1024  # bytes by which a tensor's place may vary


@dataclass(frozen=True, slots=True)
class Places:
    """Byte offsets of one call's tensors, in the slot's argument order."""

    offsets: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]
    names: tuple[str, ...]


class CallMemory:
    """The two shared files of one arm, laid out for the largest call of an attempt."""

    def __init__(self, slot: Slot, dtype: str, cases: tuple[Dimensions, ...]) -> None:
        self._slot = slot
        self._dtype = DTYPES[dtype]
        self._half_inputs = max(self._span(case, "input") for case in cases)
        self._half_outputs = max(self._span(case, "output") for case in cases)
        self.inputs = SharedFile("cacheon-inputs", 2 * self._half_inputs, arm_may_write=False)
        try:
            self.outputs = SharedFile("cacheon-outputs", 2 * self._half_outputs, arm_may_write=True)
        except OSError:
            self.inputs.close()
            raise

    def place(self, dimensions: Dimensions, half: int, generator: np.random.Generator) -> Places:
        """Draw fresh places for one call in half 0 or 1 of both files."""
        shapes = self._slot.shapes(dimensions)
        cursors = {"input": half * self._half_inputs, "output": half * self._half_outputs}
        offsets = []
        names = self._slot.tensor_names()
        for argument in self._slot.arguments:
            if argument.role == "scalar":
                continue
            guard = GUARD if argument.role == "output" else 0
            gap = int(generator.integers(0, _FREEDOM // ALIGNMENT)) * ALIGNMENT
            start = cursors[argument.role] + gap + guard
            offsets.append(start)
            size = tensor_bytes(shapes[argument.name], self._dtype)
            cursors[argument.role] = start + -(-size // ALIGNMENT) * ALIGNMENT + guard
        return Places(tuple(offsets), tuple(shapes[name] for name in names), names)

    def write_inputs(self, places: Places, inputs: Mapping[str, torch.Tensor]) -> None:
        """Copy the private `inputs` into place."""
        for name, view in self._views(places, "input").items():
            view.copy_(inputs[name])

    def inputs_intact(self, places: Places, inputs: Mapping[str, torch.Tensor]) -> bool:
        """Say whether the inputs in place still equal the private copies, byte for byte."""
        return all(torch.equal(_bits(view), _bits(inputs[name])) for name, view in self._views(places, "input").items())

    def write_filler(self, places: Places, content: Content, generator: np.random.Generator) -> None:
        """Overwrite the call's outputs and their guards with filler."""
        for region in self._output_regions(places):
            content.fill_words(self.outputs.words(_with_guards(region)), generator)

    def holds_filler(self, places: Places, content: Content, generator: np.random.Generator) -> bool:
        """Say whether the outputs still are what `write_filler` wrote with the same draws."""
        return all(
            content.holds_fill(self.outputs.words(_with_guards(region)), generator)
            for region in self._output_regions(places)
        )

    def outputs_in_place(self, places: Places) -> dict[str, torch.Tensor]:
        """Return zero-copy tensors over the call's outputs."""
        return self._views(places, "output")

    def fingerprint(self, places: Places, content: Content) -> str:
        """Return one fingerprint over all outputs of the call."""
        marks = [content.fingerprint(self.outputs.words(region)) for region in self._output_regions(places)]
        return marks[0] if len(marks) == 1 else f"{sum(int(mark, 16) for mark in marks) & (1 << 64) - 1:016x}"

    def guards(self, places: Places, content: Content) -> str:
        """Return a fingerprint over the guards of the call's outputs."""
        total = 0
        for region in self._output_regions(places):
            end = -(-(region.offset + region.size) // 8) * 8
            for guard in (Region(region.offset - GUARD, GUARD), Region(end, GUARD - 8)):
                total = total * 3 + int(content.fingerprint(self.outputs.words(guard)), 16)
        return f"{total & (1 << 64) - 1:016x}"

    def close(self) -> None:
        """Drop the descriptors."""
        self.inputs.close()
        self.outputs.close()

    def _views(self, places: Places, role: str) -> dict[str, torch.Tensor]:
        file = self.inputs if role == "input" else self.outputs
        roles = {argument.name: argument.role for argument in self._slot.arguments}
        return {
            name: file.view(offset, shape, self._dtype)
            for name, offset, shape in zip(places.names, places.offsets, places.shapes, strict=True)
            if roles[name] == role
        }

    def _output_regions(self, places: Places) -> list[Region]:
        outputs = set(self._slot.names("output"))
        return [
            Region(offset, tensor_bytes(shape, self._dtype))
            for name, offset, shape in zip(places.names, places.offsets, places.shapes, strict=True)
            if name in outputs
        ]

    def _span(self, dimensions: Dimensions, role: str) -> int:
        total = 0
        shapes = self._slot.shapes(dimensions)
        for argument in self._slot.arguments:
            if argument.role == role:
                size = -(-tensor_bytes(shapes[argument.name], self._dtype) // ALIGNMENT) * ALIGNMENT
                total += size + _FREEDOM + 2 * GUARD
        return total


def _with_guards(region: Region) -> Region:
    return Region(region.offset - GUARD, region.size + 2 * GUARD)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes of a contiguous tensor in the widest integers that divide them."""
    raw = tensor.reshape(-1).view(torch.uint8)
    return raw.view(torch.int64) if raw.numel() % 8 == 0 else raw


def words_needed(slot: Slot, dtype: str, cases: tuple[Dimensions, ...]) -> tuple[int, int]:
    """Return (largest tensor in elements, largest filled or fingerprinted range in 8-byte words) over `cases`."""
    sizes = [tensor_bytes(shape, DTYPES[dtype]) for case in cases for shape in slot.shapes(case).values()]
    largest = max(sizes)
    return largest // DTYPES[dtype].itemsize, (largest + 2 * GUARD) // 8 + 2
