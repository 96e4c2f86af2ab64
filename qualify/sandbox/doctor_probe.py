"""What this host offers, found by really running a sandbox.

Invariants
1. A layer is reported present only because a child verified it from inside; nothing is read from settings.
2. The probe never raises for a missing layer: it reports it, waives it where that is possible, and looks further.
3. Layers of other profiles (a cgroup, a graphics device, bubblewrap) are absent or present; only what every run needs
   can be missing.
"""

from __future__ import annotations

import glob
import os
from dataclasses import dataclass
from enum import StrEnum

from config.errors import HostError
from qualify.sandbox.client import SandboxRefused, Zygote
from qualify.sandbox.exec_profile import run_tool
from qualify.sandbox.layers import LAYERS
from qualify.sandbox.policy import SandboxPolicy, nvidia_devices

_ECHO = b"confined"


class LayerState(StrEnum):
    """What the probe saw of one layer."""

    PRESENT = "present"
    ABSENT = "absent"
    MISSING = "missing"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class LayerFinding:
    """One layer: its state, what was seen, and what to do about it.

    `absent` layers refuse nothing; a `missing` one refuses every run unless it is waivable and waived;
    `unknown` ones could not be reached because an earlier one is missing.
    """

    name: str
    state: LayerState
    purpose: str
    detail: str = ""
    fix: str = ""
    waivable: bool = False


def probe_layers() -> tuple[LayerFinding, ...]:
    """Run sandboxed children and return one finding for each layer, in the order of `LAYERS`. Takes about 0.3 s."""
    missing: dict[str, str] = {}
    absent: dict[str, str] = {}
    present: set[str] = set()
    try:
        with Zygote.start() as zygote:
            present = _probe(zygote, missing)
            if present:
                present |= _probe_tools(zygote, tuple(missing), absent) | _probe_devices(zygote, tuple(missing), absent)
    except SandboxRefused as refusal:
        missing[refusal.outcome.layer] = refusal.outcome.detail
    except HostError as error:
        missing["setup"] = error.message
    return tuple(_finding(name, {**absent, **missing}, present, name in missing) for name in LAYERS)


def _probe(zygote: Zygote, missing: dict[str, str]) -> set[str]:
    """Spawn until it works or nothing more can be waived; return the layers in force."""
    while True:
        source, sink = os.pipe()
        try:
            with zygote.spawn("probe", SandboxPolicy(waive=tuple(missing)), [sink], _ECHO) as child:
                outcome = child.wait()
                if not outcome.ok or os.read(source, len(_ECHO)) != _ECHO:
                    missing["setup"] = outcome.describe()
                    return set()
                return {layer.partition(":")[0] for layer in child.layers}
        except SandboxRefused as refusal:
            name = refusal.outcome.layer
            known = name in missing
            missing[name] = refusal.outcome.detail
            if known or name not in LAYERS or not LAYERS[name].waivable:
                return set()
        finally:
            os.close(source)
            os.close(sink)


def _probe_tools(zygote: Zygote, waive: tuple[str, ...], absent: dict[str, str]) -> set[str]:
    try:
        outcome = run_tool(zygote, ("/bin/sh", "-c", "exit 0"), SandboxPolicy(waive=waive))
    except SandboxRefused as refusal:
        absent["bubblewrap"] = f"{refusal.outcome.layer}: {refusal.outcome.detail}"
        return set()
    if not outcome.ok:
        absent["bubblewrap"] = outcome.describe()
    return {"bubblewrap"} if outcome.ok else set()


def _probe_devices(zygote: Zygote, waive: tuple[str, ...], absent: dict[str, str]) -> set[str]:
    numbers = sorted(int(path.removeprefix("/dev/nvidia")) for path in glob.glob("/dev/nvidia[0-9]*"))
    if not numbers:
        absent["devices"] = "there is no /dev/nvidia0"
        return set()
    source, sink = os.pipe()
    try:
        policy = SandboxPolicy(waive=(*waive, "cgroup"), devices=nvidia_devices(*numbers))
        with zygote.spawn("probe", policy, [sink], _ECHO) as child:
            return {"devices"} if child.wait().ok else set()
    except SandboxRefused as refusal:
        absent["devices"] = f"{refusal.outcome.layer}: {refusal.outcome.detail}"
        return set()
    finally:
        os.close(source)
        os.close(sink)


def _finding(name: str, details: dict[str, str], present: set[str], missing: bool) -> LayerFinding:
    layer = LAYERS[name]
    if missing:
        state = LayerState.MISSING
    elif name in present or (present and name in _IMPLIED):
        state = LayerState.PRESENT
    elif present and name in _OF_OTHER_PROFILES:
        state = LayerState.ABSENT
    else:
        state = LayerState.UNKNOWN
    return LayerFinding(
        name=name,
        state=state,
        purpose=layer.purpose,
        detail=details.get(name, "").strip(),
        fix="" if state is LayerState.PRESENT else layer.fix,
        waivable=layer.waivable,
    )


_OF_OTHER_PROFILES = frozenset({"cgroup", "bubblewrap", "devices"})
_IMPLIED = frozenset({"architecture", "uid", "cores", "setup"})
"""Layers that a child which ran has passed, although it does not list them."""
