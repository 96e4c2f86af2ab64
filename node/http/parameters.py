"""Parameters of the pages, read strictly.

Invariants
1. A parameter that a page does not know, that is given twice, or whose text is not of its form, is refused and named.
2. The refusal quotes at most a few characters of what was sent.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from multidict import MultiMapping

from config.canonical import is_digest
from config.errors import ConfigurationError
from node.store.receipt_rows import ReceiptQuery
from node.store.submission_pages import PageQuery

PAGE_LIMIT, PAGE_DEFAULT = 100, 50
_ADDRESS = re.compile(r"[1-9A-HJ-NP-Za-km-z]{40,60}")  # base58; whether anybody has it is no question of form
_KIND = re.compile(r"[a-z0-9.-]{1,40}")
_NUMBER = re.compile(r"[1-9][0-9]{0,3}")


def page_query(query: MultiMapping[str]) -> PageQuery:
    """Return the query of a list of submissions. Raises `ConfigurationError` (HTTP_PARAMETER_INVALID)."""
    given = _single(query, ("hotkey", "content_hash", "limit", "after"))
    limit = _limit(given)
    if "hotkey" in given and not _ADDRESS.fullmatch(given["hotkey"]):
        raise _invalid("hotkey", given["hotkey"], "an SS58 address")
    for name in ("content_hash", "after"):
        if name in given:
            digest(name, given[name])
    return PageQuery(
        limit=limit, hotkey=given.get("hotkey", ""), content_hash=given.get("content_hash", ""),
        after=given.get("after", ""),
    )


def receipt_query(query: MultiMapping[str]) -> ReceiptQuery:
    """Return the query of a list of receipts. Raises `ConfigurationError` (HTTP_PARAMETER_INVALID)."""
    given = _single(query, ("kind", "limit", "after"))
    if "kind" in given and not _KIND.fullmatch(given["kind"]):
        raise _invalid("kind", given["kind"], "a kind of receipt, such as weights.v1")
    if "after" in given:
        digest("after", given["after"])
    return ReceiptQuery(limit=_limit(given), kind=given.get("kind", ""), after=given.get("after", ""))


def no_query(query: MultiMapping[str]) -> None:
    """Refuse any parameter. Raises `ConfigurationError` (HTTP_PARAMETER_INVALID)."""
    _single(query, ())


def digest(name: str, text: str) -> str:
    """Return `text` if it is a digest. Raises `ConfigurationError` (HTTP_PARAMETER_INVALID)."""
    if not is_digest(text):
        raise _invalid(name, text, "64 lower-case hexadecimal characters")
    return text


def _limit(given: dict[str, str]) -> int:
    limit = given.get("limit", str(PAGE_DEFAULT))
    if not _NUMBER.fullmatch(limit) or int(limit) > PAGE_LIMIT:
        raise _invalid("limit", limit, f"a number from 1 to {PAGE_LIMIT}")
    return int(limit)


def _single(query: MultiMapping[str], known: Collection[str]) -> dict[str, str]:
    given: dict[str, str] = {}
    for name, text in query.items():
        if name not in known:
            accepted = f"it takes {', '.join(known)}" if known else "it takes none"
            raise ConfigurationError(
                "HTTP_PARAMETER_INVALID", f"this page has no parameter {_clip(name)}", hint=accepted
            )
        if name in given:
            raise ConfigurationError("HTTP_PARAMETER_INVALID", f"the parameter {name} is given twice")
        given[name] = text
    return given


def _invalid(name: str, text: str, form: str) -> ConfigurationError:
    return ConfigurationError("HTTP_PARAMETER_INVALID", f"the parameter {name} is {_clip(text)}, not {form}")


def _clip(text: str) -> str:
    return repr(text if len(text) <= 64 else f"{text[:61]}...").encode("ascii", "backslashreplace").decode()
