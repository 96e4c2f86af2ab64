"""What can go wrong between us and an endpoint, and the errors of ours that it becomes.

Invariants
1. Nothing but the errors of `config.errors` leaves the room: `translate` knows the exceptions of this module, and takes
   everything else for an answer that cannot be read.
2. Words of an endpoint are printed bounded and without control characters; addresses are printed without paths,
   queries and credentials, because those of paid endpoints hold secrets.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from config.errors import Blame, CacheonError, ChainError, ConfigurationError, NetworkError

_TEXT_LIMIT = 300
_PRUNED = re.compile("state already discarded|state is not available|missing trie node|pruned", re.IGNORECASE)
_UNKNOWN = re.compile("unknownblock|unknown block|header was not found|block not found", re.IGNORECASE)
_THROTTLED = re.compile("rate.?limit|too many requests|throttl", re.IGNORECASE)
_THROTTLE_CODES = frozenset({-32005, -32004, -32029, 429})
_WAIT_KEYS = {"retry_after": 1.0, "retryAfter": 1.0, "retry_after_ms": 0.001, "retryAfterMs": 0.001}
_LONGEST_WAIT_SECONDS = 3600.0
_ODD_HINT = "If this lasts, the endpoint is damaged or no subtensor node: use another one in `chain.endpoints`."
_PRUNED_HINT = "Add an archive endpoint of the same chain to `chain.endpoints`."


class SessionLostError(Exception):
    """The connection could not be made, or ended before the answer came."""


class ThrottledError(Exception):
    """The endpoint refuses more traffic for `retry_after` seconds (None = it does not say)."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class AnswerError(Exception):
    """The endpoint answered a request with an error object."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(f"{message}: {data}" if data not in (None, "") else message)
        self.code = code
        self.message = message
        self.data = data


class ForeignChainError(Exception):
    """The endpoint serves another chain."""


def answer_error(error: object) -> AnswerError | ThrottledError:
    """Return what the `error` member of an answer means; it may be of any JSON type."""
    if not isinstance(error, dict):
        return AnswerError(0, f"an error without a code: {error}")
    code, message, data = error.get("code"), str(error.get("message")), error.get("data")
    if isinstance(code, bool) or not isinstance(code, int):
        code = 0
    wait = _wait_of(data)
    if code in _THROTTLE_CODES or wait is not None or _THROTTLED.search(message):
        return ThrottledError(message, wait)
    return AnswerError(code, message, data)


def seconds_of(value: object) -> float | None:
    """Return a waiting time given as a number or its text; None when it is neither, and never more than an hour."""
    try:
        seconds = float(value)  # type: ignore[arg-type] # whatever it is
    except (TypeError, ValueError, OverflowError):
        return None
    return min(seconds, _LONGEST_WAIT_SECONDS) if seconds >= 0 else None


def _wait_of(data: object) -> float | None:
    if not isinstance(data, dict):
        return None
    for key, unit in _WAIT_KEYS.items():
        seconds = seconds_of(data.get(key))
        if seconds is not None:
            return min(seconds * unit, _LONGEST_WAIT_SECONDS)
    return None


def host_of(url: str) -> str:
    """Return an endpoint's host and port: the part of its address that may be shown."""
    try:
        return urlsplit(url).netloc.rpartition("@")[2] or "the endpoint"
    except ValueError:
        return "the endpoint"


def require_address(url: str) -> None:
    """Raise `ConfigurationError` (SETTINGS_INVALID) for what cannot be the address of an endpoint."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("ws", "wss") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good:
        shown = plain(host_of(url) if "@" in url else url)
        raise ConfigurationError(
            "SETTINGS_INVALID", f"a chain endpoint is no websocket address: {shown}",
            hint="write every entry of `chain.endpoints` as ws://host:port or wss://host",
        )


def plain(text: object) -> str:
    """Return words of a stranger, bounded and without anything that a terminal obeys."""
    shown = "".join(letter if letter.isprintable() else " " for letter in str(text)[: 4 * _TEXT_LIMIT])
    return " ".join(shown.split())[:_TEXT_LIMIT]


def translate(error: BaseException, doing: str) -> CacheonError:
    """Return our error for one that was raised while `doing` something (a gerund phrase)."""
    if isinstance(error, CacheonError):
        return error
    text = plain(error).rstrip(". ") or type(error).__name__
    if isinstance(error, ThrottledError):
        until = "" if error.retry_after is None else f"; it asks to wait {error.retry_after:.0f} s"
        return NetworkError(
            "CHAIN_RATE_LIMITED",
            f"The chain endpoint refuses more requests while {doing}: {text}{until}.",
            hint="Lower `chain.rpc_per_second`, or use an endpoint of your own.",
        )
    if isinstance(error, SessionLostError | ConnectionError | OSError):
        return unreachable(f"while {doing}: {text}")
    if isinstance(error, AnswerError):
        return _of_answer(text, doing)
    if type(error).__name__ == "StorageFunctionNotFound":  # the codec's own class; naming it would import the SDK
        return ChainError(
            "CHAIN_ABI_MISSING", f"The runtime lacks a name needed while {doing}: {text}.",
            hint="Update cacheon, or point `chain.endpoints` at a supported subtensor chain.",
            blame=Blame.OPERATOR,
        )
    return ChainError(
        "CHAIN_DECODE_FAILED", f"An answer of the chain could not be read while {doing}: {text}.", hint=_ODD_HINT
    )


def _of_answer(text: str, doing: str) -> CacheonError:
    if _PRUNED.search(text):
        return ChainError(
            "CHAIN_STATE_PRUNED", f"The endpoint no longer has the state needed while {doing}.", hint=_PRUNED_HINT,
            blame=Blame.OPERATOR,
        )
    if _UNKNOWN.search(text):
        return NetworkError(
            "CHAIN_BLOCK_UNKNOWN", f"The endpoint does not know the block asked for while {doing}.",
            hint="The endpoint may be catching up; another one in `chain.endpoints` bridges that.",
        )
    return ChainError(
        "CHAIN_REQUEST_FAILED", f"The chain endpoint answered with an error while {doing}: {text}.", hint=_ODD_HINT
    )


def unreachable(detail: str) -> NetworkError:
    """Return the error for a chain that cannot be reached."""
    return NetworkError(
        "CHAIN_UNREACHABLE",
        f"No chain endpoint can be reached {detail}.",
        hint="Check `chain.endpoints` and that the chain node (or `cacheon devnet`) is running.",
        blame=Blame.OPERATOR,
    )


def foreign(why: str) -> ChainError:
    """Return the error for endpoints of which none serves the chain that this process is bound to."""
    return ChainError(
        "CHAIN_GENESIS_DIFFERS",
        f"The chain endpoints are not of one chain: {why}.",
        hint="All of `chain.endpoints` must serve the chain this node began on.",
        blame=Blame.OPERATOR,
    )
