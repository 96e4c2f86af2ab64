"""Versions and the simple requirements that this project writes, such as `torch>=2.13,<2.14`.

Invariants
1. Only release numbers count: local and pre-release parts are cut off, missing numbers are zero.
2. A requirement with a marker (`; extra == ...`) is none of the base installation's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_CLAUSE = re.compile(r"(==|!=|>=|<=|~=|>|<)\s*([0-9][0-9A-Za-z.+!-]*)")


@dataclass(frozen=True, slots=True)
class Requirement:
    """A package and the versions that fit, as they are written."""

    name: str
    specifier: str


def parse_requirement(text: str) -> Requirement | None:
    """Return a requirement of the base installation, None for one with a marker."""
    if ";" in text:
        return None
    found = re.match(r"\s*([A-Za-z0-9._-]+)\s*(?:\[[^]]*\])?\s*\(?([^()]*)\)?\s*$", text)
    return Requirement(found.group(1), found.group(2).strip()) if found else None


def satisfies(version: str, specifier: str) -> bool:
    """Say whether `version` fits every clause of `specifier`; the empty one fits all."""
    return all(_holds(_release(version), sign, _release(wanted)) for sign, wanted in _CLAUSE.findall(specifier))


def _holds(have: tuple[int, ...], sign: str, wanted: tuple[int, ...]) -> bool:
    width = max(len(have), len(wanted))
    left, right = _padded(have, width), _padded(wanted, width)
    match sign:
        case "==":
            return left == right
        case "!=":
            return left != right
        case ">=":
            return left >= right
        case "<=":
            return left <= right
        case ">":
            return left > right
        case "<":
            return left < right
        case _:  # ~=
            return left >= right and have[: len(wanted) - 1] == wanted[:-1]


def _padded(release: tuple[int, ...], width: int) -> tuple[int, ...]:
    return release + (0,) * (width - len(release))


def _release(version: str) -> tuple[int, ...]:
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in found.group().split(".")) if found else ()
