"""The parts that a bundle's fingerprint is made of, as a report lists them.

Invariants
1. A part is a function, a kernel, a constant, a CUDA declaration or a patched file that an entry reaches. Its digest is
   its normal form alone, blind to its name and to what it refers to. Names are printable text.
2. A report lists the heaviest parts only, so its size is bounded; nothing is decided by what is left out.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

PYTHON, CUDA, PATCH = "python", "cuda", "patch"
_LISTED = 256
_NAME = 160  # characters


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One part: where it is, the digest of its normal form, the same with all constants alike, and its tokens."""

    kind: str
    name: str
    digest: str
    shape: str
    weight: int


def heaviest(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Return the parts that a report lists, heaviest first, with bounded names."""
    ordered = sorted(parts, key=lambda part: (-part.weight, part.name, part.digest))[:_LISTED]
    return tuple(msgspec.structs.replace(part, name=_clipped(part.name)) for part in ordered)


def _clipped(name: str) -> str:
    shown = "".join(char if char.isprintable() else "?" for char in name[:_NAME])
    return shown if len(name) <= _NAME else f"{shown[:-3]}..."
