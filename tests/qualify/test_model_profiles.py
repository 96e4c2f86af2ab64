"""Model profiles: another activation and other bounds for the same call, named by the workload and seen by routing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from config.arena import load_arena
from config.errors import ConfigurationError
from qualify.alignment import Alignment
from qualify.comparison import STANDARD_TOLERANCES, passes
from qualify.docket import open_docket
from qualify.referee import run_attempt
from qualify.request import AttemptRequest
from qualify.sandbox.client import Zygote
from qualify.slots.base import STOCK_ROOT, live_descriptor
from qualify.slots.model_profiles import swigluoai
from qualify.slots.registry import PROFILES, find_slot
from qualify.slots.rehearsal import small
from scoring.attempt import NON_FINITE
from tests.qualify.support import describe_bundle, make_request, write_arena

TARGET = "moe.fused_experts"
WORKLOAD = f"""[[workloads]]
target = "{TARGET}"
dtype = "float32"
profile = "PROFILE"
shapes = [{{ num_tokens = 8, num_experts = 4, hidden = 64, inter = 32, topk = 2 }}]
"""


def arena_of(folder: Path, profile: str) -> str:
    """Write a tiny arena that measures the experts as one model uses them."""
    path = Path(write_arena(folder))
    path.write_text(path.read_text().partition("[[workloads]]")[0] + WORKLOAD.replace("PROFILE", profile))
    return str(path)


def request_for(folder: Path, stock: str, model: str, profile: str = "MiniMax-M3") -> AttemptRequest:
    """Pack a stock form as a candidate that asks for `model`."""
    tree = folder / "bundle"
    (tree / "kernels").mkdir(parents=True)
    (tree / "kernels" / "k.py").write_bytes((STOCK_ROOT / stock).read_bytes())
    (tree / "meta.json").write_text(json.dumps({"capabilities": {"model": {"exact": model}}}))
    (tree / "manifest.toml").write_text(
        'bundle_id = "experts"\nabi_version = "cacheon-op-abi-v0"\n'
        f'[competition]\ntarget = "{TARGET}"\nmode = "slot"\n[[ops]]\nslot = "{TARGET}"\nsource = "kernels/k.py"\n'
        'entry = "fused_experts"\nprepare = "prepare"\nmetadata = "meta.json"\n'
    )
    reference = describe_bundle(tree, folder / "report.json")
    return make_request(reference, arena_of(folder, profile), target_id=TARGET)


@pytest.mark.parametrize(
    ("stock", "kinds"), [("fused_experts_swigluoai.py", []), ("fused_experts.py", ["wrong_output"])]
)
def test_the_activation_of_the_model_is_what_counts(
    stock: str, kinds: list[str], tmp_path: Path, fork_server: Zygote
) -> None:
    """Baseline, candidate and reference all use the profile: its activation is right, that of others is wrong."""
    evidence = run_attempt(request_for(tmp_path, stock, "MiniMax-M3"), lambda event: None, fork_server)
    assert [incident.kind for incident in evidence.incidents] == kinds


def test_a_row_for_another_model_never_routes(tmp_path: Path) -> None:
    """The live call says which model it is of."""
    docket = open_docket(request_for(tmp_path, "fused_experts_swigluoai.py", "MiniMax-M2"))
    assert docket.slot is PROFILES[f"{TARGET}@MiniMax-M3"]
    assert not any(docket.reaches(shape) for shape in docket.shapes)


def test_an_unknown_model_is_refused(tmp_path: Path) -> None:
    """A profile that this build does not know is not taken for the slot itself."""
    with pytest.raises(ConfigurationError) as caught:
        open_docket(request_for(tmp_path, "fused_experts.py", "MiniMax-M3", profile="MiniMax-M9"))
    assert caught.value.code == "SLOT_UNREGISTERED"
    assert f"{TARGET}@MiniMax-M3" in caught.value.hint


def test_the_digest_of_an_arena_binds_the_profile(tmp_path: Path) -> None:
    """Two profiles are two arenas."""
    digests = {load_arena(arena_of(tmp_path, name)).digest for name in ("", "MiniMax-M3", "MiniMax-M3-NVFP4")}
    assert len(digests) == 3


@pytest.mark.parametrize("key", PROFILES)
def test_a_profile_reports_its_model_and_is_the_slot_otherwise(key: str) -> None:
    """Arguments, shapes and public names are those of the slot."""
    profile, slot = PROFILES[key], find_slot(PROFILES[key].id)
    dimensions = small(slot)
    assert profile.arguments == slot.arguments
    assert profile.shapes(dimensions) == slot.shapes(dimensions)
    live = live_descriptor(profile, dimensions, "bfloat16", "cpu")
    assert live == {**live_descriptor(slot, dimensions, "bfloat16", "cpu"), "model": profile.model}


def test_the_clamped_activation_by_hand() -> None:
    """Gates are cut above, ups on both sides."""
    gate, up = torch.tensor([1.0, 9.0, -9.0]).double(), torch.tensor([2.0, 9.0, -9.0]).double()
    sigmoid = torch.sigmoid(torch.tensor(1.702)).item()
    assert swigluoai(gate, up).tolist() == pytest.approx([3 * sigmoid, 7 * 8.0, -9 * -6.0 * 2.2e-7], rel=1e-1, abs=1e-4)


def test_alignment_is_direction_and_length_of_every_row() -> None:
    """A small row that is wrong, a row that is too long, and what is no number fail; rounding to four bits passes."""
    comparator = Alignment(cosine=0.985, row=0.25, norm=0.1)
    expected = torch.randn(4, 64, generator=torch.Generator().manual_seed(1))
    expected[3] *= 1e-4
    expectation = comparator.expect(expected, STANDARD_TOLERANCES["bfloat16"])
    noise = 0.1 * torch.randn(4, 64, generator=torch.Generator().manual_seed(2))
    assert passes(comparator.judge(expected * (1 + noise), expectation))
    assert not passes(comparator.judge(expected * 1.12, expectation))
    turned = expected.clone()
    turned[3] = turned[3].flip(0)
    assert not passes(comparator.judge(turned, expectation))
    assert comparator.locate(turned, expectation).row == 3
    turned[0, 5] = torch.nan
    assert comparator.judge(turned, expectation) == NON_FINITE
    assert comparator.locate(turned, expectation).row == 0
