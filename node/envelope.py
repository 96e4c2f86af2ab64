"""The one envelope of everything that answers in JSON: `--json` of every command, and the node's HTTP pages.

Invariants
1. One envelope is one line: `{"schema":"cacheon.<name>.v1","ok":true,"data":...}` or
   `{"schema":...,"ok":false,"error":{"code":...,"message":...,"hint":...,"blame":...,"location":...}}`.
2. All five keys of an error are always there, and are text that any reader takes.
"""

from __future__ import annotations

import msgspec

from config.errors import ErrorDocument


class _Success(msgspec.Struct, frozen=True):
    schema: str
    ok: bool
    data: object


class _ErrorBody(msgspec.Struct, frozen=True):
    code: str
    message: str
    hint: str
    blame: str
    location: str


class _Failure(msgspec.Struct, frozen=True):
    schema: str
    ok: bool
    error: _ErrorBody


def schema_of(name: str) -> str:
    """Return the schema id of an envelope: `node status` -> `cacheon.node-status.v1`."""
    return f"cacheon.{name.replace(' ', '-')}.v1" if name else "cacheon.v1"


def success_line(name: str, data: object) -> bytes:
    """Return the success envelope of `data` (anything msgspec encodes) as one line, with its newline."""
    try:
        return msgspec.json.encode(_Success(schema_of(name), True, data)) + b"\n"
    except UnicodeEncodeError:  # a path given on the command line may hold bytes that are no text
        return msgspec.json.encode(_Success(schema_of(name), True, _as_text(msgspec.to_builtins(data)))) + b"\n"


def _as_text(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {_as_text(name): _as_text(one) for name, one in value.items()}
    return [_as_text(one) for one in value] if isinstance(value, list | tuple) else value


def failure_line(name: str, error: ErrorDocument) -> bytes:
    """Return the failure envelope as one line, with its newline."""
    texts = (error.code, error.message, error.hint, error.blame, error.location)
    # a path given on the command line may hold bytes that are no text
    body = _ErrorBody(*(text.encode("utf-8", "backslashreplace").decode("utf-8") for text in texts))
    return msgspec.json.encode(_Failure(schema_of(name), False, body)) + b"\n"
