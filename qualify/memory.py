"""Memory shared by the referee and one arm: inputs the arm can only read, outputs it can write.

Invariants
1. The referee creates, sizes and seals both memory files; the arm chooses no size, address or lifetime.
2. Inputs are sealed against every later writable mapping and every write call (`F_SEAL_FUTURE_WRITE`); the referee
   writes through a mapping made before the seal. An arm that stores into an input faults.
3. Neither file can shrink, grow or take another seal, so the referee's reads cannot fault.
4. One pair of files belongs to one arm and is dropped with it; nothing an arm touched is used again.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import warnings
from dataclasses import dataclass

import torch

PAGE = mmap.PAGESIZE
ALIGNMENT = 64  # bytes; every tensor starts on a cache line

# Linux constants that the standard library does not name before Python 3.13.
_F_SEAL_FUTURE_WRITE = 0x0010


@dataclass(frozen=True, slots=True)
class Region:
    """A byte range inside one of the two files."""

    offset: int
    size: int


class SharedFile:
    """One sealed memory file, mapped writable in the referee. `view` gives zero-copy tensors over it."""

    def __init__(self, name: str, size: int, *, arm_may_write: bool) -> None:
        self.size = -(-size // PAGE) * PAGE
        self.fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.fd, self.size)
            self._map = mmap.mmap(self.fd, self.size, mmap.MAP_SHARED | mmap.MAP_POPULATE)
            seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
            if not arm_may_write:
                seals |= _F_SEAL_FUTURE_WRITE
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, seals)
        except OSError:
            os.close(self.fd)
            raise
        self._bytes = torch.frombuffer(self._map, dtype=torch.uint8)

    def view(self, offset: int, shape: tuple[int, ...], dtype: torch.dtype, pad: int = 0) -> torch.Tensor:
        """Return a row-major tensor of `shape` and `dtype` over the bytes at `offset`, `pad` elements between rows."""
        return self._bytes.view(dtype).as_strided(shape, strides(shape, pad), offset // dtype.itemsize)

    def octets(self, region: Region) -> torch.Tensor:
        """Return exactly the bytes of `region`."""
        return self._bytes[region.offset : region.offset + region.size]

    def words(self, region: Region) -> torch.Tensor:
        """Return the int64 words that cover `region` (aligned down and up to 8 bytes)."""
        start = region.offset // 8 * 8
        end = min(-(-(region.offset + region.size) // 8) * 8, self.size)
        return self._bytes[start:end].view(torch.int64)

    def close(self) -> None:
        """Drop the descriptor; the mapping goes with the last tensor over it."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class ArmMemory:
    """The same files as the arm sees them: inputs and weights read-only, outputs writable."""

    def __init__(self, input_fd: int, output_fd: int, weight_fd: int = -1) -> None:
        self._inputs = _map_readonly(input_fd)
        outputs = mmap.mmap(output_fd, os.fstat(output_fd).st_size, mmap.MAP_SHARED | mmap.MAP_POPULATE)
        self._outputs = _Views(torch.frombuffer(outputs, dtype=torch.uint8))
        self._weights = _map_readonly(weight_fd) if weight_fd >= 0 else self._inputs

    def input(self, offset: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Return a read-only zero-copy tensor over the inputs."""
        return self._inputs.at(offset, shape, dtype)

    def weight(self, offset: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Return a read-only zero-copy tensor over the weights."""
        return self._weights.at(offset, shape, dtype)

    def output(self, offset: int, shape: tuple[int, ...], dtype: torch.dtype, pad: int = 0) -> torch.Tensor:
        """Return a writable zero-copy tensor over the outputs, with `pad` elements between rows."""
        return self._outputs.at(offset, shape, dtype, pad)


class _Views:
    """Contiguous tensors over one mapping, each made by a single call of torch: it is made inside a timed interval."""

    def __init__(self, raw: torch.Tensor) -> None:
        self._raw = raw
        self._typed: dict[torch.dtype, torch.Tensor] = {}

    def at(self, offset: int, shape: tuple[int, ...], dtype: torch.dtype, pad: int = 0) -> torch.Tensor:
        whole = self._typed.get(dtype)
        if whole is None:
            whole = self._typed[dtype] = self._raw.view(dtype)  # whole pages: every item size divides them
        return whole.as_strided(shape, strides(shape, pad), offset // dtype.itemsize)


def _map_readonly(descriptor: int) -> _Views:
    size = os.fstat(descriptor).st_size
    mapping = mmap.mmap(descriptor, size, mmap.MAP_SHARED | mmap.MAP_POPULATE, mmap.PROT_READ)
    with warnings.catch_warnings():
        # torch warns that it cannot protect read-only buffers; here the kernel does.
        warnings.simplefilter("ignore")
        return _Views(torch.frombuffer(mapping, dtype=torch.uint8))


def touch_pages(tensor: torch.Tensor) -> None:
    """Read one byte of every page that the elements of `tensor` lie in, so that the processor knows where they are."""
    first = tensor.storage_offset() * tensor.itemsize
    last = (
        first
        + sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride(), strict=True))
        * tensor.itemsize
    )
    raw = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
    raw[first : last + 1 : PAGE].sum()


def strides(shape: tuple[int, ...], pad: int = 0) -> tuple[int, ...]:
    """Return row-major strides, in elements, with `pad` elements after every row of the last axis."""
    steps, step = [], 1
    for extent in reversed(shape):
        steps.append(step)
        step = step * extent + (pad if len(steps) == 1 else 0)
    return tuple(reversed(steps))


def tensor_bytes(shape: tuple[int, ...], dtype: torch.dtype, pad: int = 0) -> int:
    """Return the size in bytes of a row-major tensor, the padding after its last row included."""
    elements = _elements((*shape[:-1], shape[-1] + pad)) if shape else 1
    return elements * dtype.itemsize


def _elements(shape: tuple[int, ...]) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count
