"""Atomic targets on real groups: both members in one attempt, one verdict, whoever holds a member is the incumbent."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from config.arena import load_arena
from config.errors import ConfigurationError
from config.target_catalog import load_catalog
from qualify.docket import open_docket
from qualify.referee import run_attempt
from qualify.request import AttemptRequest, BundleRef, Holding
from qualify.sandbox.client import Zygote
from qualify.slots.base import STOCK_ROOT
from scoring.attempt import Attempt
from scoring.grade import grade
from tests.qualify.support import describe_bundle, make_request, write_arena

ATOMIC = "collective.moe_epilogue.v1"
FIRST, SECOND = load_catalog().targets[ATOMIC].members
SOURCES = {member: (STOCK_ROOT / f"{member.rpartition('.')[2]}.py").read_text() for member in (FIRST, SECOND)}
HALF = 'out_norm.copy_(total)', 'out_norm.copy_(total * 0.5)'

WORKLOADS = f"""
[[workloads]]
target = "{FIRST}"
dtype = "float32"
world_size = 2
shapes = [{{ num_tokens = 8, hidden = 512 }}]

[[workloads]]
target = "{SECOND}"
dtype = "float32"
world_size = 2
shapes = [{{ num_tokens = 6, exp_tokens = 8, topk = 3, hidden = 512 }}]

[[workloads]]
target = "{ATOMIC}"
members = ["{FIRST}", "{SECOND}"]
"""


@dataclass
class Place:
    """Writes bundles and requests of one test."""

    folder: Path
    fork_server: Zygote
    count: int = 0

    def __post_init__(self) -> None:
        path = Path(write_arena(self.folder))
        path.write_text(path.read_text().partition("[[workloads]]")[0] + WORKLOADS)
        self.arena = str(path)

    def bundle(
        self, target: str, sources: dict[str, str], metadata: dict[str, dict[str, object]] | None = None
    ) -> BundleRef:
        """Write a bundle of stock-like members; `sources` replace texts, `metadata` narrows members."""
        self.count += 1
        tree = self.folder / f"bundle-{self.count}"
        (tree / "kernels").mkdir(parents=True)
        kind = "atomic" if target == ATOMIC else "slot"
        rows = [f'bundle_id = "b{self.count}"\nabi_version = "cacheon-op-abi-v0"\n']
        rows.append(f'[competition]\ntarget = "{target}"\nmode = "{kind}"\n')
        for member in load_catalog().targets[target].members:
            entry = member.rpartition(".")[2]
            (tree / "kernels" / f"{entry}.py").write_text(sources.get(member, SOURCES[member]))
            rows.append(f'[[ops]]\nslot = "{member}"\nsource = "kernels/{entry}.py"\nentry = "{entry}"\n')
            if metadata and member in metadata:
                (tree / "kernels" / f"{entry}.json").write_text(json.dumps(metadata[member]))
                rows.append(f'metadata = "kernels/{entry}.json"\n')
        (tree / "manifest.toml").write_text("".join(rows))
        return describe_bundle(tree, self.folder / f"report-{self.count}.json")

    def request(self, candidate: BundleRef, target: str = ATOMIC, *stack: Holding) -> AttemptRequest:
        """Return a request in the arena of both members."""
        return msgspec.structs.replace(make_request(candidate, self.arena, target_id=target), stack=stack)

    def run(self, candidate: BundleRef, target: str = ATOMIC, *stack: Holding) -> Attempt:
        """Measure a candidate."""
        return run_attempt(self.request(candidate, target, *stack), lambda event: None, self.fork_server)


@pytest.fixture
def place(tmp_path: Path, fork_server: Zygote) -> Place:
    """A place for one test's bundles."""
    return Place(tmp_path, fork_server)


def test_both_members_are_measured_in_one_attempt(place: Place) -> None:
    """Every launch goes through the cases of both members, the evidence is whole, and there is one verdict."""
    evidence = place.run(place.bundle(ATOMIC, {}))
    assert evidence.incidents == ()
    assert evidence.identity.variants == (f"{FIRST}/default", f"{SECOND}/default")
    assert {tuple(sorted(stage.shape)) for stage in evidence.stages} == {
        ("hidden", "num_tokens"),
        ("exp_tokens", "hidden", "num_tokens", "topk"),
    }
    for launch in evidence.launches:
        assert [block.case for block in launch.blocks] == [0, 1]
        assert launch.candidate.process.count("+") == 3  # two ranks of each of two arms
    verdict = grade(evidence, load_arena(place.arena))
    assert (verdict.outcome, verdict.code) != ("FAIL", "WRONG_OUTPUT")


