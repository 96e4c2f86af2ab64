"""When faults strike: seeds, order, limits and counts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chain.devnet.fault_plan import Fault, FaultPlan


def struck(plan: FaultPlan, occasions: int, method: str = "chain_getHeader") -> list[bool]:
    return [plan.strike(method, "rpc_error", "delay") is not None for _ in range(occasions)]


def test_the_same_seed_strikes_the_same_occasions() -> None:
    """A plan repeats itself exactly, another seed makes another one, and both strike about as often as asked."""
    runs = []
    for seed in (1, 1, 2):
        plan = FaultPlan()
        plan.inject(Fault(kind="rpc_error", probability=0.1, seed=seed))
        runs.append(struck(plan, 2_000))
    assert runs[0] == runs[1] != runs[2]
    assert all(130 < sum(run) < 270 for run in runs)


def test_a_fault_keeps_its_own_sequence() -> None:
    """Occasions that a fault is not meant for do not move its sequence on."""
    alone, mixed = FaultPlan(), FaultPlan()
    for plan in (alone, mixed):
        plan.inject(Fault(kind="rpc_error", probability=0.3, methods=("chain_getHeader",)))
    expected = struck(alone, 200)
    found = []
    for _ in range(200):
        assert not struck(mixed, 1, "chain_getBlock")[0]
        found += struck(mixed, 1)
    assert found == expected


def test_the_first_injected_fault_has_the_occasion() -> None:
    """One occasion is struck once; a later fault is not even offered it."""
    plan = FaultPlan()
    first = plan.inject(Fault(kind="rpc_error", code=1, limit=2))
    second = plan.inject(Fault(kind="rpc_error", code=2))
    codes = [strike.fault.code for _ in range(4) if (strike := plan.strike("chain_getHeader", "rpc_error"))]
    assert codes == [1, 1, 2, 2]
    counts = {count.id: (count.offered, count.injected, count.active) for count in plan.counts()}
    assert counts == {first: (2, 2, False), second: (2, 2, True)}


def test_cleared_faults_stay_counted() -> None:
    """Taking back says how many were active; what they did stays on record."""
    plan = FaultPlan()
    first = plan.inject(Fault(kind="rpc_error"))
    plan.inject(Fault(kind="delay", seconds=1.0))
    assert struck(plan, 3) == [True, True, True]
    assert (plan.clear(first), plan.clear(first), plan.clear(77)) == (1, 0, 0)
    assert plan.strike("chain_getHeader", "rpc_error") is None
    assert plan.clear() == 1
    assert [(count.kind, count.injected, count.active) for count in plan.counts()] == [
        ("rpc_error", 3, False),
        ("delay", 0, False),
    ]


@pytest.mark.parametrize(
    ("kind", "hit", "spared"),
    [
        ("drop", "chain_getHeader", ""),
        ("http_429", "", "chain_getHeader"),
        ("false_success", "author_submitExtrinsic", "author_pendingExtrinsics"),
        ("discarded_state", "state_getStorage", "chain_getHeader"),
        ("lose_subscription", "author_submitAndWatchExtrinsic", "author_submitExtrinsic"),
        ("duplicate_events", "state_queryStorageAt", "state_getKeysPaged"),
        ("half_open", "system_name", "dev_newBlock"),
    ],
)
def test_a_kind_strikes_only_what_it_can(kind: Any, hit: str, spared: str) -> None:
    """Without named methods a fault strikes all that its kind can strike, and never a developer's method."""
    plan = FaultPlan()
    plan.inject(Fault(kind=kind))
    assert plan.strike(hit, kind) is not None
    assert plan.strike(spared, kind) is None
    assert plan.strike("dev_newBlock", kind) is None


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"kind": "earthquake"},
        {"kind": "drop", "probability": 0},
        {"kind": "drop", "probability": 1.5},
        {"kind": "drop", "probability": float("nan")},
        {"kind": "drop", "limit": 0},
        {"kind": "drop", "methods": ["dev_newBlock"]},
        {"kind": "delay"},
        {"kind": "delay", "seconds": -1},
        {"kind": "delay", "seconds": float("inf")},
        {"kind": "http_429", "methods": ["chain_getHeader"]},
        {"kind": "false_success", "methods": ["chain_getHeader"]},
        {"kind": "drop", "surprise": 1},
    ],
)
def test_impossible_faults_are_refused(document: dict[str, Any]) -> None:
    """A fault that could not strike, or not as written, is an error instead of a test that tests nothing."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(document, Fault)


def test_a_method_nobody_has_is_refused() -> None:
    """A misspelt method is an error."""
    with pytest.raises(ValueError, match="chain_getHaeder"):
        FaultPlan({"chain_getHeader"}).inject(Fault(kind="drop", methods=("chain_getHaeder",)))
