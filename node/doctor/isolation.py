"""Isolation: every layer, found by really running a confined process.

Invariants
1. A layer passes because a confined process confirmed it from inside, never because of a version number.
2. A missing layer fails unless it can be waived and is; then it warns, every time.
3. Facts about the kernel stand beside the layer that they explain and decide nothing.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from config.errors import HostError, IntakeError
from node.doctor.check import Finding, Subject, failed, passed, skipped, warned
from node.doctor.tools import Answer, ask_tool, find_tool
from qualify.intake_runner import IntakeRunner
from qualify.sandbox.doctor_probe import LayerFinding, LayerState, probe_layers
from qualify.sandbox.landlock import landlock_abi
from qualify.sandbox.layers import LAYERS

_USERNS_KNOBS = (
    "user/max_user_namespaces", "kernel/unprivileged_userns_clone", "kernel/apparmor_restrict_unprivileged_userns"
)


def judge_layers(
    layers: Sequence[LayerFinding], waived: Collection[str], notes: Mapping[str, str]
) -> tuple[Finding, ...]:
    """Return one finding for each layer; `notes` are facts to show, by layer."""
    findings = [_judge_layer(layer, layer.name in waived, notes.get(layer.name, "")) for layer in layers]
    if not any(layer.state in (LayerState.PRESENT, LayerState.MISSING) for layer in layers):
        findings.append(failed("isolation", missing_layer("setup", LAYERS["setup"].purpose, "not one was reached", "")))
    return tuple(findings)


def _judge_layer(layer: LayerFinding, waived: bool, note: str) -> Finding:
    name = f"isolation.{layer.name}"
    facts = f" ({note})" if note else ""
    match layer.state:
        case LayerState.PRESENT:
            return passed(name, f"{layer.purpose}{facts}")
        case LayerState.ABSENT:
            return warned(name, f"not offered by this host, and not required{facts}: {layer.purpose}", layer.fix)
        case LayerState.MISSING if waived and layer.waivable:
            return warned(name, f"missing, and waived in the settings: {layer.detail}{facts}", layer.fix)
        case LayerState.MISSING:
            return failed(name, missing_layer(layer.name, layer.purpose, layer.detail + facts, layer.fix))
        case LayerState.UNKNOWN:
            return skipped(name, f"not reached, because an earlier layer is missing{facts}")


def missing_layer(name: str, purpose: str, detail: str, fix: str) -> HostError:
    """Return the error for a layer that must be there and is not."""
    return HostError("SANDBOX_LAYER_MISSING", f"isolation layer {name!r} ({purpose}) is missing: {detail}", hint=fix)


def judge_bubblewrap(path: str | None, setuid: bool, answer: Answer | None) -> Finding:
    """Say whether steps that must run compilers could be confined."""
    name = "isolation.bubblewrap"
    if path is None:
        return warned(
            name, "bwrap is not installed; only steps that build native code need it",
            "install the package `bubblewrap` if this node is to build bundles",
        )
    if answer is None or not answer.ok:
        said = answer.text if answer is not None else "it was not started"
        return warned(name, f"{path} does not run: {said}", "reinstall the package `bubblewrap`")
    if setuid:
        return warned(
            name, f"{answer.text}, installed setuid root", f"user namespaces suffice: chmod u-s {path}"
        )
    return passed(name, answer.text)


def look_layers(subject: Subject) -> tuple[Finding, ...]:
    """Every layer, tried."""
    return judge_layers(probe_layers(), subject.waived, _notes())


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


def look_bubblewrap(_: Subject) -> tuple[Finding, ...]:
    """Bubblewrap is there for build steps."""
    path = find_tool("bwrap")
    if path is None:
        return (judge_bubblewrap(None, setuid=False, answer=None),)
    setuid = bool(os.stat(path).st_mode & stat.S_ISUID)
    return (judge_bubblewrap(path, setuid, ask_tool(path, "--version")),)


def _notes() -> dict[str, str]:
    knobs = ((name.rpartition("/")[2], _sysctl(name)) for name in _USERNS_KNOBS)
    return {
        "userns": ", ".join(f"{name} {value}" for name, value in knobs if value),
        "landlock": f"kernel ABI {landlock_abi()}",
    }


def _sysctl(name: str) -> str:
    try:
        return Path("/proc/sys", name).read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
