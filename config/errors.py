"""The one error root of the project.

Rules
1. Every refusal a person can see is a `CacheonError`: a stable code, one sentence, a hint, blame and, for
   bundles, a source location.
2. Families exist by who has to act; the family decides the process exit code (`ExitCode`).
3. Errors of dependencies never leave a room: they are caught at its edge and re-raised as one of these.
4. Every code is documented in `config/codes/<room>.toml`; a test compares the two.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import ClassVar

import msgspec


class Blame(StrEnum):
    """Who has to act so that the same thing does not happen again."""

    MINER = "miner"
    OPERATOR = "operator"
    CHAIN = "chain"
    INTERNAL = "internal"


class ExitCode(IntEnum):
    """Process exit codes of every `cacheon` command."""

    OK = 0
    INTERNAL = 1
    USAGE = 2
    REJECTED = 3
    CHAIN = 4
    NETWORK = 5
    HOST = 6
    NOT_FOUND = 7
    INTERRUPTED = 130


_LINE_DIGITS = 9


class SourceLocation(msgspec.Struct, frozen=True):
    """A place in a bundle or settings file; `line` counts from 1 and is 0 when only the file is known."""

    path: str
    line: int = 0

    @classmethod
    def read(cls, text: str) -> SourceLocation:
        """Return the place that `text` names, as `str` writes it. What is no line number belongs to the path."""
        path, _, line = text.rpartition(":")
        numbered = bool(path) and line.isascii() and line.isdigit() and len(line) <= _LINE_DIGITS
        return cls(path, int(line)) if numbered else cls(text)

    def __str__(self) -> str:
        return f"{self.path}:{self.line}" if self.line else self.path


class ErrorDocument(msgspec.Struct, frozen=True, omit_defaults=True):
    """The wire form of an error, as it stands in `--json` output, logs and child-process reports."""

    code: str
    message: str
    hint: str = ""
    blame: str = ""
    location: str = ""


class CacheonError(Exception):
    """Root of all errors of this project.

    `code` is stable upper snake case; `message` is one sentence; `hint` says what to do next.
    """

    exit_code: ClassVar[ExitCode] = ExitCode.INTERNAL
    default_blame: ClassVar[Blame] = Blame.INTERNAL

    def __init__(
        self,
        code: str,
        message: str,
        *,
        hint: str = "",
        blame: Blame | None = None,
        location: SourceLocation | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.blame = self.default_blame if blame is None else blame
        self.location = location

    def to_document(self) -> ErrorDocument:
        """Return the wire form."""
        return ErrorDocument(
            code=self.code,
            message=self.message,
            hint=self.hint,
            blame=self.blame.value,
            location=str(self.location) if self.location else "",
        )

    def __str__(self) -> str:
        where = f"{self.location}: " if self.location else ""
        return f"{where}{self.message} [{self.code}]"


class InternalError(CacheonError):
    """A broken invariant of ours."""


class ConfigurationError(CacheonError):
    """Settings or command-line arguments that cannot be used."""

    exit_code = ExitCode.USAGE
    default_blame = Blame.OPERATOR


class IntakeError(CacheonError):
    """A bundle that is refused; the only error that may leave `intake/` for hostile bytes."""

    exit_code = ExitCode.REJECTED
    default_blame = Blame.MINER


class GradeError(CacheonError):
    """An attempt file that cannot be graded: malformed, altered or from an unknown schema."""

    exit_code = ExitCode.REJECTED
    default_blame = Blame.OPERATOR


class EvidenceError(GradeError):
    """An attempt file that contradicts itself or its arena: a referee of ours wrote it, so it is ours to explain."""

    default_blame = Blame.INTERNAL


class ChainError(CacheonError):
    """The chain refused, or is not what this node needs."""

    exit_code = ExitCode.CHAIN
    default_blame = Blame.CHAIN


class WalletError(CacheonError):
    """A key that is missing, unreadable or not registered."""

    exit_code = ExitCode.CHAIN
    default_blame = Blame.OPERATOR


class NetworkError(CacheonError):
    """Something upstream is unreachable or too slow; the same call may succeed later."""

    exit_code = ExitCode.NETWORK
    default_blame = Blame.CHAIN


class HostError(CacheonError):
    """This machine is not ready: a missing library, isolation layer, port or writable folder."""

    exit_code = ExitCode.HOST
    default_blame = Blame.OPERATOR


class NotFoundError(CacheonError):
    """The thing asked for does not exist, or not yet."""

    exit_code = ExitCode.NOT_FOUND
    default_blame = Blame.OPERATOR
