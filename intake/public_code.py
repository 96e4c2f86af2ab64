"""What everybody has: the code of our examples and of the bundles that `cacheon init` starts.

Invariants
1. A piece or part that is public is nobody's work: holding it makes no copy and no likeness.
2. Only files of this installation are read, and no code among them is run.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from config.errors import CacheonError
from config.target_catalog import load_catalog
from intake.content_hash import read_tree
from intake.scaffold import scaffold
from intake.screen import screen_files

_EXAMPLES = Path(__file__).parent.parent / "examples"


class PublicCode(NamedTuple):
    """Digests of public pieces, and of public parts by their normal form and with all constants alike."""

    pieces: frozenset[str]
    parts: frozenset[str]


@functools.cache
def public_code() -> PublicCode:
    """Return the public code of this installation."""
    pieces: set[str] = set()
    parts: set[str] = set()
    for files in _bundles():
        with suppress(CacheonError):  # what no screen accepts can be in no bundle either
            report = screen_files(files, served=None).report
            pieces |= set(report.pieces)
            parts |= {digest for part in report.parts for digest in (part.digest, part.shape)}
    return PublicCode(frozenset(pieces), frozenset(parts))


def _bundles() -> Iterator[Mapping[str, bytes]]:
    for folder in sorted(_EXAMPLES.iterdir()) if _EXAMPLES.is_dir() else ():
        with suppress(CacheonError):
            yield read_tree(folder)
    catalog = load_catalog()
    for target in catalog.targets.values():
        with suppress(CacheonError):
            yield scaffold(target, catalog, bundle_id="public")
