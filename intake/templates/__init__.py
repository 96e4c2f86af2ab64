"""The kernel a new bundle starts from, one TOML file per slot, named by the slot's id.

Invariants
1. A template is data: its source is text that a miner gets, and nothing here imports or runs it.
2. The source computes what the slot's contract asks for in plain torch. It is the place to start from, and as fast as
   that: an entry that nobody changed earns nothing.
3. Every argument of the call and of its load-time half is described, with the names the slot's call ABI gives them.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib import resources
from typing import Any

import msgspec
import tomli


class Template(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One slot's starting point.

    `summary` says what the call computes, `arguments` gives shape and type by argument name, `reports` names the
    capability fields of a live call beside those that every call has, and `metadata` is what the row's metadata says.
    """

    summary: str
    source: str
    arguments: dict[str, str]
    reports: tuple[str, ...] = ()
    metadata: dict[str, Any] = {}


@functools.cache
def load_templates() -> Mapping[str, Template]:
    """Return every template by slot id, sorted."""
    templates = {}
    for item in sorted(resources.files("intake.templates").iterdir(), key=lambda entry: entry.name):
        if item.name.endswith(".toml"):
            slot = item.name.removesuffix(".toml")
            templates[slot] = msgspec.convert(tomli.loads(item.read_text("utf-8")), Template)
    return templates
