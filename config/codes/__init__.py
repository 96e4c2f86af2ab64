"""The documented error codes, one TOML file per room, read by `cacheon explain` and checked by a test."""

from __future__ import annotations

import functools
from importlib import resources

import msgspec
import tomli


class CodeDocument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one stable code means: who has to act, one sentence, and the long text."""

    blame: str
    summary: str
    explain: str


@functools.cache
def load_codes() -> dict[str, CodeDocument]:
    """Return every documented code. A code that two rooms document must be documented identically."""
    codes: dict[str, CodeDocument] = {}
    for item in sorted(resources.files("config.codes").iterdir(), key=lambda entry: entry.name):
        if item.name.endswith(".toml"):
            codes.update(msgspec.convert(tomli.loads(item.read_text("utf-8")), dict[str, CodeDocument]))
    return codes
