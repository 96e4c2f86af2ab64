"""Hostile declarations: whatever stands in a row, a parsed row or an `IntakeError` comes out."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.errors import IntakeError
from config.slot_resources import load_slot_resources
from intake.direct.identity import direct_identity
from intake.direct.row import parse_direct_row, read_direct_row
from intake.direct.where import row_place
from intake.suggest import words
from tests.intake.direct import rows
from tests.intake.direct.test_device_plan import TMA
from tests.intake.direct.test_identity import CAPABILITIES, change, full_row

SLOTS = sorted(load_slot_resources())
WORDS = st.sampled_from(
    sorted(
        words(
            "input.x output.out stream.current group.current prepared.state workspace.w run prepare init destroy "
            "tensor pointer scalar descriptor device_ptr shape value native_handle i32 f32 f64 bool const add select "
            "nan none k0 binding_scalar tensor_dim packed_struct tma_descriptor fill group_ipc default main 0x1.0p+0"
        )
    )
)
NUMBERS = st.sampled_from([0, 1, -1, 2, 7, 8, 12, 128, 255, 256, 1 << 31, (1 << 63) - 1, 1 << 63, 1 << 64, 1 << 200])
LEAVES = (
    st.none() | st.booleans() | NUMBERS | st.floats() | WORDS | st.text(max_size=6) | st.dates() | st.just("x" * 5000)
)
KEYS = st.sampled_from(
    sorted(
        words(
            "provider name factory profile_inputs bindings device_plan role plan step specializes prelaunch kind "
            "source projection cast axis components schema nodes result op operands value binding kernels launches "
            "parameters size expression fields offset data_hex tensor_binding tma shape factors static divisor "
            "upper_bound x y z"
        )
    )
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS | st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)


def attempt(row: Any, slot: str, capabilities: Any) -> None:
    """Parse a row; every error has a documented prefix and a short message."""
    errors: list[IntakeError] = []
    parsed = read_direct_row(
        row, errors.append, slot=slot, variant="v", metadata_capabilities=capabilities, where=row_place(0)
    )
    assert (parsed is None) == bool(errors)
    for error in errors:
        assert error.code.startswith("DIRECT_")
        assert len(str(error)) < 2000
        error.message.encode()
    if parsed is not None:
        direct_identity(parsed)


@given(VALUES, VALUES, st.sampled_from(SLOTS))
def test_arbitrary_rows(exports: Any, resources: Any, slot: str) -> None:
    """Nothing but an `IntakeError` comes of rows without any sense."""
    attempt({"aot_exports": exports, "artifact_resources": resources}, slot, None)
    attempt({"aot_exports": [exports], "artifact_resources": [resources]}, slot, {})


def paths(value: Any, prefix: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every value inside a row."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = [prefix] if prefix else []
    for key, item in items:
        found += paths(item, (*prefix, key))
    return found


def seeds() -> list[tuple[rows.Table, str]]:
    """Return valid rows that together use the whole grammar."""
    components = [{"static": 1}, [{"source": "input.x", "projection": "shape", "cast": "i32", "axis": 0}]]
    aggregate = {"kind": "aggregate", "cast": "Shape", "component_cast": "i32", "components": components}
    handle = rows.bind("group.current", "pointer", projection="peer_ptr_table", peer_resource="state.p")
    tensors = [rows.bind("input.x", "tensor"), rows.pointer("output.out"), aggregate, handle]
    parameters = [rows.parameter("tma_descriptor", 128, tma=TMA), rows.parameter("pointer", 8, binding=3)]
    group = rows.op(
        rows.export(tensors, rows.plan(rows.launch(parameters, 4, cluster=rows.xyz(1)))),
        resources=[rows.resource("state.p", scope="group_ipc")],
    )
    return [(full_row(), rows.NORM), (group, rows.REDUCE)]


SEEDS = [(row, slot, paths(row)) for row, slot in seeds()]


def test_the_seeds_are_valid() -> None:
    """Mutation starts from rows that parse."""
    for row, slot, _ in SEEDS:
        assert parse_direct_row(row, slot=slot, variant="v", metadata_capabilities=CAPABILITIES)


HOSTILE: list[Any] = [
    None,
    True,
    0,
    -1,
    16**5000,
    0.5,
    float("nan"),
    "",
    "x" * 9999,
    "\x00\u202e",
    [],
    [[]],
    {},
    {"": 0},
]


@pytest.mark.parametrize("seed", range(len(SEEDS)))
def test_every_value_replaced_by_every_hostile_one(seed: int) -> None:
    """No place of the grammar lets another exception through, for any type of value."""
    row, slot, places = SEEDS[seed]
    for path in places:
        for value in HOSTILE:
            attempt(change(row, path, value), slot, CAPABILITIES)


@given(st.data(), st.sampled_from(range(len(SEEDS))), st.integers(1, 3))
def test_mutated_rows(data: st.DataObject, seed: int, times: int) -> None:
    """One to three values of a valid row replaced, removed or added: still nothing but an `IntakeError`."""
    row, slot, places = SEEDS[seed]
    mutant = copy.deepcopy(row)
    for _ in range(times):
        path = data.draw(st.sampled_from(places))
        try:
            place: Any = mutant
            for part in path[:-1]:
                place = place[part]
            if isinstance(place, dict) and data.draw(st.booleans()):
                del place[path[-1]]
                place[data.draw(KEYS)] = data.draw(VALUES)
            else:
                place[path[-1]] = data.draw(VALUES)
        except (KeyError, IndexError, TypeError):
            continue
    attempt(mutant, slot, data.draw(st.sampled_from([CAPABILITIES, {}, None, {"eps": [1e-6, 2]}])))


@given(st.dictionaries(st.sampled_from(["eps", "causal", "x"]), VALUES, max_size=3))
def test_arbitrary_proofs(capabilities: Any) -> None:
    """Whatever the metadata holds, it proves the value or it does not."""
    attempt(full_row(), rows.NORM, capabilities)
