"""Routing: variants by their domains, stock outside all of them, and no process that serves for two bundles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from intake.report import IntakeReport, ResolvedVariant
from qualify.arm_plan import ENGINE_MOUNT, Implementation
from qualify.docket import open_docket
from qualify.engine_tree import package_of
from qualify.request import Holding
from qualify.routing import STOCK, Seam, contested, reached_variant, route, shares
from qualify.slots.base import Slot
from qualify.slots.registry import SLOTS
from tests.qualify.support import describe_bundle, make_request, write_arena

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
    routes = route(SEAM, CASES, report(LARGE, SMALL))
    served = [routes.implementations[index].source for index in routes.by_case]
    assert served == ["small.py", "large.py"]
    assert routes.variants == ("activation.silu_and_mul/large", "activation.silu_and_mul/small")


def test_a_gap_is_stocks_and_is_asked_of_nobody_where_it_always_was() -> None:
    """Outside the candidate's domain stock serves; what it serves in both trees is no case of the comparison."""
    narrow = route(SEAM, CASES, report(LARGE))
    assert narrow.served() == [STOCK, Implementation(f"{ENGINE_MOUNT}/{FOLDER}", "large.py", "f")]
    assert contested(route(SEAM, CASES, None), narrow) == (1,)
    crowned = msgspec.structs.replace(report(("default", {})), content_hash="2" * 64)
    assert contested(route(SEAM, CASES, crowned), narrow) == (0, 1)  # the crown's gain there would be lost


def test_no_arm_serves_for_two_bundles_and_none_is_told_its_rival() -> None:
    """Each bundle's cases, and stock's, are a share; a bundle's share is the same against every rival."""
    wide, narrow = report(("default", {})), msgspec.structs.replace(report(LARGE), content_hash="2" * 64)
    theirs, ours = route(SEAM, CASES, wide), route(SEAM, CASES, narrow)
    measured = contested(theirs, ours)
    assert [(share.cases, share.routes.implementations[0].is_stock) for share in shares(ours, measured)] == [
        ((0,), True), ((1,), False),
    ]
    (alone,) = shares(theirs, measured)
    assert alone == shares(theirs, contested(route(SEAM, CASES, None), theirs))[0]
    assert all(len({one.root for one in share.routes.implementations}) == 1 for share in shares(ours, measured))


def test_a_candidate_outside_the_whole_workload_reaches_nothing() -> None:
    """Another dtype or an unmet predicate leaves no variant."""
    assert route(SEAM, CASES, report(SMALL, dtypes=("float32",))).variants == ()
    other = report(("default", {"capabilities": {"tp_size": {"exact": 8}}}))
    assert route(SEAM, CASES, other).variants == ()


def test_the_baseline_is_stock_or_the_crowned_bundle() -> None:
    """A crowned bundle serves inside its own domain only."""
    assert route(SEAM, CASES, None).implementations == (STOCK,)
    routes = route(SEAM, CASES, report(SMALL))
    assert [routes.implementations[index].is_stock for index in routes.by_case] == [False, True]


PLAIN, REDUCE = SLOTS["moe.fused_experts"], SLOTS["moe.fused_experts_reduce"]
TOKENS = tuple({"num_tokens": n, "num_experts": 4, "hidden": 64, "inter": 32, "topk": 2} for n in (8, 512))


def of_slot(slot: Slot, content_hash: str, *variants: tuple[str, dict[str, Any]]) -> IntakeReport:
    """Return a report as `report` does, for another slot."""
    rows = tuple(msgspec.structs.replace(variant, slot=slot.id) for variant in report(*variants).variants)
    return msgspec.structs.replace(report(), content_hash=content_hash, target_id=slot.id, variants=rows)


def test_the_first_at_a_shared_binding_serves_what_it_applies_to() -> None:
    """In a group the crowned reduce form comes before the plain one, inside its domain; without a group it never does.
    """
    ahead = [(REDUCE, of_slot(REDUCE, "2" * 64, LARGE))]
    mine = of_slot(PLAIN, "3" * 64, ("default", {}))
    group = Seam(PLAIN, "bfloat16", "cpu", 2)
    assert [reached_variant(group, case, mine, ahead) is not None for case in TOKENS] == [True, False]
    assert all(reached_variant(group, case, mine) is not None for case in TOKENS)
    alone = Seam(PLAIN, "bfloat16", "cpu")
    assert all(reached_variant(alone, case, mine, ahead) is not None for case in TOKENS)
    routes = route(group, TOKENS, mine, ahead)
    assert routes.implementations[routes.by_case[1]] == STOCK
    assert route(group, TOKENS[1:], mine, ahead).variants == ()
    assert contested(route(group, TOKENS, None, ahead), routes) == (0,)


def test_the_docket_asks_the_crowned_holders_before_its_slot(tmp_path: Path) -> None:
    """A crown on the reduce form stands ahead of the plain target, and nothing stands ahead of the reduce form."""
    arena = write_arena(tmp_path)
    refs = []
    for number, slot in enumerate((PLAIN, REDUCE)):
        tree = tmp_path / f"b{number}"
        tree.mkdir()
        (tree / "k.py").write_text("")
        (tree / "manifest.toml").write_text(
            f'bundle_id = "b"\nabi_version = "a"\ncompetition.target = "{slot.id}"\n'
            f'[[ops]]\nslot = "{slot.id}"\nsource = "k.py"\nentry = "f"\n'
        )
        refs.append(describe_bundle(tree, tmp_path / f"r{number}.json"))
    request = make_request(refs[0], arena, target_id=PLAIN.id)
    docket = open_docket(msgspec.structs.replace(request, stack=(Holding(REDUCE.id, refs[1]),)))
    assert [slot.id for slot, _ in docket.ahead()] == [REDUCE.id]
    assert docket.incumbent is None
    assert all(docket.reaches(shape) for shape in docket.shapes)
    alone = open_docket(request)
    assert alone.ahead() == []
