"""Isolation: every layer, found by really running a confined process.

Invariants
1. A layer passes because a confined process confirmed it from inside, never because of a version number.
2. A missing layer fails unless it can be waived and is; then it warns, every time.
3. Facts about the kernel stand beside the layer that they explain and decide nothing.
"""

from __future__ import annotations

import glob
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from config.errors import HostError, IntakeError
from node.doctor.check import Finding, Subject, failed, passed, skipped, warned
from node.doctor.tools import ask_tool, find_tool
from qualify.intake_runner import IntakeRunner
from qualify.sandbox.doctor_probe import LayerFinding, LayerState, probe_layers
from qualify.sandbox.landlock import landlock_abi
from qualify.sandbox.layers import LAYERS

_USERNS_KNOBS = (
    "user/max_user_namespaces", "kernel/unprivileged_userns_clone", "kernel/apparmor_restrict_unprivileged_userns"
)


def judge_layers(
    layers: Sequence[LayerFinding], waived: Collection[str], notes: Mapping[str, str], idle: Collection[str] = ()
) -> tuple[Finding, ...]:
    """Return one finding for each layer; `notes` are facts to show, by layer; nothing here needs those in `idle`."""
    findings = [
        _judge_layer(layer, layer.name in waived, notes.get(layer.name, ""), idle=layer.name in idle)
        for layer in layers
    ]
    if not any(layer.state in (LayerState.PRESENT, LayerState.MISSING) for layer in layers):
        findings.append(failed("isolation", missing_layer("setup", LAYERS["setup"].purpose, "not one was reached", "")))
    return tuple(findings)


def _judge_layer(layer: LayerFinding, waived: bool, note: str, *, idle: bool) -> Finding:
    name = f"isolation.{layer.name}"
    facts = f" ({note})" if note else ""
    match layer.state:
        case LayerState.PRESENT if waived:
            return passed(name, f"in force, although it is waived{facts}: {layer.purpose}")
        case LayerState.PRESENT:
            return passed(name, f"{layer.purpose}{facts}")
        case LayerState.ABSENT if idle:
            return skipped(name, f"nothing here needs it: {layer.detail or layer.purpose}")
        case LayerState.ABSENT:
            why = f": {layer.detail}" if layer.detail else ""
            return warned(name, f"absent, and not every run needs it ({layer.purpose}){facts}{why}", layer.fix)
        case LayerState.MISSING if waived and layer.waivable:
            return warned(name, f"missing, and waived in the settings: {layer.detail}{facts}", layer.fix)
        case LayerState.MISSING:
            return failed(name, missing_layer(layer.name, layer.purpose, layer.detail + facts, layer.fix))
        case LayerState.UNKNOWN:
            return skipped(name, f"not reached, because an earlier layer is missing{facts}")


def missing_layer(name: str, purpose: str, detail: str, fix: str) -> HostError:
    """Return the error for a layer that must be there and is not."""
    return HostError("SANDBOX_LAYER_MISSING", f"isolation layer {name!r} ({purpose}) is missing: {detail}", hint=fix)


def look_layers(subject: Subject) -> tuple[Finding, ...]:
    """Every layer, tried."""
    idle = () if glob.glob("/dev/nvidia[0-9]*") else ("devices",)
    return judge_layers(probe_layers(), subject.waived, _notes(), idle)


def look_screener(subject: Subject) -> tuple[Finding, ...]:
    """The confined process that reads archives starts, looks and says no to bytes that are none."""
    if subject.screener is not None:
        require_screener(subject.screener)
    else:
        waivable = tuple(name for name in subject.waived if name in LAYERS and LAYERS[name].waivable)
        with IntakeRunner(waive=waivable) as runner:  # a waiver of anything else has a line of its own
            require_screener(runner)
    return (passed("isolation.intake", "a confined intake process read bytes and refused them"),)


def require_screener(runner: IntakeRunner) -> None:
    """Screen bytes that are no archive: the refusal must come out of a confined process.

    Raises `HostError` (SANDBOX_LAYER_MISSING and others of `qualify.sandbox`) and `InternalError` when none can run.
    """
    try:
        runner.run(b"no archive", "0" * 64)
    except IntakeError:
        return  # the child lived, looked and said no


def _notes() -> dict[str, str]:
    knobs = ((name.rpartition("/")[2], _sysctl(name)) for name in _USERNS_KNOBS)
    program = find_tool("bwrap")
    return {
        "bubblewrap": ask_tool(program, "--version").text if program else "only builds of native code use it",
        "userns": ", ".join(f"{name} {value}" for name, value in knobs if value),
        "landlock": f"kernel ABI {landlock_abi()}",
    }


def _sysctl(name: str) -> str:
    try:
        return Path("/proc/sys", name).read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
