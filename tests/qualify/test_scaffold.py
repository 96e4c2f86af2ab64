"""The bundles that `cacheon init` writes are correct: the referee says so where it can, recorded answers elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from config.slot_resources import load_slot_resources
from config.target_catalog import load_catalog
from intake.file_stream import encode_stream
from intake.publish import publish
from intake.scaffold import argument_name, scaffold
from intake.screen import screen_files
from intake.templates import load_templates
from qualify.referee import run_attempt
from qualify.request import BundleRef
from qualify.sandbox.client import Zygote
from qualify.slots.registry import SLOTS
from tests.qualify.support import make_request, write_arena

GOLDEN = Path(__file__).parent.parent / "golden" / "slot_vectors.json"
CASES = json.loads(GOLDEN.read_text("utf-8"))["reference_cases"]

# What arenas measure in every dtype; whatever else has a reference, once.
SMALL = ("activation.silu_and_mul", "norm.rmsnorm")
MEASURED = [(target, dtype) for target in SMALL for dtype in ("bfloat16", "float16", "float32")]
MEASURED += [(target, "float32") for target in sorted(SLOTS) if target not in SMALL]


def arena_for(target: str, dtype: str, folder: Path) -> str:
    """Write the tiny arena with one workload, a public shape of the slot, and return its path."""
    path = Path(write_arena(folder))
    head = path.read_text().partition("[[workloads]]")[0]
    shape = ", ".join(f"{name} = {extent}" for name, extent in SLOTS[target].catalog_shapes[1].items())
    ranks = "world_size = 2\n" if SLOTS[target].names("group") else ""
    path.write_text(f'{head}[[workloads]]\ntarget = "{target}"\ndtype = "{dtype}"\nshapes = [{{ {shape} }}]\n{ranks}')
    return str(path)


@pytest.mark.parametrize(("target", "dtype"), MEASURED)
def test_the_referee_finds_nothing_wrong(target: str, dtype: str, tmp_path: Path, fork_server: Zygote) -> None:
    """The unchanged scaffold passes the correctness stage and every check of its timed calls."""
    catalog = load_catalog()
    screened = screen_files(scaffold(catalog.targets[target], catalog, bundle_id="fresh"), served=None)
    published = publish(b"".join(encode_stream(screened.files)), screened.report, tmp_path / "store")
    arena = arena_for(target, dtype, tmp_path)
    reference = BundleRef(published.content_hash, str(published.tree), str(published.report_path))
    evidence = run_attempt(make_request(reference, arena, target_id=target), lambda event: None, fork_server)
    assert evidence.incidents == ()
    assert len(evidence.launches) == 2
    assert {check.dtype for check in evidence.stages} == {dtype}


def tensor(value: Any) -> Any:
    """Return a recorded argument: a tensor, or the scalar as it stands."""
    if not isinstance(value, dict):
        return value
    data = [float(item) if isinstance(item, str) else item for item in value["data"]]  # "-inf" is text in JSON
    return torch.tensor(data, dtype=getattr(torch, value["dtype"])).reshape(value["shape"])


def call(slot: str, inputs: dict[str, Any], outputs: list[torch.Tensor], group: object = None) -> None:
    """Run a template as an engine would: its load-time half, then the call, by position; inputs stay as they are."""
    abi, contract = load_slot_resources()[slot], load_catalog().targets[slot].contract
    assert contract is not None
    scope: dict[str, Any] = {}
    exec(compile(load_templates()[slot].source, slot, "exec"), scope)
    named: dict[str, Any] = {**inputs, "group": group}
    named |= dict(zip((argument_name(name) for name in abi.outputs), outputs, strict=True))
    before = {name: value.clone() for name, value in inputs.items() if isinstance(value, torch.Tensor)}
    if contract.prepare:
        named["prepared"] = scope[contract.prepare](*(named[argument_name(name)] for name in abi.prepare_args))
    scope[contract.entry](*(named[argument_name(name)] for name in abi.call_args))
    assert all(torch.equal(inputs[name], value) for name, value in before.items())


@pytest.fixture
def second_rank(monkeypatch: pytest.MonkeyPatch) -> Callable[[torch.Tensor | None], object]:
    """Stand in for a group of two: sums add what the other rank is said to hold (None: as much again)."""

    def join(other: torch.Tensor | None) -> object:
        group = object()

        def all_reduce(total: torch.Tensor, *, group: object) -> None:
            assert group is members
            assert total.dtype is torch.float32
            total += total.clone() if other is None else other

        members = group
        monkeypatch.setattr(torch.distributed, "all_reduce", all_reduce)
        return group

    return join


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["case"]))
def test_templates_give_the_recorded_answers(case: dict[str, Any], second_rank: Callable[..., object]) -> None:
    """Outputs that held NaN hold the reference's answer afterwards."""
    inputs = {name: tensor(value) for name, value in case["inputs"].items()}
    wanted = [tensor(value) for value in case["outputs"]]
    outputs = [torch.full_like(value, torch.nan) for value in wanted]
    call(case["slot"], inputs, outputs, second_rank(torch.tensor(0.0)))
    for got, value in zip(outputs, wanted, strict=True):
        torch.testing.assert_close(got, value)


