"""Kernels of bundles on a CPU: the example bundles, and torch functions that fill override points of kernels of ours.

Every example goes through `cacheon scan` and `cacheon verify` as its author would send it.
"""

from __future__ import annotations

import json
import runpy
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli
import torch

from config.target_catalog import load_catalog
from node.cli import main
from qualify.arm_server import start_arm_server
from qualify.comparison import passes
from qualify.content import SHIFTED
from qualify.dtypes import DTYPES
from qualify.override import PROVENANCE, base_absent, compose, find_point, prepare_dense
from qualify.sandbox.client import Zygote
from qualify.slots.registry import SLOTS, find_slot
from qualify.slots.rehearsal import Rehearsal, small, worst
from tests.node.cli.referees import judge_inside
from tests.qualify.support import EXAMPLES, write_arena

GOLDEN = json.loads((Path(__file__).parent / "golden" / "slot_vectors.json").read_text())
CASES = {case["name"]: case for case in GOLDEN["override_cases"]}
SLOT, POINT = "moe.fused_experts", "gemm1_epilogue"


def silu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """Return the default activation."""
    return torch.nn.functional.silu(gate) * up


def clamped(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """Return the clamped activation of one model profile."""
    low, high = gate.clamp(max=7.0), up.clamp(-7.0, 7.0)
    return low * torch.sigmoid(1.702 * low) * (high + 1.0)


def loader(**known: Callable[..., Any]) -> Callable[[str], Callable[..., Any] | None]:
    """Return a loader that knows these names."""
    return known.get


def golden_inputs() -> dict[str, torch.Tensor]:
    """Return the inputs of the recorded call of the slot."""
    (case,) = [case for case in GOLDEN["reference_cases"] if case["case"] == SLOT]
    dtypes = {"float32": torch.float32, "int32": torch.int32}
    return {
        name: torch.tensor(value["data"]).reshape(value["shape"]).to(dtypes[value["dtype"]])
        for name, value in case["inputs"].items()
    }


def run(reference: Callable[..., Any], inputs: dict[str, torch.Tensor], prepared: object = None) -> torch.Tensor:
    """Compose `reference` into the slot's call and return its output."""
    entry, prepare = compose(SLOT, POINT, "act", loader(act_ref=reference))
    state = prepare(inputs["w13"], inputs["w2"]) if prepared is None else prepared
    out = torch.full_like(inputs["x"], float("nan"))
    result: object = entry(inputs["x"], inputs["topk_ids"], inputs["topk_weights"], state, out)
    assert result is out
    return out


def test_the_golden_dense_case() -> None:
    """Output, returned tensor and prepared layout are the recorded ones."""
    value, inputs = CASES["dense_silu_activation"]["value"], golden_inputs()
    out = run(silu, inputs)
    expected = torch.tensor(value["out"]["data"]).reshape(value["out"]["shape"])
    torch.testing.assert_close(out, expected, atol=1e-6, rtol=1e-6)
    prepared = prepare_dense(inputs["w13"], inputs["w2"])
    assert (sorted(prepared), prepared["fmt"], prepared["inter"]) == (
        value["prepared_keys"],
        value["fmt"],
        value["inter"],
    )


def test_the_golden_refusals() -> None:
    """Unknown points name the known ones; the torch form is required, the device form is not; the callable says what
    it is."""
    assert CASES["wrong_slot"]["result"] == "KeyError"
    for slot, point in (("activation.silu_and_mul", POINT), (SLOT, "gemm2_epilogue")):
        with pytest.raises(KeyError, match="fused_experts/gemm1_epilogue"):
            find_point(slot, point)
    with pytest.raises(ValueError, match="act_ref"):
        compose(SLOT, POINT, "act", loader(act=silu))
    entry, _ = compose(SLOT, POINT, "act", loader(act_ref=silu))
    assert getattr(entry, PROVENANCE) == CASES["provenance_attr"]["value"]
    for name, prepared in (("non_dict_prepared", object()), ("missing_fmt", {"w13": 1}), ("", {"fmt": "nvfp4"})):
        assert not name or CASES[name]["result"] == "NotImplementedError"
        with pytest.raises(NotImplementedError, match="device form"):
            run(silu, golden_inputs(), prepared)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_the_dense_path_is_the_slots_reference(dtype: str) -> None:
    """With the default activation the composed call is inside the slot's own tolerance of the float64 reference, and
    the activation is called with gate and up alone."""
    generator = torch.Generator().manual_seed(1)
    kind = getattr(torch, dtype)
    shapes = {"x": (9, 32), "w13": (4, 48, 32), "w2": (4, 32, 24)}
    inputs = {name: (torch.randn(shape, generator=generator) * 0.2).to(kind) for name, shape in shapes.items()}
    inputs["topk_ids"] = torch.randint(0, 4, (9, 2), generator=generator, dtype=torch.int32)
    inputs["topk_weights"] = torch.rand(9, 2, generator=generator) + 0.25
    seen: list[int] = []

    def counted(*halves: torch.Tensor) -> torch.Tensor:
        seen.append(len(halves))
        return silu(*halves)

    out = run(counted, inputs)
    expected = find_slot(SLOT).reference(inputs, {}, torch.float64)["out"]
    exact = 1e-6 if dtype == "float32" else 1e-2
    torch.testing.assert_close(out.float(), expected, atol=exact, rtol=exact)
    assert set(seen) == {2}


def test_another_activation_is_really_used() -> None:
    """The hole is filled by what the bundle brings."""
    inputs = golden_inputs()
    assert not torch.equal(run(clamped, inputs), run(silu, inputs))


def test_the_registry_here_and_the_catalog_agree() -> None:
    """Every point of the catalog composes, and none can be measured with devices yet."""
    for one in load_catalog().override_points:
        assert find_point(one.slot, one.point) == one
        assert base_absent(one.slot, one.point, "cpu") == ""
        assert one.base_kernel in base_absent(one.slot, one.point, "gpu")


NAMES = sorted(path.name for path in EXAMPLES.iterdir() if (path / "manifest.toml").is_file())
WRONG = {"silu_wrong": "WRONG_OUTPUT", "silu_late": "LATE_WRITE"}  # examples of what is found out, and as what
OTHERS = ("all_", "ar_", "finalize_", "moe_", "experts_reduce_", "experts_override")  # of several ranks, or composed
WORKLOAD = '[[workloads]]\ntarget = "{target}"\ndtype = "bfloat16"\nworld_size = {ranks}\nshapes = [{{ {shape} }}]\n'
ATOMIC = '[[workloads]]\ntarget = "{target}"\nmembers = {members}\n'


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write a tiny arena that judges every target, on a public shape of each slot."""
    path = Path(write_arena(tmp_path_factory.mktemp("arena")))
    text = path.read_text().partition("[[workloads]]")[0]
    for target in load_catalog().targets.values():
        if target.kind == "atomic":
            text += ATOMIC.format(target=target.id, members=json.dumps(target.members))
    for slot in SLOTS.values():
        shape = ", ".join(f"{name} = {extent}" for name, extent in small(slot).items())
        text += WORKLOAD.format(target=slot.id, ranks=2 if slot.collective else 1, shape=shape)
    path.write_text(text)
    return str(path)


@pytest.fixture(scope="module")
def arms() -> Iterator[Zygote]:
    """One fork server of arms for all examples."""
    with start_arm_server() as server:
        yield server


@pytest.mark.parametrize("name", NAMES)
def test_every_example_is_judged_as_its_readme_says(
    name: str, arena: str, arms: Zygote, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Intake accepts every example; those that are right pass every screen, the others fail with their code."""
    judge_inside(monkeypatch, arms)
    folder = str(EXAMPLES / name)
    assert main.run(["scan", folder]) == 0
    capsys.readouterr()
    code = main.run(["verify", folder, "--arena", arena, "--json", "--seed", "examples"])
    data = json.loads(capsys.readouterr().out)["data"]
    found = [receipt["code"] for receipt in data["screens"] if receipt["outcome"] == "failed"]
    assert found == ([WRONG[name]] if name in WRONG else []), data["screens"][-1]["message"]
    assert (code == 0) == (name not in WRONG)
    assert len(data["cases"]) > 0
    assert all(find_slot(slot) for slot in data["slot"].split())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [name for name in NAMES if name not in WRONG and not name.startswith(OTHERS)])
