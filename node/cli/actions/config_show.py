"""`cacheon config show`: the settings as the node would see them, and where each came from."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec

from node.cli.output import Output
from node.cli.resolve import resolve

if TYPE_CHECKING:
    from rich.console import Console


class KeyRow(msgspec.Struct, frozen=True):
    """One setting: dotted key, value, and the layer that set it."""

    key: str
    value: object
    origin: str


def run(config: str | None, *, origin: bool, as_json: bool) -> None:
    """Print the resolved settings. Raises `ConfigurationError`."""
    resolved = resolve(config)
    values = _flat(msgspec.to_builtins(resolved.settings))
    rows = [KeyRow(key, values[key], resolved.origins[key]) for key in resolved.origins]
    Output("config show", as_json=as_json).result(rows, lambda console: _show(console, rows, origin=origin))


def _flat(document: dict[str, object]) -> dict[str, object]:
    flat: dict[str, object] = {}
    for name, value in document.items():
        inner = value if isinstance(value, dict) else None
        flat.update({f"{name}.{key}": item for key, item in inner.items()} if inner is not None else {name: value})
    return flat


def _show(console: Console, rows: list[KeyRow], *, origin: bool) -> None:
    section = ""
    for row in sorted(rows, key=lambda row: ("." in row.key, row.key.partition(".")[0])):
        head, dot, name = row.key.rpartition(".")
        if dot and head != section:
            section = head
            console.print(f"\n[{section}]", markup=False, soft_wrap=True)
        # TOML has no null: a key without a value is shown as a comment, so that the output stays a settings file
        text = f"# {name} is not set" if row.value is None else f"{name} = {json.dumps(row.value, ensure_ascii=False)}"
        suffix = f"  # {row.origin}" if origin else ""
        console.print(f"{text}{suffix}", markup=False, soft_wrap=True)
