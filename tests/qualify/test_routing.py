"""Routing: variants by their domains, the incumbent outside all of them."""

from __future__ import annotations

from typing import Any

from intake.report import IntakeReport, ResolvedVariant
from qualify.arm_plan import ENGINE_MOUNT, INCUMBENT_MOUNT, Implementation
from qualify.engine_tree import package_of
from qualify.routing import STOCK, Seam, route_candidate, route_incumbent
from qualify.slots.registry import SLOTS

SILU = SLOTS["activation.silu_and_mul"]
SEAM = Seam(SILU, "bfloat16", "cpu")
FOLDER = package_of("1" * 64)
CASES = ({"num_tokens": 8, "d": 64}, {"num_tokens": 512, "d": 64})


def report(*variants: tuple[str, dict[str, Any]], dtypes: tuple[str, ...] = ()) -> IntakeReport:
    """Return an accepted report with variants given as (name, metadata)."""
    return IntakeReport(
        schema="cacheon.intake-report.v1",
        content_hash="1" * 64,
        bundle_id="b",
        abi_version="cacheon-op-abi-v0",
        target_id=SILU.id,
        target_kind="slot",
        features=(),
        variants=tuple(
            ResolvedVariant(SILU.id, name, f"{name}.py", "f", None, dtypes, (), metadata) for name, metadata in variants
        ),
        fingerprint="",
        pieces=(),
        files=(),
        closure=(),
        findings=(),
        error=None,
    )


SMALL = ("small", {"capabilities": {"num_tokens": {"max": 127}}})
LARGE = ("large", {"capabilities": {"num_tokens": {"min": 128}}})


def test_each_shape_gets_the_variant_whose_domain_holds_it() -> None:
    """Disjoint variants divide the workload."""
    routes = route_candidate(SEAM, CASES, report(LARGE, SMALL), None)
    served = [routes.implementations[index].source for index in routes.by_case]
    assert served == ["small.py", "large.py"]
    assert routes.variants == ("activation.silu_and_mul/large", "activation.silu_and_mul/small")


def test_a_gap_is_served_by_the_incumbent_in_the_candidates_arm() -> None:
    """Outside the candidate's domain stock, or the crowned bundle, serves."""
    routes = route_candidate(SEAM, CASES, report(LARGE), None)
    assert routes.implementations[routes.by_case[0]] == STOCK
    crowned = report(("default", {}))
    routes = route_candidate(SEAM, CASES, report(LARGE), crowned)
    assert routes.implementations[routes.by_case[0]] == Implementation(f"{INCUMBENT_MOUNT}/{FOLDER}", "default.py", "f")
    assert routes.implementations[routes.by_case[1]] == Implementation(f"{ENGINE_MOUNT}/{FOLDER}", "large.py", "f")


def test_a_candidate_outside_the_whole_workload_reaches_nothing() -> None:
    """Another dtype or an unmet predicate leaves no variant."""
    assert route_candidate(SEAM, CASES, report(SMALL, dtypes=("float32",)), None).variants == ()
    other = report(("default", {"capabilities": {"tp_size": {"exact": 8}}}))
    assert route_candidate(SEAM, CASES, other, None).variants == ()


def test_the_baseline_is_stock_or_the_crowned_bundle() -> None:
    """A crowned bundle serves inside its own domain only."""
    assert route_incumbent(SEAM, CASES, None).implementations == (STOCK,)
    routes = route_incumbent(SEAM, CASES, report(SMALL))
    assert [routes.implementations[index].is_stock for index in routes.by_case] == [False, True]
