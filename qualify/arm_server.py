"""The fork server that arms come from. Importing this module loads no torch; only the server does."""

from __future__ import annotations

from qualify.sandbox.client import Zygote

PRELOAD = ("torch", "qualify.arm")


def start_arm_server() -> Zygote:
    """Start a fork server for arms; close it after use. Raises what `Zygote.start` raises."""
    return Zygote.start(preload=PRELOAD)
