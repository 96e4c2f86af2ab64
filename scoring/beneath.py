"""What a crown was measured against, worked out from the ledger: the engine tree of crowns that stood at that moment.

An attempt names its incumbent by the digest of an engine tree: the bundles that served the slots it concerns. Which of
the live crowns those are depends on the catalog of that day, and so does their order. So every choice is tried that
holds the crown of the same target, and the digest must be that of one of them. Pure.

Invariants
1. Who crowns over a crown of the same target was measured against that crown, never against stock or a former one.
2. Nothing is said when there are more choices than `TRIES`; then it is told that it was not checked.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from config.canonical import domain_digest
from scoring.settle import Crown

TREE_DOMAIN = "cacheon.engine-tree"  # and the form of its document: those of `qualify.engine_tree`
TREE_SCHEMA = "cacheon.engine-tree.v1"
TRIES = 20_000


def tree_digest(crowns: Sequence[Crown]) -> str:
    """Return the digest of the engine tree of `crowns`, in binding order."""
    rows = [
        {
            "target_id": crown.target_id,
            "content_hash": crown.content_hash,
            "folder": f"cacheon_bundle_{crown.content_hash}",
            "members": list(crown.members),
        }
        for crown in crowns
    ]
    return domain_digest(TREE_DOMAIN, {"schema": TREE_SCHEMA, "parts": rows})


def stood_beneath(incumbent_digest: str, crowns: Sequence[Crown], target_id: str) -> bool | None:
    """Say whether an incumbent is a tree of the live `crowns` with the one of `target_id` in it, if there is one.

    None: there are too many crowns to tell.
    """
    for number, choice in enumerate(_choices(crowns, target_id)):
        if number >= TRIES:
            return None
        if tree_digest(choice) == incumbent_digest:
            return True
    return False


def _choices(crowns: Sequence[Crown], target_id: str) -> Iterator[tuple[Crown, ...]]:
    own = tuple(crown for crown in crowns if crown.target_id == target_id)
    others = [crown for crown in crowns if crown.target_id != target_id]
    for count in range(len(others) + 1):
        for some in itertools.combinations(others, count):
            yield from itertools.permutations((*own, *some))
