"""What an arm is told when it starts: the slot, the implementations it may be asked to run, and nothing else."""

from __future__ import annotations

import msgspec

ENGINE_MOUNT = "/engine"  # where bundles of engine trees are mounted


class Implementation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Stock (all fields empty), or one entry of the bundle whose files lie in `root`, below the mount.

    With `override` the entry fills that point of the slot's base kernel (`qualify.override`).
    """

    root: str = ""
    source: str = ""
    entry: str = ""
    prepare: str = ""  # name of the load-time half, for slots that have one
    override: str = ""

    @property
    def is_stock(self) -> bool:
        """Say whether this is the slot's stock implementation."""
        return not self.source


class ArmPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The argument of an arm process. `hello` (hex) is the nonce its READY frame has to echo."""

    slot: str
    dtype: str
    threads: int
    hello: str
    implementations: tuple[Implementation, ...]


def encode_plan(plan: ArmPlan) -> bytes:
    """Return the bytes handed to the arm process."""
    return msgspec.json.encode(plan)


def decode_plan(data: bytes) -> ArmPlan:
    """Read them again inside the arm."""
    return msgspec.json.decode(data, type=ArmPlan)
