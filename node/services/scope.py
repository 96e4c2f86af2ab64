"""What an attempt on one target has to do with: the slots it concerns, the crowns over them, and the tree they make.

Invariants
1. A crown outside the scope neither changes when the target is crowned nor decides anything about its calls: its bundle
   is no part of the attempt, so nothing that happens to it can hold the attempt up.
2. Two candidates whose scopes share no slot can be crowned together: each finds the tree that it was measured in.
"""

from __future__ import annotations

from typing import NamedTuple

from config.active_set import footprint
from config.target_catalog import Target, TargetCatalog
from qualify.engine_tree import EngineTree, Part
from scoring.settle import Crown, CrownState, incumbents


class Scope(NamedTuple):
    """The slots an attempt concerns, sorted; all live crowns over them; and the tree of those whose target is served.
    """

    slots: tuple[str, ...]
    crowns: tuple[Crown, ...]
    tree: EngineTree

    @property
    def measured_against(self) -> tuple[str, ...]:
        """The submission ids of the crowns, sorted."""
        return incumbents(CrownState(self.crowns), self.slots)

    @property
    def incumbent(self) -> str:
        """The content hashes of the crowns, sorted and joined by commas; "" is stock."""
        return ",".join(sorted(crown.content_hash for crown in self.crowns))

    def tree_with(self, target: Target, content_hash: str) -> EngineTree:
        """Return the tree in which a bundle holds the target. Raises `ConfigurationError` (ACTIVE_SET_INVALID)."""
        return self.tree.replaced(Part(target.id, content_hash))


def scope_of(catalog: TargetCatalog, state: CrownState, target: Target) -> Scope:
    """Return the scope of an attempt on `target` while the crowns are as in `state`.

    Crowns of targets that are registered no longer count where they overlap, and serve nothing.
    """
    served = [crown for crown in state.crowns if catalog.find(crown.target_id) is not None]
    slots = footprint(catalog, [crown.target_id for crown in served], target.id)
    crowns = tuple(crown for crown in state.crowns if slots.intersection(crown.members))
    parts = [Part(crown.target_id, crown.content_hash) for crown in crowns if crown in served]
    return Scope(tuple(sorted(slots)), crowns, EngineTree.of(catalog, parts))
