"""How slots are judged, in words: what look-ups show without loading what judges.

Invariant: `config/slot_judging.toml` is made from the slots themselves (`qualify.slots.judging`); a test compares both.
"""

from __future__ import annotations

import functools
from importlib import resources

import msgspec
import tomli

from config.errors import Blame, ConfigurationError, SourceLocation

_SOURCE = "slot_judging.toml"


class ProfileJudging(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A slot as one model uses it."""

    model: str
    edges: tuple[str, ...]


class SlotJudging(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A slot's edges, the wrong answers that have to be found out before it is used, and models with their own use."""

    edges: tuple[str, ...]
    controls: tuple[str, ...]
    profiles: tuple[ProfileJudging, ...] = ()


class Judging(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All slots, and what each edge is."""

    edges: dict[str, str]
    slots: dict[str, SlotJudging]


@functools.cache
def load_slot_judging() -> Judging:
    """Load the table. Raises `ConfigurationError` (CATALOG_INVALID)."""
    data = (resources.files("config") / _SOURCE).read_bytes()
    try:
        return msgspec.convert(tomli.loads(data.decode("utf-8")), Judging)
    except (UnicodeDecodeError, tomli.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ConfigurationError(
            "CATALOG_INVALID", f"the table of edges is invalid: {error}", location=SourceLocation(f"config/{_SOURCE}"),
            blame=Blame.INTERNAL,
        ) from error
