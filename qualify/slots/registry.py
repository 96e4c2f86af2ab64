"""The registered slots. Adding one is one file beside this one and one line here.

Invariant: a slot that is registered is used only after its controls went as they have to (`qualify.slots.admission`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from config.errors import ConfigurationError
from qualify.slots.all_reduce import AllReduce
from qualify.slots.ar_residual_rmsnorm import ArResidualRmsNorm
from qualify.slots.base import Slot
from qualify.slots.decode import Decode
from qualify.slots.fused_experts import FusedExperts
from qualify.slots.fused_experts_reduce import FusedExpertsReduce
from qualify.slots.model_profiles import (
    MiniMaxExperts,
    MiniMaxExpertsReduce,
    MiniMaxNvfp4Experts,
    MiniMaxNvfp4ExpertsReduce,
)
from qualify.slots.moe_finalize_ar_rmsnorm import MoeFinalizeArRmsNorm
from qualify.slots.msa_block_score import MsaBlockScore
from qualify.slots.msa_prefill_block_score import MsaPrefillBlockScore
from qualify.slots.rmsnorm import RmsNorm
from qualify.slots.sdpa import Sdpa
from qualify.slots.silu_and_mul import SiluAndMul

SLOTS: Mapping[str, Slot] = MappingProxyType(
    {
        slot.id: slot
        for slot in (
            AllReduce(),
            ArResidualRmsNorm(),
            Decode(),
            FusedExperts(),
            FusedExpertsReduce(),
            MoeFinalizeArRmsNorm(),
            MsaBlockScore(),
            MsaPrefillBlockScore(),
            RmsNorm(),
            Sdpa(),
            SiluAndMul(),
        )
    }
)

PROFILES: Mapping[str, Slot] = MappingProxyType(
    {
        slot.key: slot
        for slot in (MiniMaxExperts(), MiniMaxExpertsReduce(), MiniMaxNvfp4Experts(), MiniMaxNvfp4ExpertsReduce())
    }
)


def find_slot(slot_id: str, model: str = "") -> Slot:
    """Return the slot called `slot_id`, or by its `Slot.key`, as `model` uses it.

    Raises `ConfigurationError` (SLOT_UNREGISTERED).
    """
    key = f"{slot_id}@{model}" if model else slot_id
    slot = SLOTS.get(key) or PROFILES.get(key)
    if slot is None:
        known = ", ".join(sorted({*SLOTS, *PROFILES}))
        raise ConfigurationError(
            "SLOT_UNREGISTERED",
            f"there is no reference for slot {key!r} in this build",
            hint=f"slots that can be measured: {known}",
        )
    return slot
