"""The closed table of code that may run inside a sandbox.

Invariants
1. An entry is named by a key of `ENTRIES`; nothing that arrives from outside names a module.
2. An entry is `function(descriptors, argument) -> None`; its module is imported inside the sandbox unless preloaded.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import cast

Entry = Callable[[tuple[int, ...], bytes], None]

ENTRIES: dict[str, str] = {
    "arm": "qualify.arm:main",
    "intake": "qualify.intake_child:main",
    "probe": "qualify.sandbox.probe_child:main",
}

JOIN = "qualify.rank_group:join"
"""What the ranks of a group do first: `function(rank, ranks) -> None`, code of ours that runs before the filter of
system calls is in force. It may open sockets to the other ranks and start threads; nothing foreign is loaded yet."""


def load_entry(location: str) -> Entry:
    """Import "module:function" and return the function."""
    return cast(Entry, _load(location))


def load_join() -> Callable[[int, int], None]:
    """Return the function `JOIN`."""
    return cast(Callable[[int, int], None], _load(JOIN))


def _load(location: str) -> object:
    module, _, function = location.partition(":")
    return getattr(importlib.import_module(module), function)
