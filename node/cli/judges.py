"""Which built-in arenas measure a target; what no arena measures is accepted and waits."""

from __future__ import annotations

import functools

from config.arena import Arena, known_arenas, load_arena


def judges_of(target_id: str) -> tuple[str, ...]:
    """Return the ids of the built-in arenas that have a workload for a target, sorted."""
    return tuple(arena.id for arena in _arenas() if arena.workload(target_id) is not None)


@functools.cache
def _arenas() -> tuple[Arena, ...]:
    return tuple(load_arena(name) for name in known_arenas())
