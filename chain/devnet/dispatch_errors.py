"""The wire form of dispatch errors."""

from __future__ import annotations

from typing import Any

from chain.devnet.codec import Codec
from chain.devnet.faults import DispatchError


def error_value(codec: Codec, error: DispatchError) -> Any:
    """Return the value that encodes as the metadata's `DispatchError`."""
    index, number = codec.module_error(error.pallet, error.name)
    return {"Module": {"index": index, "error": bytes([number, 0, 0, 0])}}
