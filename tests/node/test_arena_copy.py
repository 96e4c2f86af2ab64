"""The kept copy of the arena document."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.arena import Workload, known_arenas, load_arena
from node.services.arena_copy import keep_arena
from tests.scoring.support import make_arena

MEMBERS = ("collective.ar_residual_rmsnorm", "collective.moe_finalize_ar_rmsnorm")
RICH = make_arena(
    id="rich",
    workloads=(
        *(Workload(member, "float32", ({"num_tokens": 8, "hidden": 64},), world_size=2) for member in MEMBERS),
        Workload("collective.moe_epilogue.v1", members=MEMBERS),
        Workload("moe.fused_experts", "float32", ({"num_tokens": 8},), profile="a-model"),
    ),
)


@pytest.mark.parametrize("arena", [make_arena(), RICH, *map(load_arena, known_arenas())], ids=lambda arena: arena.id)
def test_copy_is_the_same_arena(tmp_path: Path, arena: object) -> None:
    """The copy reads back with the same digest, under that digest; keeping it again changes nothing."""
    path = keep_arena(arena, tmp_path)  # type: ignore[arg-type]
    assert load_arena(str(path)) == arena
    assert path.stem == load_arena(str(path)).digest
    assert keep_arena(arena, tmp_path) == path  # type: ignore[arg-type]


def test_damaged_copy_is_written_anew(tmp_path: Path) -> None:
    """A copy that the disk cut short is replaced."""
    path = keep_arena(make_arena(), tmp_path)
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:40])
    assert load_arena(str(keep_arena(make_arena(), tmp_path))) == make_arena()
