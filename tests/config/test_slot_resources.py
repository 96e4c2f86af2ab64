"""`config/slot_resources.py`: the call ABI of every slot as data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from config.errors import ConfigurationError
from config.slot_resources import load_slot_resources, parse_slot_resources

SPEC = json.loads((Path(__file__).parent.parent / "golden" / "slot_vectors.json").read_text("utf-8"))["spec"]
HEAD = 'schema = "cacheon.slot-resources.v1"\nstream = {name = "stream.current", kind = "stream"}\n'
GROUP = 'group = [{name = "group.current", kind = "group"}]\n[slots.s]\n'


def plain(value: object) -> Any:
    """Return a resource as the vectors spell it: what is not given is left out."""
    row = msgspec.to_builtins(value)
    return {key: list(item) if isinstance(item, tuple) else item for key, item in row.items() if item not in (None, ())}


@pytest.mark.parametrize("slot", sorted(SPEC))
def test_each_slot_has_the_recorded_call(slot: str) -> None:
    """Resources, their order, and the order of arguments are those of the deployed network."""
    abi, recorded = load_slot_resources()[slot], SPEC[slot]
    assert [plain(item) for item in abi.resources] == recorded["resources"]
    assert list(abi.call_args) == recorded["call_args"]
    assert list(abi.prepare_args) == recorded["prepare_args"]
    assert abi.prepare_result == recorded["prepare_result"]


def test_the_table_has_no_other_slot_and_one_type_per_field() -> None:
    """The vectors cover the whole table; scalars to specialize on have one type wherever they occur."""
    table = load_slot_resources()
    assert sorted(table) == sorted(SPEC)
    assert len(table) == len(SPEC)
    assert dict(table.capability_scalars) == {
        "block_size": "i64",
        "causal": "bool",
        "eps": "f64",
        "rank": "i32",
        "sm_scale": "f64",
        "world_size": "i32",
    }


def test_identities_are_stable_and_distinct() -> None:
    """A changed resource changes the digests of slot and table; policy around the call changes only the latter."""
    table = load_slot_resources()
    assert len({abi.digest for abi in table.values()}) == len(table)
    text = (
        HEAD
        + GROUP
        + 'call_args = ["output.o"]\nresources = [{name = "output.o", kind = "tensor", access = "write"}]\n'
    )
    base = parse_slot_resources(text.encode(), "x")
    renamed = parse_slot_resources(text.replace("output.o", "output.p").encode(), "x")
    assert base["s"].digest != renamed["s"].digest
    assert base.digest != renamed.digest
    offered = text.replace('kind = "group"', 'kind = "group", provider_capabilities = ["c"]')
    collective = offered.replace("[slots.s]", "[slots.s]\ncollective = true")
    plain_collective = text.replace("[slots.s]", "[slots.s]\ncollective = true")
    one, other = parse_slot_resources(collective.encode(), "x"), parse_slot_resources(plain_collective.encode(), "x")
    assert one["s"].digest == other["s"].digest
    assert one.digest != other.digest


OUT = '{name = "output.o", kind = "tensor", access = "write"}'


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (f"call_args = []\nresources = [{OUT}]", "argument"),
        (f'call_args = ["output.o", "output.o"]\nresources = [{OUT}]', "twice"),
        (f'call_args = ["output.o", "input.x"]\nresources = [{OUT}]', "no resource"),
        (f'call_args = ["output.o"]\nresources = [{OUT}, {OUT}]', "twice"),
        (f'call_args = ["output.o"]\nresources = [{OUT}, {{name = "input.x", kind = "tensor"}}]', "input"),
        (f'call_args = ["output.o"]\nresources = [{OUT}, {{name = "input.x", kind = "scalar"}}]', "malformed"),
        (f'call_args = ["output.o"]\nresources = [{OUT}, {{name = "other.x", kind = "tensor"}}]', "malformed"),
        ('call_args = ["output.o"]\nresources = [{name = "output.o", kind = "tensor"}]', "malformed"),
        ('call_args = ["input.x"]\nresources = [{name = "input.x", kind = "tensor"}]', "outputs"),
        (f'call_args = ["output.o"]\nprepare_args = ["output.o"]\nresources = [{OUT}]', "outputs"),
        (f'call_args = ["output.o"]\nprepare_result = "prepared.s"\nresources = [{OUT}]', "prepare"),
        (f'call_args = ["output.o"]\nmystery = 1\nresources = [{OUT}]', "mystery"),
    ],
)
def test_a_malformed_table_is_refused(body: str, complaint: str) -> None:
    """Each rule of a call ABI is checked when the table is loaded."""
    with pytest.raises(ConfigurationError, match=complaint) as caught:
        parse_slot_resources((HEAD + GROUP + body).encode(), "x")
    assert caught.value.code == "SLOT_RESOURCES_INVALID"


def test_one_capability_field_has_one_type() -> None:
    """A field that is an integer in one slot and a float in another could not be declared in metadata."""
    slot = (
        '[slots.{}]\ncall_args = ["output.o", "input.x"]\nresources = [{}, {{name = "input.x", kind = "scalar", {}}}]\n'
    )
    text = HEAD + "group = []\n"
    for name, scalar_type in (("a", "i32"), ("b", "f64")):
        text += slot.format(name, OUT, f'scalar_type = "{scalar_type}", capability_field = "f"')
    with pytest.raises(ConfigurationError, match="two types"):
        parse_slot_resources(text.encode(), "x")


@pytest.mark.parametrize(
    "data", [b"\xff", b"x = ", b'schema = "other"\nstream = {name="s", kind="stream"}\ngroup=[]\nslots={}']
)
def test_bytes_that_are_no_table_are_refused(data: bytes) -> None:
    """Neither broken TOML nor another schema is read."""
    with pytest.raises(ConfigurationError) as caught:
        parse_slot_resources(data, "x")
    assert caught.value.code == "SLOT_RESOURCES_INVALID"
