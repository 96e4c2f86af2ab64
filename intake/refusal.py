"""How intake says no.

Invariants
1. Every refusal is an `IntakeError`; nothing else may leave this room for hostile bytes.
2. Checks add to one `Findings` list, so that a miner sees everything that is wrong at once; the first finding is the
   refusal. The list is bounded: hostile input cannot make the answer large.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from config.errors import Blame, ErrorDocument, IntakeError, SourceLocation
from config.limits import INTAKE

_T = TypeVar("_T")
_SENTENCE = 1000  # characters of one message, and of one hint


class BundleRefused(IntakeError):  # noqa: N818 - says what happened
    """A bundle that breaks at least one rule. `findings` holds every broken rule, this error's own one first."""

    def __init__(self, first: IntakeError, findings: tuple[ErrorDocument, ...]) -> None:
        super().__init__(first.code, first.message, hint=first.hint, blame=first.blame, location=first.location)
        self.findings = findings


class HashMismatch(IntakeError):  # noqa: N818 - says what happened
    """An archive whose content hash is not the committed one. `seen_hash` is what its bytes hash to."""

    def __init__(self, expected_hash: str, seen_hash: str) -> None:
        super().__init__(
            "BUNDLE_HASH_MISMATCH",
            f"the archive hashes to {seen_hash}, not to the committed {expected_hash}.",
            hint="Host the archive that was packaged for this commitment; an edited bundle needs a new commitment.",
        )
        self.expected_hash = expected_hash
        self.seen_hash = seen_hash


class Findings:
    """A bounded, ordered list of refusals."""

    def __init__(self, limit: int = INTAKE.findings) -> None:
        self._limit = limit
        self._items: list[IntakeError] = []
        self._seen: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._items)

    @property
    def is_full(self) -> bool:
        """Whether further refusals are dropped, so that nothing need be spent on them."""
        return len(self._items) >= self._limit

    def add(self, code: str, message: str, *, hint: str = "", path: str = "", line: int = 0) -> None:
        """Record one refusal at `path:line` (no location when `path` is empty)."""
        location = SourceLocation(path, line) if path else None
        self.take(IntakeError(code, message, hint=hint, location=location))

    def take(self, error: IntakeError) -> None:
        """Record an error that was raised elsewhere."""
        if self.is_full:
            return
        tame = _tame(error)
        if str(tame) not in self._seen:
            self._seen.add(str(tame))
            self._items.append(tame)

    def attempt(self, check: Callable[[], _T]) -> _T | None:
        """Return what `check` returns, or record the `IntakeError` it raises and return None."""
        try:
            return check()
        except IntakeError as error:
            self.take(error)
            return None

    @property
    def errors(self) -> tuple[IntakeError, ...]:
        """All findings, in the order they were found."""
        return tuple(self._items)

    def documents(self) -> tuple[ErrorDocument, ...]:
        """Return the wire form of all findings, in the order they were found."""
        return tuple(error.to_document() for error in self._items)

    def raise_if_any(self) -> None:
        """Raise `BundleRefused` for the first finding, if there is one."""
        if self._items:
            raise BundleRefused(self._items[0], self.documents())


def _tame(error: IntakeError) -> IntakeError:
    """Return an error whose texts are short and printable, whatever names and texts of the bundle they quote."""
    message, hint = (_tame_text(text) for text in (error.message, error.hint))
    if message == error.message and hint == error.hint:
        return error
    return IntakeError(error.code, message, hint=hint, blame=error.blame, location=error.location)


def _tame_text(text: str) -> str:
    short = text if len(text) <= _SENTENCE else text[: _SENTENCE - 1] + "\u2026"
    if short.isprintable():
        return short
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in short)


def clip(text: str, limit: int = 80) -> str:
    """Return untrusted `text` quoted, printable and short, for use inside a message."""
    shown = text if len(text) <= limit else text[: limit - 1] + "\u2026"
    return ascii(shown)


def host_fault(code: str, message: str, *, hint: str = "") -> IntakeError:
    """Return an `IntakeError` that is the operator's, not the miner's, to mend."""
    return IntakeError(code, message, hint=hint, blame=Blame.OPERATOR)