def test_every_example_of_one_process_is_right_in_every_dtype(name: str, dtype: str) -> None:
    """Also in float32, where widening is no copy: what is done in place must not reach the inputs."""
    for row in tomli.loads((EXAMPLES / name / "manifest.toml").read_text())["ops"]:
        call = Rehearsal(find_slot(row["slot"]), dtype, SHIFTED)
        before = {one: tensor.clone() for one, tensor in call.tensors.items()}
        module = runpy.run_path(str(EXAMPLES / name / row["source"]))
        known = {**call.inputs, **call.outputs[0], **call.scalars}
        if "prepare" in row:
            known["prepared"] = module[row["prepare"]](*call.weights.values())
        module[row["entry"]](*(known[one.name] for one in call.slot.arguments))
        assert passes(worst(call.figures(call.expected())))
        assert all(torch.equal(tensor, before[one]) for one, tensor in call.tensors.items())


def test_there_is_an_example_for_every_target() -> None:
    """Whoever starts with a target finds a finished bundle for it, and one for every form of bundle."""
    manifests = [(EXAMPLES / name / "manifest.toml").read_text() for name in NAMES]
    for target in load_catalog().targets:
        assert any(f'target = "{target}"' in text for text in manifests), target
    for form in ("override_point", "variant = ", 'mode = "atomic"', "prepare = "):
        assert any(form in text for text in manifests), form


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def gemm1_epilogue_ref(gate):\n    return gate\n", ":1: gemm1_epilogue_ref(gate) does not take (gate, up)"),
        ("async def gemm1_epilogue_ref(gate, up):\n    return gate\n", ":1: gemm1_epilogue_ref is an async function"),
    ],
)
def test_a_filling_that_does_not_fit_its_hole_is_refused_where_it_stands(
    text: str,
    words: str,
    arena: str,
    arms: Zygote,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The torch form of an override takes a gate and an up and computes at once; file and line are named."""
    judge_inside(monkeypatch, arms)
    bundle = tmp_path / "bundle"
    shutil.copytree(EXAMPLES / "experts_override", bundle)
    source = tomli.loads((bundle / "manifest.toml").read_text())["ops"][0]["source"]
    (bundle / source).write_text(text)
    assert main.run(["verify", str(bundle), "--arena", arena, "--json"]) == 3
    last = json.loads(capsys.readouterr().out)["data"]["screens"][-1]
    assert (last["screen"], last["code"]) == ("abi", "ENTRY_SIGNATURE")
    assert f"{source}{words}" in last["message"]
