"""`config/arena.py`: arena documents and their identity."""

from __future__ import annotations

from importlib import resources

import msgspec
import pytest

from config.arena import known_arenas, load_arena, parse_arena
from config.errors import ConfigurationError
from config.target_catalog import load_catalog

WHOLE = (resources.files("config") / "arenas" / "cpu-small.toml").read_text("utf-8")
TEXT = "\n[[workloads]]".join(WHOLE.split("\n[[workloads]]")[:3])  # two workloads of single processes


@pytest.mark.parametrize("name", known_arenas())
def test_built_in_arenas_judge_registered_targets(name: str) -> None:
    """Every built-in arena loads under its own id and names only registered targets."""
    arena = load_arena(name)
    assert arena.id == name
    assert all(load_catalog().find(load.target) for load in arena.workloads)


def test_any_change_makes_another_arena() -> None:
    """The digest follows every field."""
    arena = load_arena("cpu-small")
    assert arena.digest == load_arena("cpu-small").digest
    assert msgspec.structs.replace(arena, margin_ppm=arena.margin_ppm + 1).digest != arena.digest


def test_workloads_are_found_by_target() -> None:
    """A target outside the arena has no workload."""
    arena = load_arena("cpu-small")
    assert arena.workload("norm.rmsnorm") is not None
    assert arena.workload("attention.nothing") is None


def test_the_size_of_a_group_is_part_of_the_identity_only_where_there_is_one() -> None:
    """A workload says how many ranks make its calls; arenas without groups keep the digest they had."""
    arena = parse_arena(TEXT.encode(), "x")
    first = arena.workloads[0]
    assert first.world_size == 1
    assert "world_size" not in msgspec.to_builtins(first)
    grouped = TEXT.replace('dtype = "bfloat16"', 'dtype = "bfloat16"\nworld_size = 2', 1)
    assert parse_arena(grouped.encode(), "x").digest != arena.digest
    assert parse_arena(grouped.replace("world_size = 2", "world_size = 1").encode(), "x").digest == arena.digest


def test_no_shape_of_a_target_goes_unmeasured() -> None:
    """A launch has a block for every shape; slots that a crown would change besides need blocks, too."""
    one = TEXT.replace("blocks_per_launch = 5", "blocks_per_launch = 1")
    arena = parse_arena(one.encode(), "x")
    slots = sorted(load.target for load in arena.workloads)
    assert arena.measured(slots[0]) == arena.parts(slots[0])
    assert arena.measured(slots[0], slots) == ()
    assert [load.target for load in parse_arena(TEXT.encode(), "x").measured(slots[0], slots)] == slots
    assert parse_arena(TEXT.encode(), "x").measured(slots[0], [*slots, "zzz"]) == ()
    shape = "{ num_tokens = 512, d = 4096 }"
    with pytest.raises(ConfigurationError) as caught:
        parse_arena(one.replace(shape, f"{shape}, {shape}").encode(), "x")
    assert caught.value.code == "ARENA_INVALID"
    assert "a block for every shape" in caught.value.message


MEMBERS = ("collective.ar_residual_rmsnorm", "collective.moe_finalize_ar_rmsnorm")
ATOMIC = """
[[workloads]]
target = "collective.moe_epilogue.v1"
members = ["collective.ar_residual_rmsnorm", "collective.moe_finalize_ar_rmsnorm"]
"""
GROUPS = "".join(
    f'\n[[workloads]]\ntarget = "{name}"\ndtype = "float32"\nworld_size = 2\nshapes = [{{ a = 1 }}]\n'
    for name in MEMBERS
)


def test_an_atomic_target_is_measured_on_its_members_workloads() -> None:
    """Its entry holds no calls of its own; the parts of any target are the workloads that an attempt runs."""
    arena = parse_arena((TEXT + GROUPS + ATOMIC).encode(), "x")
    parts = arena.parts("collective.moe_epilogue.v1")
    assert [part.target for part in parts] == list(MEMBERS)
    assert arena.parts(MEMBERS[0]) == (arena.workload(MEMBERS[0]),)
    assert arena.parts("collective.all_reduce") == ()
    assert msgspec.to_builtins(arena.workloads[-1]).keys() == {"target", "members"}


@pytest.mark.parametrize(
    "text",
    [
        ATOMIC,
        GROUPS + ATOMIC + "world_size = 2\n",
        GROUPS + ATOMIC + 'dtype = "float32"\n',
        GROUPS + ATOMIC + "shapes = [{ a = 1 }]\n",
        '\n[[workloads]]\ntarget = "collective.all_reduce"\ndtype = "float32"\n',
        '\n[[workloads]]\ntarget = "collective.all_reduce"\nshapes = [{ a = 1 }]\n',
    ],
)
def test_half_told_workloads_are_refused(text: str) -> None:
    """Members without workloads, an atomic entry with calls of its own, and calls without dtype or shape."""
    with pytest.raises(ConfigurationError) as caught:
        parse_arena((TEXT + text).encode(), "x")
    assert caught.value.code == "ARENA_INVALID"


@pytest.mark.parametrize("name", ["absent", "../catalog", "absent.toml"])
def test_an_unknown_arena_is_one_error(name: str) -> None:
    """Unknown ids and unreadable paths are refused by name."""
    with pytest.raises(ConfigurationError) as caught:
        load_arena(name)
    assert caught.value.code == "ARENA_NOT_FOUND"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("cacheon.arena.v1", "cacheon.arena.v9"),
        ("launches_min = 10", "launches_min = 17"),
        ("launches_min = 10", "launches_min = 900"),
        ("alpha_ppm = 5000", "alpha_ppm = 0"),
        ("alpha_ppm = 5000", "alpha_ppm = 0.5"),
        ("alpha_ppm = 5000", "alpha_ppm = 5000\nextra = 1"),
        ("outside-monotonic-per-call", "device-events"),
        ("norm.rmsnorm", "activation.silu_and_mul"),
        ('dtype = "bfloat16"', 'dtype = "bfloat16"\nworld_size = 0'),
        ('dtype = "bfloat16"', 'dtype = "bfloat16"\nworld_size = 9'),
        ('schema = "cacheon.arena.v1"', ""),
        ('schema = "cacheon.arena.v1"', "schema = ["),
    ],
)
def test_documents_that_break_a_rule_are_refused(old: str, new: str) -> None:
    """Each broken rule is ARENA_INVALID with the place."""
    assert old in TEXT
    with pytest.raises(ConfigurationError) as caught:
        parse_arena(TEXT.replace(old, new, 1).encode(), "x.toml")
    assert caught.value.code == "ARENA_INVALID"