def test_a_collective_template_adds_what_the_other_rank_holds(second_rank: Callable[..., object]) -> None:
    """The recorded answer of two ranks comes out when the second rank's share arrives."""
    (case,) = (case for case in CASES if "two_rank" in case)
    inputs = {name: tensor(value) for name, value in case["inputs"].items()}
    wanted = [tensor(value) for value in case["two_rank"]["outputs"]]
    outputs = [torch.full_like(value, torch.nan) for value in wanted]
    call(case["slot"], inputs, outputs, second_rank(tensor(case["two_rank"]["rank1_input"]["x"])))
    for got, value in zip(outputs, wanted, strict=True):
        torch.testing.assert_close(got, value)


def test_all_reduce_sums_in_float32(second_rank: Callable[..., object]) -> None:
    """Sums that 16 bits cannot hold on the way are rounded once."""
    x = torch.tensor([[256.0, 1.0]], dtype=torch.bfloat16)
    out = torch.full_like(x, torch.nan)
    call("collective.all_reduce", {"x": x}, [out], second_rank(torch.tensor([[1.0, 2.0]])))
    assert out.tolist() == [[float(torch.tensor(257.0).to(torch.bfloat16)), 3.0]]


def test_the_reducing_experts_are_the_experts_summed(second_rank: Callable[..., object]) -> None:
    """With as much again from the other rank the result is twice that of the plain slot."""
    (case,) = (case for case in CASES if case["slot"] == "moe.fused_experts")
    inputs = {name: tensor(value) for name, value in case["inputs"].items()}
    wanted = tensor(case["outputs"][0])
    out = torch.full_like(wanted, torch.nan)
    call("moe.fused_experts_reduce", inputs, [out], second_rank(None))
    torch.testing.assert_close(out, 2 * wanted)


def test_the_epilogue_gathers_scales_sums_and_normalises(second_rank: Callable[..., object]) -> None:
    """Element by element it is the sum over choices, plus the other rank's, plus the residual, then its norm."""
    generator = torch.Generator().manual_seed(5)
    tokens, padded, choices, width = 3, 5, 2, 4
    gemm_out = torch.randn((padded * choices, width), generator=generator)
    row_map = torch.randperm(padded * choices, generator=generator).to(torch.int32)
    scales = torch.rand((padded, choices), generator=generator)
    residual, weight = torch.randn((tokens, width), generator=generator), torch.rand(width, generator=generator)
    total = residual.double().clone()
    for t in range(tokens):
        for k in range(choices):
            total[t] += 2 * scales[t, k].double() * gemm_out[int(row_map[t + k * padded])]
    outputs = [torch.full((tokens, width), torch.nan) for _ in range(2)]
    inputs = {
        "gemm_out": gemm_out,
        "row_map": row_map,
        "scales": scales,
        "residual": residual,
        "weight": weight,
        "eps": 1e-6,
    }
    call("collective.moe_finalize_ar_rmsnorm", inputs, outputs, second_rank(None))
    norm = total / (total.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight
    torch.testing.assert_close(outputs[0], norm.float())
    torch.testing.assert_close(outputs[1], total.float())
