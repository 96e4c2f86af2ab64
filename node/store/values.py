"""Values on their way into the database: what it takes, and how foreign text is made fit for it.

Invariants
1. Text that came from outside (hosts, bundles, endpoints) is stored as valid UTF-8 of bounded length, whatever came.
2. `UNSTORABLE` are the faults of a value, never of the disk: trying again does not help, another value does.
"""

from __future__ import annotations

from sqlalchemy.exc import DataError, IntegrityError, InterfaceError, ProgrammingError

from config.canonical import CanonicalJsonError

TEXT_CHARACTERS = 2000
UNSTORABLE = (
    OverflowError, UnicodeError, CanonicalJsonError, DataError, IntegrityError, InterfaceError, ProgrammingError,
)


def storable(text: str) -> str:
    """Return foreign `text` as it can be stored: no lone surrogates, no NUL, at most `TEXT_CHARACTERS`."""
    clean = text[:TEXT_CHARACTERS].encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")
    return clean if len(text) <= TEXT_CHARACTERS else clean[:-1] + "\N{HORIZONTAL ELLIPSIS}"
