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


def load_entry(location: str) -> Entry:
    """Import "module:function" and return the function."""
    module, _, function = location.partition(":")
    return cast(Entry, getattr(importlib.import_module(module), function))
