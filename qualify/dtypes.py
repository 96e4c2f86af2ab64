"""The dtypes a call may have, by the names the bundle format uses."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import torch

DTYPES: Mapping[str, torch.dtype] = MappingProxyType(
    {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
)
FIXED_DTYPES: Mapping[str, torch.dtype] = MappingProxyType({"float32": torch.float32, "int32": torch.int32})
"""Dtypes that a single argument may have whatever the dtype of the call is."""
