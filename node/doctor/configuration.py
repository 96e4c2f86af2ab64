"""Settings, waivers and arena: what the operator decided.

Invariants
1. Only layers that the sandbox lets go can be waived; a waiver of any other is an error of the settings.
2. A waiver in force is always shown.
"""

from __future__ import annotations

import difflib

from config.arena import Arena, load_arena
from config.errors import ConfigurationError
from config.settings import Settings
from config.target_catalog import TargetCatalog, load_catalog
from node.doctor.check import Finding, Subject, failed, passed, settings_of, skipped, warned
from qualify.sandbox.layers import LAYERS


def require_state_dir(settings: Settings) -> str:
    """Return the state folder's setting. Raises `ConfigurationError` (STATE_DIR_MISSING)."""
    if not settings.state_dir:
        raise ConfigurationError(
            "STATE_DIR_MISSING", "`state_dir` is not set",
            hint="give the node a folder of its own in the settings file, CACHEON_STATE_DIR or a flag",
        )
    return settings.state_dir


def require_waivers(settings: Settings) -> tuple[str, ...]:
    """Return the waived layers. Raises `ConfigurationError` (WAIVER_INVALID) for a name that cannot be waived."""
    waivable = tuple(name for name, layer in LAYERS.items() if layer.waivable)
    wrong = [_refusal(name, waivable) for name in settings.sandbox.waive if name not in waivable]
    if wrong:
        raise ConfigurationError(
            "WAIVER_INVALID", f"sandbox.waive: {'; '.join(wrong)}", hint=f"these can be waived: {', '.join(waivable)}"
        )
    return settings.sandbox.waive


def _refusal(name: str, waivable: tuple[str, ...]) -> str:
    if name in LAYERS:
        return f"{name!r} is required and cannot be waived"
    near = difflib.get_close_matches(name, waivable, 1)
    return f"{name!r} is no isolation layer" + (f" (did you mean {near[0]!r}?)" if near else "")


def require_arena(settings: Settings, catalog: TargetCatalog) -> Arena:
    """Load the configured arena and check it against the catalog.

    Raises `ConfigurationError`: ARENA_NOT_FOUND, ARENA_INVALID, ARENA_TARGET_UNKNOWN.
    """
    arena = load_arena(settings.qualify.arena)
    for workload in arena.workloads:
        target = catalog.find(workload.target)
        if target is None:
            raise ConfigurationError(
                "ARENA_TARGET_UNKNOWN", f"arena {arena.id} measures {workload.target!r}, which is no registered target",
                hint=f"registered targets: {', '.join(sorted(catalog.targets))}",
            )
        if tuple(sorted(workload.members or (workload.target,))) != target.members:
            raise ConfigurationError(
                "ARENA_TARGET_UNKNOWN", f"arena {arena.id} measures {target.id} on other members than it has",
                hint=f"members of {target.id}: {', '.join(target.members)}",
            )
    return arena


def look_settings(subject: Subject) -> tuple[Finding, ...]:
    """The settings can be read and name a state folder."""
    if subject.settings_error is not None:
        return (failed("settings.file", subject.settings_error),)
    if subject.settings is None:
        return (skipped("settings.file", "none given: this looks at the machine only; `-c FILE` looks at a node"),)
    folder = require_state_dir(subject.settings)
    return (passed("settings.file", f"profile {subject.settings.profile}, state in {folder}"),)


def look_waivers(subject: Subject) -> tuple[Finding, ...]:
    """Nothing is given up, or it is named."""
    waived = require_waivers(settings_of(subject))
    if not waived:
        return (passed("settings.waivers", "no isolation layer is given up"),)
    return (
        warned(
            "settings.waivers",
            f"given up in writing: {', '.join(waived)}; status, /readyz, metrics and receipts say so",
            "remove from sandbox.waive what the isolation lines find in force, and mend the rest",
        ),
    )


def look_arena(subject: Subject) -> tuple[Finding, ...]:
    """The arena exists and every target of it is registered."""
    arena = require_arena(settings_of(subject), load_catalog())
    targets = len({workload.target for workload in arena.workloads})
    return (passed("settings.arena", f"{arena.id} ({arena.kind}, {arena.timing_method}), {targets} targets"),)
