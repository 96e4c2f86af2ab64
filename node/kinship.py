"""What a submission shares with an earlier one, as a document that a job keeps and commands show.

Invariants
1. A kinship of kind "copy" belongs to a verdict; one of kind "resembles" is information for people and decides nothing.
2. Names in it come from bundles: they are printable, bounded, and only shown.
"""

from __future__ import annotations

import msgspec

COPY, RESEMBLES = "copy", "resembles"
_TOLD = 3  # parts named in one sentence


class SharedPart(msgspec.Struct, frozen=True):
    """One part of a bundle and its counterpart in the earlier one. `is_equal`: the constants are the same too."""

    ours: str
    earlier: str
    weight: int
    is_equal: bool


class Kinship(msgspec.Struct, frozen=True):
    """What a submission shares with an earlier one, the largest parts first; the shares are by weight, in ppm.

    `kind` is "copy" when the verdict says so, and "resembles" when nothing follows from it.
    """

    kind: str
    submission_id: str
    hotkey: str
    block: int
    equal_ppm: int
    alike_ppm: int
    parts: tuple[SharedPart, ...]


def encode(found: Kinship) -> str:
    """Return the JSON that a job keeps."""
    return msgspec.json.encode(found).decode()


def decode(text: str) -> Kinship | None:
    """Return the kinship that a job keeps, None for none."""
    return msgspec.json.decode(text, type=Kinship) if text else None


def told(found: Kinship) -> str:
    """Return the shared parts in words, the largest ones."""
    def pair(part: SharedPart) -> str:
        return f"{part.ours} = {part.earlier}{'' if part.is_equal else ' (but for constants)'}"

    more = f" and {len(found.parts) - _TOLD} more" if len(found.parts) > _TOLD else ""
    return ", ".join(map(pair, found.parts[:_TOLD])) + more
