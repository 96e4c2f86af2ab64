"""Isolation lines: what is missing fails unless it is waived, and says how to get it."""

from __future__ import annotations

import pytest

from config.errors import HostError, IntakeError
from node.doctor import isolation
from node.doctor.check import State, Subject
from node.doctor.isolation import judge_layers, look_layers, look_screener
from qualify.sandbox.doctor_probe import LayerFinding, LayerState
from qualify.sandbox.layers import LAYERS


def layers(**states: LayerState) -> list[LayerFinding]:
    """Every layer, present unless said otherwise."""
    return [
        LayerFinding(name, states.get(name, LayerState.PRESENT), layer.purpose, "why", layer.fix, layer.waivable)
        for name, layer in LAYERS.items()
    ]


@pytest.mark.parametrize(
    ("name", "state", "waived", "expected"),
    [
        ("landlock", LayerState.PRESENT, (), State.PASS),
        ("landlock", LayerState.PRESENT, ("landlock",), State.PASS),
        ("landlock", LayerState.MISSING, (), State.FAIL),
        ("landlock", LayerState.MISSING, ("seccomp",), State.FAIL),
        ("landlock", LayerState.MISSING, ("landlock",), State.WARN),
        ("userns", LayerState.MISSING, (), State.FAIL),
        ("userns", LayerState.MISSING, ("userns",), State.FAIL),
        ("cgroup", LayerState.ABSENT, (), State.WARN),
        ("seccomp", LayerState.UNKNOWN, (), State.SKIP),
    ],
)
def test_a_layer(name: str, state: LayerState, waived: tuple[str, ...], expected: State) -> None:
    """A missing layer fails unless it can be waived and is; an absent cgroup only warns."""
    found = {finding.name: finding for finding in judge_layers(layers(**{name: state}), waived, {name: "a fact"})}
    assert list(found) == [f"isolation.{layer}" for layer in LAYERS]
    finding = found[f"isolation.{name}"]
    assert finding.state is expected
    assert "a fact" in finding.seen
    assert (finding.fix == LAYERS[name].fix) == (expected in (State.FAIL, State.WARN))
    if expected is State.FAIL:
        assert isinstance(finding.error, HostError)
        assert finding.error.code == "SANDBOX_LAYER_MISSING"
        assert repr(name) in finding.seen


def test_what_nothing_here_needs_is_skipped() -> None:
    """A layer of a profile that this machine has no use for is no trouble; where there is use it warns."""
    absent = layers(devices=LayerState.ABSENT, bubblewrap=LayerState.ABSENT)
    found = {finding.name: finding.state for finding in judge_layers(absent, (), {}, ("devices",))}
    assert (found["isolation.devices"], found["isolation.bubblewrap"]) == (State.SKIP, State.WARN)


def test_a_probe_that_reached_nothing_is_no_pass() -> None:
    """When no layer is there and none is named as missing, isolation fails all the same."""
    unknown = dict.fromkeys(LAYERS, LayerState.UNKNOWN)
    assert [finding.state for finding in judge_layers(layers(**unknown), (), {})].count(State.FAIL) == 1


def test_this_machine_is_isolated() -> None:
    """On a host that runs the suite nothing fails, and the kernel's facts are shown."""
    found = {finding.name: finding for finding in look_layers(Subject())}
    assert not [finding for finding in found.values() if finding.state is State.FAIL]
    assert "kernel ABI" in found["isolation.landlock"].seen
    (screener,) = look_screener(Subject())
    assert screener.state is State.PASS


def test_the_node_lends_its_own_screener(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that starts has its own screener tried, and nobody closes it."""

    class Screener:
        asked = 0

        def run(self, *_: object) -> None:
            self.asked += 1
            raise IntakeError("ARCHIVE_NOT_GZIP", "no archive")

    monkeypatch.setattr(isolation, "IntakeRunner", None)
    screener = Screener()
    (finding,) = look_screener(Subject(screener=screener))  # type: ignore[arg-type]
    assert (finding.state, screener.asked) == (State.PASS, 1)
