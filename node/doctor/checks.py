"""The one list of everything that is looked at, in the order in which it is reported.

Invariants
1. A required check is what the node asks itself before it serves (`node.services.selfcheck`); no other can stop it.
2. The machine comes before the chain: a broken installation is named while the chain is away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from node.doctor import configuration, isolation, machine
from node.doctor.check import CHAIN_SECONDS, Check, Finding, Subject


def _later(module: str, name: str) -> Callable[[Subject], Iterable[Finding]]:
    """Return a look whose module is imported by the thread that looks: the store and the chain SDK are slow to load."""

    def look(subject: Subject) -> Iterable[Finding]:
        import importlib

        found: Iterable[Finding] = getattr(importlib.import_module(f"node.doctor.{module}"), name)(subject)
        return found

    return look


HOST_CHECKS: tuple[Check, ...] = (
    Check("settings.file", configuration.look_settings, required=True),
    Check("settings.waivers", configuration.look_waivers, required=True, needs_settings=True),
    Check("settings.arena", configuration.look_arena, required=True, needs_settings=True),
    Check("machine", machine.look_machine),
    Check("machine.home", machine.look_home, required=True),
    Check("machine.packages", machine.look_packages, required=True),
    Check("machine.cores", machine.look_cores, required=True),
    Check("machine.memory", machine.look_memory, required=True),
    Check("machine.containers", _later("containers", "look_containers"), required=True),
    Check("worker", _later("worker", "look_worker"), 240.0, required=True),
    Check("clock", _later("clock", "look_clock")),
    Check("wallet.hotkey", _later("wallet", "look_wallet"), required=True, needs_settings=True),
    Check("disk.state", _later("disk", "look_state"), required=True, needs_settings=True),
    Check("disk.store", _later("disk", "look_store"), required=True, needs_settings=True),
    Check("disk", _later("disk", "look_disk"), needs_settings=True),
    Check("disk.temporary", _later("disk", "look_temporary")),
    Check("isolation", isolation.look_layers, 120.0, required=True),
    Check("isolation.intake", isolation.look_screener, 120.0, required=True),
    Check("device", _later("device", "look_device"), required=True),
)
CHECKS: tuple[Check, ...] = (
    *HOST_CHECKS,
    Check("chain", _later("chain", "look_chain"), CHAIN_SECONDS, required=True, needs_settings=True),
)
