"""The doctor and the node agree: the one fails exactly where the other refuses to start, with the same code."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Callable
from typing import Any

import pytest

from config.errors import CacheonError
from config.settings import Settings
from node.daemon import run_node
from node.doctor import disk, isolation, machine, worker
from node.doctor.check import Subject
from node.doctor.checks import CHECKS, HOST_CHECKS
from node.doctor.run import run_checks
from node.doctor.worker import WorkerAnswer
from node.services import selfcheck
from node.status import read_status
from qualify.sandbox.doctor_probe import LayerFinding, LayerState
from qualify.sandbox.layers import LAYERS
from tests.node.doctor.conftest import changed

Change = Callable[[Settings], Settings]


@pytest.fixture(autouse=True)
def quick_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sides ask a worker that answers at once; a real one is started in its own tests."""
    monkeypatch.setattr(worker, "_ask", lambda _: WorkerAnswer("2.13.0", 0, "0", ""))


def same(settings: Settings) -> Settings:
    """Change nothing."""
    return settings


async def doctors_codes(settings: Settings) -> list[str]:
    """The codes of what blocks, as the doctor sees it."""
    report = await run_checks(CHECKS, Subject(settings))
    return [line.finding.error.code for line in report.blocking if line.finding.error is not None]


async def nodes_code(settings: Settings) -> str:
    """The code with which the node refuses to start; "" when it serves."""
    ready, stop = asyncio.Event(), asyncio.Event()
    node = asyncio.create_task(run_node(settings, ready=ready, stop=stop))
    waiting = asyncio.create_task(ready.wait())
    await asyncio.wait({node, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    stop.set()
    try:
        await node
    except CacheonError as error:
        return error.code
    return ""


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (same, ""),
        (lambda s: changed(s, "chain", wallet="weak"), ""),
        (lambda s: changed(s, state_dir=""), "STATE_DIR_MISSING"),
        (lambda s: changed(s, state_dir="/proc/none"), "STATE_UNWRITABLE"),
        (lambda s: changed(s, "sandbox", waive=("userns",)), "WAIVER_INVALID"),
        (lambda s: changed(s, "sandbox", waive=("typo",)), "WAIVER_INVALID"),
        (lambda s: changed(s, "qualify", arena="no-such"), "ARENA_NOT_FOUND"),
        (lambda s: changed(s, "chain", wallet="nobody"), "WALLET_NOT_FOUND"),
        (lambda s: changed(s, "chain", wallet="stranger"), "HOTKEY_NOT_REGISTERED"),
        (lambda s: changed(s, "chain", netuid=77), "SUBNET_NOT_FOUND"),
        (lambda s: changed(s, "chain", endpoints=()), "CHAIN_UNREACHABLE"),
    ],
    ids=["well", "no permit", "no folder", "folder", "required waiver", "unknown waiver", "arena", "wallet",
         "registration", "subnet", "no endpoint"],
)
async def test_settings(node_settings: Settings, change: Change, code: str) -> None:
    """For every fault of settings, wallet and chain both sides name the same code, and for none both are content."""
    settings = change(node_settings)
    assert await nodes_code(settings) == code
    codes = await doctors_codes(settings)
    assert (code in codes) == bool(code)
    assert bool(codes) == bool(code)


def without(**missing: LayerState) -> tuple[LayerFinding, ...]:
    """A probe that found every layer but these."""
    return tuple(
        LayerFinding(name, missing.get(name, LayerState.PRESENT), layer.purpose, "gone", layer.fix, layer.waivable)
        for name, layer in LAYERS.items()
    )


@pytest.mark.parametrize(
    ("patch", "waive", "code"),
    [
        ((isolation, "probe_layers", lambda: without(landlock=LayerState.MISSING)), (), "SANDBOX_LAYER_MISSING"),
        ((isolation, "probe_layers", lambda: without(landlock=LayerState.MISSING)), ("landlock",), ""),
        ((isolation, "probe_layers", lambda: without(netns=LayerState.MISSING)), ("landlock",),
         "SANDBOX_LAYER_MISSING"),
        ((isolation, "probe_layers", lambda: 1 / 0), (), "CHECK_FAILED"),
        ((machine, "judge_memory", lambda *_: 1 / 0), (), "CHECK_FAILED"),
        ((machine, "judge_load", lambda *_: 1 / 0), (), ""),
        ((worker, "_ask", lambda _: WorkerAnswer("2", code="ARM_CORE_UNAVAILABLE", message="no")), (),
         "ARM_CORE_UNAVAILABLE"),
        ((importlib.util, "find_spec", lambda _: None), (), "TORCH_MISSING"),
        ((disk, "SPACE_REFUSED", 1 << 62), (), "DISK_FULL"),
    ],
    ids=["layer", "waived layer", "required layer", "broken probe", "broken required check", "broken other check",
         "core", "torch", "disk"],
)
async def test_machine(
    node_settings: Settings, patch: tuple[Any, str, Any], waive: tuple[str, ...], code: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For every fault of the machine too, a defect of a check itself included."""
    monkeypatch.setattr(*patch)
    settings = changed(node_settings, "sandbox", waive=waive)
    assert await nodes_code(settings) == code
    assert await doctors_codes(settings) == ([code] if code else [])


async def test_a_waiver_is_told_everywhere(node_settings: Settings) -> None:
    """A waived layer is a warning of the doctor and a reason in the node's status."""
    settings = changed(node_settings, "sandbox", waive=("landlock",))
    assert await nodes_code(settings) == ""
    lines = {line.finding.name: line for line in (await run_checks(CHECKS, Subject(settings))).lines}
    assert lines["settings.waivers"].finding.state == "WARN"
    status = read_status(settings.state_dir)
    assert status.waived == ("landlock",)
    assert [reason.name for reason in status.reasons] == ["stopped", "layers_waived"]
    assert not status.ready


def test_the_node_asks_what_the_doctor_requires() -> None:
    """There is one list: the node's own is the required part of the doctor's."""
    assert set(selfcheck.REQUIRED) == {check for check in HOST_CHECKS if check.required}
    assert [check.name for check in CHECKS if check not in HOST_CHECKS] == ["chain"]
    assert len({check.name for check in CHECKS}) == len(CHECKS)
