"""The vocabulary of the doctor: a check looks at a subject and returns findings.

Invariants
1. A finding that is FAIL carries the error that the node would end with; no other finding carries one.
2. WARN and SKIP never stop a node. FAIL does exactly when its check is required.
3. A finding says what was seen and, unless all is well, what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from config.errors import CacheonError
from config.settings import Settings

if TYPE_CHECKING:
    from qualify.intake_runner import IntakeRunner

DEADLINE_SECONDS = 60.0  # for what hangs: a machine at a load of 20 takes many seconds to load a library
CHAIN_SECONDS = 120.0  # for all questions to the chain together; each has the settings' own deadline


class State(StrEnum):
    """How a finding is to be read."""

    PASS = "PASS"
    WARN = "WARN"
    FAIL = "FAIL"
    SKIP = "SKIP"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: `name` is `family.thing`, `seen` and `fix` are sentences for people."""

    name: str
    state: State
    seen: str
    fix: str = ""
    error: CacheonError | None = None


@dataclass(frozen=True, slots=True)
class Subject:
    """What is looked at.

    settings         of the node; None looks at the machine only
    settings_error   why settings that were asked for cannot be used
    screener         the screener of a node that starts; None makes one for the check
    """

    settings: Settings | None = None
    settings_error: CacheonError | None = None
    screener: IntakeRunner | None = None

    @property
    def waived(self) -> tuple[str, ...]:
        """The isolation layers that the operator gave up."""
        return self.settings.sandbox.waive if self.settings is not None else ()


@dataclass(frozen=True, slots=True)
class Check:
    """One thing to look at. `look` blocks, runs on a thread of its own and may raise anything."""

    name: str
    look: Callable[[Subject], Iterable[Finding]]
    deadline_seconds: float = DEADLINE_SECONDS
    required: bool = False
    needs_settings: bool = False


def passed(name: str, seen: str) -> Finding:
    """All is well."""
    return Finding(name, State.PASS, seen)


def warned(name: str, seen: str, fix: str) -> Finding:
    """The node works, but an operator should know."""
    return Finding(name, State.WARN, seen, fix)


def failed(name: str, error: CacheonError) -> Finding:
    """Something that must hold does not."""
    where = f"{error.location}: " if error.location else ""
    return Finding(name, State.FAIL, where + error.message, error.hint, error)


def skipped(name: str, why: str) -> Finding:
    """Nothing to look at here, or nothing to be seen yet."""
    return Finding(name, State.SKIP, why)


def settings_of(subject: Subject) -> Settings:
    """Return the settings of a subject whose check needs them; the runner skips such a check without them."""
    if subject.settings is None:
        raise LookupError("the check needs settings and was run without them")
    return subject.settings
