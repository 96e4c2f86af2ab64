"""What the referee writes into calls: inputs, filler and the keyed fingerprints, all derived from the sealed seed.

Invariants
1. Every draw comes from Philox keyed with the first 16 bytes of `scoring.sealing.derive(seed, attempt, purpose,
   indices)`, so that anyone holding the seed repeats it: "bank", "key", "inputs", "weights", "places", "filler".
2. Inputs of a call are the weighted sum of two windows, at fresh offsets, of one bank of N(0,1) values, scaled and
   shifted afresh. Two windows, because sums over one window could be had from prefix sums of a bank that an arm has
   seen in earlier calls; sums over products of two windows at any distance cannot.
3. Filler looks like results: it is the same kind of data as an output, at an unpredictable offset, never a constant.
4. Fingerprints are multilinear sums modulo 2^64 under a key that never enters an arm. They name contents in the
   evidence and decide nothing: changes to the top bits of words cancel each other, so bytes are compared with copies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from qualify.dtypes import DTYPES
from scoring import sealing

SLACK = 1 << 20  # values (and words) of freedom for the offset of a window


@dataclass(frozen=True, slots=True)
class Style:
    """A distribution of inputs: scale is drawn log-uniformly, shift uniformly from -shift to shift."""

    name: str
    scale_low: float
    scale_high: float
    shift: float = 0.0
    cubed: bool = False  # heavy tails
    per_row: bool = False  # every row draws its own scale
    crowd: bool = False  # of an edge: it takes many rows to show


NORMAL = Style("normal", 0.5, 2.0)
SHIFTED = Style("shifted", 0.5, 2.0, shift=5.0)
SCALED = Style("scaled", 5.0, 15.0)
SMALL = Style("small", 0.01, 0.1)
HEAVY = Style("heavy", 0.5, 2.0, cubed=True)
ROWS = Style("rows", 0.05, 20.0, per_row=True)


# Asked by the slots that name them in `Slot.edges`, which say what they mean there.
DENORMAL = Style("denormal", 1e-41, 1e-39)
INTEGERS = Style("integers", 1.0, 1.0)  # small whole numbers: the arithmetic of the slot is exact
LARGE = Style("large", 1.0, 1.0)  # logits that overflow an exponential
RAGGED = Style("ragged", 1.0, 1.0, crowd=True)  # lengths at the edges of what is legal, bait beyond them
CROWDED = Style("crowded", 1.0, 1.0, crowd=True)  # all tokens choose the same experts
PADDED = Style("padded", 1.0, 1.0)  # huge values where nothing may be read
SCALARS = Style("scalars", 0.5, 2.0)  # scalars that no model has, and inputs for which they matter

TIMED_STYLES = (NORMAL, SHIFTED, SCALED)
ALL_STYLES = (NORMAL, SHIFTED, SCALED, HEAVY, ROWS, SMALL)


class Content:
    """The sealed source of everything random inside one attempt."""

    def __init__(self, seed: bytes, attempt_id: str, *, dtype: str, elements: int, words: int) -> None:
        """`elements` is the largest tensor of a call, `words` the largest fingerprinted range in 8-byte words."""
        self._seed = seed
        self._attempt_id = attempt_id
        bank = self.generator("bank").standard_normal(elements + SLACK, dtype=np.float32)
        self._bank = torch.from_numpy(bank)
        size = max(words + SLACK, self._bank.numel() * DTYPES[dtype].itemsize // 8)
        filler = self._bank.mul(0.7).to(DTYPES[dtype]).view(torch.uint8)
        filler = filler[: filler.numel() // 8 * 8].view(torch.int64)
        self._filler = filler.repeat(-(-size // filler.numel()))
        key = self.generator("key").integers(0, 1 << 63, size=words, dtype=np.uint64)
        self._key = torch.from_numpy(key.view(np.int64)).mul_(2).add_(1)  # odd: no bit of a word is lost

    def generator(self, purpose: str, *indices: int) -> np.random.Generator:
        """Return the generator of one named choice."""
        digest = sealing.derive(self._seed, self._attempt_id, purpose, *indices)
        return np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "big")))

    def fill(self, target: torch.Tensor, style: Style, generator: np.random.Generator) -> None:
        """Write fresh values of `style` into `target` (any shape, any float dtype)."""
        first, second = (self._window(target, int(generator.integers(0, SLACK))) for _ in range(2))
        mix = float(generator.uniform(0.25, 0.75))
        low, high = math.log(style.scale_low), math.log(style.scale_high)
        scale = math.exp(generator.uniform(low, high))
        if style.cubed:
            first = first.pow(3)
        torch.add(first, second, alpha=mix, out=target)
        if style.per_row and target.ndim > 1:
            rows = np.exp(generator.uniform(low, high, size=target.shape[0])).astype(np.float32)
            target.mul_(torch.from_numpy(rows).view(-1, *(1,) * (target.ndim - 1)).to(target.dtype))
        else:
            target.mul_(scale)
        if style.shift:
            target.add_(float(generator.uniform(-style.shift, style.shift)))

    def _window(self, target: torch.Tensor, offset: int) -> torch.Tensor:
        return self._bank[offset : offset + target.numel()].view(target.shape)

    def perturb(self, target: torch.Tensor, generator: np.random.Generator) -> None:
        """Change about one value in sixteen of `target` to another plausible value, at unpredictable places."""
        flat = target.view(-1)
        count = max(1, flat.numel() // 16)
        places = torch.from_numpy(generator.integers(0, flat.numel(), size=count))
        offset = int(generator.integers(0, SLACK))
        flat[places] = self._bank[offset : offset + count].to(flat.dtype)

    def fill_words(self, words: torch.Tensor, generator: np.random.Generator) -> None:
        """Overwrite int64 `words` with data-like filler."""
        offset = int(generator.integers(0, SLACK // 2))
        words.copy_(self._filler[offset : offset + words.numel()])

    def holds_fill(self, words: torch.Tensor, generator: np.random.Generator) -> bool:
        """Say whether `words` still are what `fill_words` wrote with the same draws."""
        offset = int(generator.integers(0, SLACK // 2))
        return torch.equal(words, self._filler[offset : offset + words.numel()])

    def fingerprint(self, words: torch.Tensor) -> str:
        """Return the keyed 64-bit fingerprint of int64 `words` as 16 hex characters."""
        total = int(torch.dot(words, self._key[: words.numel()]))
        return f"{total & 0xFFFF_FFFF_FFFF_FFFF:016x}"

    def fingerprint_inputs(self, inputs: Mapping[str, torch.Tensor]) -> str:
        """Return one fingerprint over private copies of a call's inputs."""
        total = 0
        for tensor in inputs.values():
            raw = tensor.reshape(-1).view(torch.uint8)
            whole = raw[: raw.numel() // 8 * 8].view(torch.int64)
            total = total * 3 + int(torch.dot(whole, self._key[: whole.numel()]))
            for index, byte in enumerate(raw[whole.numel() * 8 :].tolist()):
                total += byte * int(self._key[index])
        return f"{total & 0xFFFF_FFFF_FFFF_FFFF:016x}"


class Source:
    """One named choice of an attempt's content: what a slot draws the inputs or weights of a call from."""

    def __init__(self, content: Content, generator: np.random.Generator) -> None:
        self._content = content
        self._generator = generator

    def fill(self, target: torch.Tensor, style: Style, scale: float = 1.0) -> None:
        """Write fresh values of `style`, times `scale`, into `target` (any shape, any float dtype)."""
        self._content.fill(target, style, self._generator)
        if scale != 1.0:
            target.mul_(scale)

    def perturb(self, target: torch.Tensor) -> None:
        """Change about one value in sixteen of `target` to another plausible value, at unpredictable places."""
        self._content.perturb(target, self._generator)

    def uniform(self, target: torch.Tensor, low: float, high: float) -> None:
        """Write independent values from [low, high) into `target`."""
        values = self._generator.random(target.numel(), dtype=np.float32)
        target.copy_(torch.from_numpy(values).view(target.shape).mul_(high - low).add_(low))

    def integers(self, target: torch.Tensor, low: int, high: int) -> None:
        """Write independent integers from `low` to `high`, both included, into `target`."""
        values = self._generator.integers(low, high, size=target.numel(), endpoint=True, dtype=np.int64)
        target.copy_(torch.from_numpy(values).view(target.shape))

    def choices(self, target: torch.Tensor, count: int) -> None:
        """Write into every row of `target`, (rows, k), k different integers below `count`, in no order."""
        rows, width = target.shape
        keys = self._generator.random((rows, count), dtype=np.float32)
        target.copy_(torch.from_numpy(np.argpartition(keys, width - 1, axis=1)[:, :width].copy()))

    def permutation(self, target: torch.Tensor) -> None:
        """Write the integers below its length into the vector `target`, in random order."""
        target.copy_(torch.from_numpy(self._generator.permutation(target.numel())))

    def scalar(self, low: float, high: float) -> float:
        """Return one number between two positive ones, all magnitudes alike."""
        return math.exp(self._generator.uniform(math.log(low), math.log(high)))

    def index(self, count: int) -> int:
        """Return one integer below `count`."""
        return int(self._generator.integers(0, count))
