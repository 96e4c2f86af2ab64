"""Closed vocabularies, and `Did you mean ...?` for words outside them."""

from __future__ import annotations

import functools
from collections.abc import Iterable


def words(text: str) -> frozenset[str]:
    """Return the words of a blank-separated list; keeps long tables readable."""
    return frozenset(text.split())


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a hint that names the known word closest to `word`, or "" when none is close."""
    return _nearest(word[:64], tuple(known))


@functools.lru_cache(maxsize=256)
def _nearest(word: str, known: tuple[str, ...]) -> str:
    import difflib  # only a refusal needs it; the sandboxed child starts without it

    matches = difflib.get_close_matches(word, known, n=1)
    return f"Did you mean {matches[0]!r}?" if matches else ""
