"""The parts of published bundles, and what two bundles have in common.

Invariants
1. Parts are compared by their normal form (equal), and with all constants alike (alike). Tiny parts and public ones
   count for nothing on either side.
2. A likeness is information for people. No verdict is made of it.
3. Only submissions whose bytes were screened, of other hotkeys, and before this one in chain order are looked at.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from sqlalchemy import Connection, delete, func, insert, select, tuple_

from intake.parts import Part
from node.kinship import RESEMBLES, Kinship, SharedPart
from node.store.schema import bundle_parts, jobs, submissions
from node.store.submission_rows import ORDER, Submission, load_submission
from node.store.values import storable

_WEIGHT = 12  # tokens; what is smaller looks like a thousand others
_SHARE_PPM = 500_000  # of a bundle's parts, by weight, that make a likeness worth telling
_LISTED = 16
_CANDIDATES = 64
_MILLION = 1_000_000


class _Stored(NamedTuple):
    digest: str
    shape: str
    name: str
    weight: int


def record_parts(connection: Connection, content_hash: str, parts: Sequence[Part]) -> None:
    """Keep the parts of a bundle in place of those that an older report listed."""
    connection.execute(delete(bundle_parts).where(bundle_parts.c.content_hash == content_hash))
    rows = {part.digest: part for part in parts}
    if rows:
        connection.execute(insert(bundle_parts), [
            {
                "content_hash": content_hash, "digest": part.digest, "shape": part.shape,
                "name": storable(part.name), "weight": part.weight,
            }
            for part in rows.values()
        ])


def kinship(
    connection: Connection, submission: Submission, earlier: Submission, *, kind: str, public: Collection[str] = ()
) -> Kinship:
    """Return what `submission` shares with `earlier`."""
    own = [part for part in _parts(connection, submission.content_hash) if _counts(part, public)]
    others = _parts(connection, earlier.content_hash)
    by_digest = {part.digest: part for part in others}
    by_shape = {part.shape: part for part in reversed(others)}
    shared: list[SharedPart] = []
    equal = alike = 0
    for part in own:
        other = by_digest.get(part.digest) or by_shape.get(part.shape)
        if other is None:
            continue
        is_equal = other.digest == part.digest
        equal += part.weight if is_equal else 0
        alike += part.weight
        shared.append(SharedPart(part.name, other.name, part.weight, is_equal))
    total = max(1, sum(part.weight for part in own))
    return Kinship(
        kind, earlier.submission_id, earlier.hotkey, earlier.block, equal * _MILLION // total,
        alike * _MILLION // total, tuple(shared[:_LISTED]),
    )


def nearest(connection: Connection, submission: Submission, public: Collection[str]) -> Kinship | None:
    """Return the earlier submission that this one has most in common with; None when that is little."""
    own = [part for part in _parts(connection, submission.content_hash) if _counts(part, public)]
    total = sum(part.weight for part in own)
    if not total:
        return None
    mine = {part.shape for part in own}
    other = bundle_parts.alias()
    matched = (
        select(other.c.content_hash, bundle_parts.c.digest, bundle_parts.c.weight).distinct()
        .join_from(bundle_parts, other, bundle_parts.c.shape == other.c.shape)
        .where(
            bundle_parts.c.content_hash == submission.content_hash, other.c.content_hash != submission.content_hash,
            bundle_parts.c.shape.in_(mine), bundle_parts.c.weight >= _WEIGHT,
        ).subquery()
    )
    share = func.sum(matched.c.weight)
    ranked = (
        select(matched.c.content_hash, share).group_by(matched.c.content_hash)
        .having(share * _MILLION >= total * _SHARE_PPM).order_by(share.desc()).limit(_CANDIDATES)
    )
    for row in connection.execute(ranked).all():
        earlier = _first_of(connection, row.content_hash, submission)
        if earlier is not None:
            return kinship(connection, submission, earlier, kind=RESEMBLES, public=public)
    return None


def _first_of(connection: Connection, content_hash: str, submission: Submission) -> Submission | None:
    found = connection.execute(
        select(submissions.c.submission_id).join(jobs)
        .where(
            submissions.c.content_hash == content_hash, submissions.c.hotkey != submission.hotkey,
            jobs.c.fingerprint != "", tuple_(*ORDER) < tuple_(*submission.order),
        )
        .order_by(*ORDER).limit(1)
    ).scalar()
    return None if found is None else load_submission(connection, found)


def _parts(connection: Connection, content_hash: str) -> list[_Stored]:
    columns = (bundle_parts.c.digest, bundle_parts.c.shape, bundle_parts.c.name, bundle_parts.c.weight)
    rows = connection.execute(
        select(*columns).where(bundle_parts.c.content_hash == content_hash)
        .order_by(bundle_parts.c.weight.desc(), bundle_parts.c.name, bundle_parts.c.digest)
    )
    return [_Stored(*row) for row in rows]


def _counts(part: _Stored, public: Collection[str]) -> bool:
    return part.weight >= _WEIGHT and part.digest not in public and part.shape not in public