@pytest.mark.parametrize("member", [FIRST, SECOND])
def test_a_fault_in_either_member_fails_the_whole(place: Place, member: str) -> None:
    """The other member's being right does not help."""
    evidence = place.run(place.bundle(ATOMIC, {member: SOURCES[member].replace(*HALF)}))
    assert [(one.role, one.kind) for one in evidence.incidents] == [("candidate", "wrong_output")]
    assert evidence.launches == ()
    assert grade(evidence, load_arena(place.arena)).blame == "miner"


def test_each_member_has_to_be_reached(place: Place) -> None:
    """A bundle that leaves one member to the incumbent is no atomic gain; nothing is run."""
    narrow = {SECOND: {"capabilities": {"num_tokens": {"min": 4096}}}}
    (incident,) = place.run(place.bundle(ATOMIC, {}, narrow)).incidents
    assert incident.kind == "never_routed"
    assert SECOND in incident.detail


def test_the_holder_of_a_member_is_its_incumbent(place: Place) -> None:
    """Crowned singles are what an atomic candidate is compared with, and a crowned atomic what a single one is."""
    single = Holding(SECOND, place.bundle(SECOND, {SECOND: SOURCES[SECOND] + "\n# crowned\n"}))
    candidate = place.bundle(ATOMIC, {})
    first, second = open_docket(place.request(candidate, ATOMIC, single)).views()
    assert first.incumbent is None
    assert second.incumbent is not None
    assert second.incumbent.content_hash == single.bundle.content_hash
    (root,) = {one.root for one in second.incumbent_routes(second.shapes).implementations}
    assert root.endswith(single.bundle.content_hash)
    assert open_docket(place.request(candidate, ATOMIC, single)).slots == ()


def test_a_single_that_displaces_an_atomic_is_measured_with_what_is_lost(place: Place) -> None:
    """The other member falls back to stock, as it would after the crown: a case of the comparison, and no fault."""
    crowned = Holding(ATOMIC, place.bundle(ATOMIC, {}))
    single = place.bundle(SECOND, {SECOND: SOURCES[SECOND] + "\n# single\n"})
    docket = open_docket(place.request(single, SECOND, crowned))
    assert docket.slots == (FIRST, SECOND)
    assert docket.tree.changed() == {FIRST, SECOND}
    assert [part.target_id for part in docket.tree.parts] == [SECOND]
    first, second = docket.views()
    assert (first.judged, second.judged) == (False, True)
    for view in (first, second):
        assert view.incumbent is not None
        assert view.incumbent.content_hash == crowned.bundle.content_hash
    assert [one.is_stock for one in first.candidate_routes(first.shapes).served()] == [True]
    evidence = place.run(single, SECOND, crowned)
    assert evidence.incidents == ()
    assert evidence.identity.slots == (FIRST, SECOND)
    assert evidence.identity.variants == (f"{SECOND}/default",)
    assert {tuple(sorted(stage.shape)) for stage in evidence.stages} == {("exp_tokens", "hidden", "num_tokens", "topk")}
    for launch in evidence.launches:
        assert [block.case for block in launch.blocks] == [0, 1]
        assert launch.candidate.process.count("+") == 3
    assert grade(evidence, load_arena(place.arena)).outcome != "PASS"


def test_a_single_beside_another_single_is_measured_alone(place: Place) -> None:
    """Nobody loses a slot by it, and the other's bundle is no part of what it replaces."""
    other = Holding(FIRST, place.bundle(FIRST, {}))
    docket = open_docket(place.request(place.bundle(SECOND, {}), SECOND, other))
    assert docket.views() == (docket,)
    assert (docket.slots, docket.incumbent) == ((), None)


def test_a_broken_holder_of_one_member_is_never_the_candidates_fault(place: Place) -> None:
    """The baseline's arm of either member can fail; then the attempt decides nothing."""
    broken = Holding(FIRST, place.bundle(FIRST, {FIRST: SOURCES[FIRST].replace(*HALF)}))
    evidence = place.run(place.bundle(ATOMIC, {}), ATOMIC, broken)
    assert [(one.role, one.kind) for one in evidence.incidents] == [("baseline", "wrong_output")]
    assert grade(evidence, load_arena(place.arena)).code == "BASELINE_FAILED"


def test_an_arena_judges_all_members_or_the_target_not_at_all(place: Place) -> None:
    """An atomic workload names exactly the members of its target, each with a workload of its own."""
    text = Path(place.arena).read_text()
    Path(place.arena).write_text(text.replace(f'members = ["{FIRST}", "{SECOND}"]', f'members = ["{FIRST}"]'))
    with pytest.raises(ConfigurationError) as caught:
        open_docket(place.request(place.bundle(ATOMIC, {})))
    assert caught.value.code == "TARGET_NOT_MEASURABLE"
    Path(place.arena).write_text(text.replace(f'target = "{SECOND}"', 'target = "norm.rmsnorm"'))
    with pytest.raises(ConfigurationError) as caught:
        load_arena(place.arena)
    assert caught.value.code == "ARENA_INVALID"


