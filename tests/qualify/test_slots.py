"""The admission test of every registered slot: cheap cheats fail, the stock form passes, the reference is right."""

from __future__ import annotations

import runpy
from collections.abc import Callable

import pytest
import torch

from config.arena import known_arenas, load_arena
from config.errors import ConfigurationError
from qualify.comparison import passes
from qualify.content import ALL_STYLES, NORMAL, Content, Source, Style
from qualify.dtypes import DTYPES
from qualify.slots.base import STOCK_ROOT, Slot, live_descriptor
from qualify.slots.registry import SLOTS, find_slot

Arguments = list[torch.Tensor | float]
CONTENT = Content(bytes(32), "admission", dtype="float32", elements=1 << 20, words=1 << 10)


def extents(slot: Slot) -> dict[str, int]:
    """Return small extents that are no multiples of anything."""
    return {name: {"num_tokens": 13}.get(name, 384) for name in slot.dimensions}


def question(slot: Slot, dtype: str, style: Style) -> tuple[Arguments, dict[str, torch.Tensor], torch.Tensor]:
    """Return the arguments of one call, its inputs by name, and the expected output."""
    generator = CONTENT.generator("admission", sum(style.name.encode()))
    dimensions = extents(slot)
    shapes = slot.shapes(dimensions)
    inputs = {name: torch.empty(shapes[name], dtype=DTYPES[dtype]) for name in slot.names("input")}
    slot.draw(inputs, dimensions, style, Source(CONTENT, generator))
    out = torch.randn(shapes["out"], generator=torch.Generator().manual_seed(3)).to(DTYPES[dtype])
    scalars = slot.scalars(dimensions)
    by_role = {"input": inputs, "output": {"out": out}, "scalar": scalars}
    arguments = [by_role[argument.role][argument.name] for argument in slot.arguments]
    expected = slot.reference(inputs, scalars, torch.float64)["out"]
    return arguments, inputs, expected  # type: ignore[return-value]


def output(slot: Slot, arguments: Arguments) -> torch.Tensor:
    """Return the output among the arguments of a call."""
    value = arguments[[argument.role for argument in slot.arguments].index("output")]
    assert isinstance(value, torch.Tensor)
    return value


CONTROLS: dict[str, Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None]] = {
    "no-op": lambda out, x, expected: None,
    "zeros": lambda out, x, expected: out.zero_(),
    "ones": lambda out, x, expected: out.fill_(1.0),
    "mean": lambda out, x, expected: out.fill_(float(expected.mean())),
    "row mean": lambda out, x, expected: out.copy_(expected.mean(-1, keepdim=True).expand_as(out)),
    "copied input": lambda out, x, expected: out.copy_(x[..., : out.shape[-1]]),
    "all but one element": lambda out, x, expected: out.copy_(expected).view(-1)[7:8].add_(1e6),
    "all but the last row": lambda out, x, expected: out[:-1].copy_(expected[:-1]),
    "three percent off": lambda out, x, expected: out.copy_(expected * 1.03),
}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("style", [NORMAL, *ALL_STYLES[1:]], ids=lambda style: style.name)
@pytest.mark.parametrize("slot", SLOTS.values(), ids=lambda slot: slot.id)
def test_stock_passes_its_own_reference(slot: Slot, style: Style, dtype: str) -> None:
    """The stock form is right on every distribution and dtype, with both precisions of the reference."""
    arguments, inputs, expected = question(slot, dtype, style)
    source, entry = slot.stock
    runpy.run_path(str(STOCK_ROOT / source))[entry](*arguments)
    for precision in (torch.float64, torch.float32):
        wanted = slot.reference(inputs, slot.scalars(extents(slot)), precision)["out"]
        expectation = slot.comparator.expect(wanted, slot.tolerance(dtype))
        assert passes(slot.comparator.judge(output(slot, arguments), expectation))
    assert expected.dtype == torch.float32


@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize("style", ALL_STYLES, ids=lambda style: style.name)
@pytest.mark.parametrize("slot", SLOTS.values(), ids=lambda slot: slot.id)
def test_controls_fail(slot: Slot, style: Style, control: str) -> None:
    """What writes nothing, constants, averages, its input, or almost everything right, is wrong."""
    arguments, inputs, expected = question(slot, "bfloat16", style)
    out = output(slot, arguments)
    CONTROLS[control](out, inputs["x"], expected)
    expectation = slot.comparator.expect(expected, slot.tolerance("bfloat16"))
    assert not passes(slot.comparator.judge(out, expectation))


def test_the_references_agree_with_values_worked_out_by_hand() -> None:
    """silu(1) * 2 and the norm of (3, 4) are what mathematics says."""
    silu = find_slot("activation.silu_and_mul")
    got = silu.reference({"x": torch.tensor([[1.0, 2.0]])}, {}, torch.float64)["out"]
    assert got.item() == pytest.approx(2 * 0.7310585786)
    norm = find_slot("norm.rmsnorm")
    inputs = {"x": torch.tensor([[3.0, 4.0]]), "weight": torch.tensor([1.0, 2.0])}
    got = norm.reference(inputs, {"eps": 0.0}, torch.float64)["out"]
    assert got.tolist()[0] == pytest.approx([3 / 12.5**0.5, 8 / 12.5**0.5])


def test_extreme_gates_do_not_break_the_reference() -> None:
    """The reference saturates instead of overflowing."""
    silu = find_slot("activation.silu_and_mul")
    x = torch.tensor([[-1e4, -80.0, 0.0, 80.0, 1e4, 1.0, 1.0, 1.0, 1.0, 1.0]])
    got = silu.reference({"x": x}, {}, torch.float32)["out"]
    assert torch.isfinite(got).all()
    assert got.tolist()[0][2:] == [0.0, 80.0, 1e4]


@pytest.mark.parametrize("name", known_arenas())
def test_every_target_an_arena_judges_has_a_slot(name: str) -> None:
    """A workload of a built-in arena can be measured: its slot, dimensions and dtype are known."""
    for workload in load_arena(name).workloads:
        slot = find_slot(workload.target)
        assert workload.dtype in DTYPES
        for shape in workload.shapes:
            assert set(shape) == set(slot.dimensions)


def test_an_unknown_slot_is_refused_with_the_known_ones() -> None:
    """The hint lists what this build can measure."""
    with pytest.raises(ConfigurationError) as caught:
        find_slot("attention.nothing")
    assert caught.value.code == "SLOT_UNREGISTERED"
    assert "norm.rmsnorm" in caught.value.hint


@pytest.mark.parametrize("slot", SLOTS.values(), ids=lambda slot: slot.id)
def test_the_live_descriptor_names_every_extent(slot: Slot) -> None:
    """A bundle that limits num_tokens can be routed: the field is there."""
    descriptor = live_descriptor(slot, dict.fromkeys(slot.dimensions, 64), "bfloat16", "cpu")
    assert descriptor["num_tokens"] == 64
    assert descriptor["dtype"] == "bfloat16"
    assert {"architecture", "last_dim", "graph_mode", "layout", "quant"} <= set(descriptor)
