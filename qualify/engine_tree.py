"""The tree an arm runs from: the crowned bundles of all targets, with exactly one target replaced by a candidate.

Invariants
1. A tree is named by its digest, taken over its targets in binding order, each with its bundle's content hash. The same
   bundles give the same digest and the same bytes, in whatever order they are named and wherever the tree is built.
2. Only sets of targets that may be active together make a tree (`config.active_set`).
3. Replacing a target removes what cannot stand beside it and touches nothing else. `rollback` is the tree before that.
4. Every bundle has a folder of its own, named after its content hash and also the package that its modules are imported
   under: two bundles never share a module, and the name does not tell who is candidate and who is incumbent.
5. A tree on disk is whole, read-only and hashed again before it has its name. Files are cloned or copied, never hard
   links: whoever writes into a bundle store cannot reach an arm that runs.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from config.active_set import gives_way, order_active
from config.canonical import canonical_json, domain_digest
from config.errors import HostError, IntakeError
from config.target_catalog import TargetCatalog
from intake.content_hash import hash_tree

TREE_SCHEMA = "cacheon.engine-tree.v1"
DOCUMENT = "engine.json"
_FICLONE = 0x40049409  # of linux/fs.h: share the blocks of another file until one of them is written


class Part(NamedTuple):
    """One target of a tree and the bundle that holds it."""

    target_id: str
    content_hash: str


@dataclass(frozen=True, slots=True)
class EngineTree:
    """Which bundle holds which target; parts are in binding order."""

    catalog: TargetCatalog
    parts: tuple[Part, ...] = ()
    before: EngineTree | None = None  # the tree that `replaced` started from

    @classmethod
    def of(cls, catalog: TargetCatalog, parts: Iterable[Part]) -> EngineTree:
        """Return the tree of `parts`, in whatever order. Raises `ConfigurationError` (ACTIVE_SET_INVALID)."""
        given = tuple(parts)
        order = order_active(catalog, [part.target_id for part in given])
        return cls(catalog, tuple(sorted(given, key=lambda part: order.index(part.target_id))))

    def replaced(self, part: Part) -> EngineTree:
        """Return this tree with one target replaced. Raises `ConfigurationError` (ACTIVE_SET_INVALID)."""
        gone = {one.target_id for one in self.parts if gives_way(self.catalog, one.target_id, part.target_id)}
        kept = [one for one in self.parts if one.target_id not in gone]
        tree = EngineTree.of(self.catalog, [*kept, part])
        return EngineTree(self.catalog, tree.parts, self)

    def rollback(self) -> EngineTree:
        """Return the tree before the last replacement; a tree without one is its own."""
        return self if self.before is None else self.before

    def holder(self, slot: str) -> Part | None:
        """Return the part that serves a slot, alone or as a member of its target; None when stock does."""
        return next((part for part in self.parts if slot in self.members(part)), None)

    def changed(self) -> frozenset[str]:
        """Return the slots whose holder the last replacement changed."""
        before = self.rollback()
        slots = {slot for tree in (self, before) for part in tree.parts for slot in self.members(part)}
        return frozenset(slot for slot in slots if self.holder(slot) != before.holder(slot))

    def members(self, part: Part) -> tuple[str, ...]:
        """Return the slots of a part's target."""
        return self.catalog.targets[part.target_id].members

    def document(self) -> dict[str, object]:
        """Return what the tree consists of, as it stands in `engine.json`."""
        rows = [
            {
                "target_id": part.target_id,
                "content_hash": part.content_hash,
                "folder": package_of(part.content_hash),
                "members": list(self.catalog.targets[part.target_id].members),
            }
            for part in self.parts
        ]
        return {"schema": TREE_SCHEMA, "parts": rows}

    @property
    def digest(self) -> str:
        """Lower-hex identity of the tree."""
        return domain_digest("cacheon.engine-tree", self.document())


def package_of(content_hash: str) -> str:
    """Return the folder of a bundle inside a tree, which is also the package of its modules."""
    return f"cacheon_bundle_{content_hash}"


def materialise(tree: EngineTree, bundles: Mapping[str, str], store: Path) -> Path:
    """Return the folder of `tree` below `store`; build it when it is not there.

    `bundles` has the folder of every bundle by content hash. Raises `HostError`: TREE_NOT_BUILT (it cannot be written),
    BUNDLE_UNUSABLE (a bundle is not what its hash says), TREE_DAMAGED (what is there is not this tree).
    """
    place = store / tree.digest
    if place.exists():
        check_tree(tree, place)
        return place
    try:
        store.mkdir(parents=True, exist_ok=True)
        built = Path(tempfile.mkdtemp(dir=store, prefix=".building-"))
        try:
            _write(tree, bundles, built)
            os.rename(built, place)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
            check_tree(tree, place)  # another process was as fast
        finally:
            if built.exists():
                discard(built)
    except OSError as error:
        raise HostError(
            "TREE_NOT_BUILT", f"the engine tree {tree.digest} cannot be written below {store}: {error.strerror}"
        ) from error
    return place


def check_tree(tree: EngineTree, place: Path) -> None:
    """Return when `place` holds exactly `tree`. Raises `HostError` (TREE_DAMAGED)."""
    wanted = {DOCUMENT, *(package_of(part.content_hash) for part in tree.parts)}
    try:
        whole = {entry.name for entry in os.scandir(place)} == wanted
        whole = whole and (place / DOCUMENT).read_bytes() == canonical_json(tree.document())
        for part in tree.parts if whole else ():
            whole = whole and hash_tree(place / package_of(part.content_hash)).hex == part.content_hash
    except (OSError, IntakeError):
        whole = False
    if not whole:
        raise HostError(
            "TREE_DAMAGED",
            f"{place} is not the engine tree that its name says",
            hint="something else wrote there; remove the folder, the next attempt builds it again",
        )


def discard(place: Path) -> None:
    """Remove a tree that nothing runs from any more. Other trees share nothing with it."""
    for folder, _, _ in os.walk(place):
        os.chmod(folder, 0o700)
    shutil.rmtree(place)


def _write(tree: EngineTree, bundles: Mapping[str, str], built: Path) -> None:
    for part in tree.parts:
        _copy_bundle(part.content_hash, Path(bundles[part.content_hash]), built / package_of(part.content_hash))
    (built / DOCUMENT).write_bytes(canonical_json(tree.document()))
    for folder_name, _, files in os.walk(built, topdown=False):
        for name in files:
            _seal(os.path.join(folder_name, name), 0o444)
        _seal(folder_name, 0o555)


def _copy_bundle(content_hash: str, source: Path, folder: Path) -> None:
    """Copy what the content hash of a bundle covers, and nothing else; what is hashed is the copy."""
    folder.mkdir()
    try:
        for file in hash_tree(source).files:
            target = folder / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            _clone(source / file.path, target)
        seen = hash_tree(folder).hex
    except IntakeError as error:
        raise HostError("BUNDLE_UNUSABLE", f"the published bundle {source} is damaged: {error.message}") from error
    if seen != content_hash:
        raise HostError("BUNDLE_UNUSABLE", f"the published bundle {source} hashes to {seen}, not to its name")


def _clone(source: Path, target: Path) -> None:
    with source.open("rb") as old, target.open("xb") as new:
        try:
            fcntl.ioctl(new.fileno(), _FICLONE, old.fileno())
        except OSError:  # another file system, or one that cannot share blocks
            shutil.copyfileobj(old, new)


def _seal(path: str, mode: int) -> None:
    os.utime(path, (0, 0))  # when a tree was built is nobody's business
    os.chmod(path, mode)
