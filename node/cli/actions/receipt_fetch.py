"""`cacheon receipt fetch`: a node's published documents, over HTTP, into a folder as `receipt export` writes it.

Invariants
1. What a node answers is not trusted. A document is written only if it has the digest that it was asked by, under no
   other name. Everything is bounded (`FetchLimits`): how much is listed, each answer and all of them, the time of each
   and of all; beyond a bound the command ends with FETCH_LIMIT_REACHED.
2. What is there already is not asked for again; a file is complete under its name or not there.
"""

from __future__ import annotations

import asyncio
import time
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

import msgspec

from config.arena import parse_arena
from config.canonical import CanonicalJsonError, domain_digest, is_digest, read_json, sha256_hex
from config.errors import Blame, ConfigurationError, GradeError, HostError, NetworkError
from config.limits import EVIDENCE, RECEIPT_BYTES
from config.statement import open_envelope, read_statement
from node.cli.output import Output, facts
from node.receipt_folder import DOCUMENT_BYTES, inflate
from node.store.layout import write_durably
from scoring.ledger import LEDGER_V1
from scoring.proof import TARGET_DOMAIN
from scoring.receipts import VERDICT_V1

if TYPE_CHECKING:
    import aiohttp
    from rich.console import Console

_PAGE = 100
_CHUNK_BYTES = 256 * 1024
_LEDGER_KIND = LEDGER_V1.rpartition(":")[2]


@dataclass(frozen=True)
class FetchLimits:
    """How much of a node's answers is taken in one run. What was fetched is kept, so a second run goes on after it."""

    receipts: int = 500_000  # that it lists
    page_bytes: int = 256 * 1024  # of one page of that list
    total_bytes: int = 16 * 1024**3  # of all answers together
    answer_seconds: float = 60.0
    total_seconds: float = 4 * 3600.0


LIMITS = FetchLimits()
_BODY_BYTES = {
    "receipts": RECEIPT_BYTES, "ledger": RECEIPT_BYTES, "attempts": EVIDENCE.attempt_bytes, "arenas": DOCUMENT_BYTES,
    "targets": DOCUMENT_BYTES,
}


class Fetched(msgspec.Struct, frozen=True):
    """The result as `--json` shows it: what the node lists, what was new, and what it names and does not serve."""

    folder: str
    listed: int
    new: int
    absent: tuple[str, ...]


class _Listed(msgspec.Struct, frozen=True):
    digest: str
    kind: str


class _Page(msgspec.Struct, frozen=True):
    receipts: tuple[_Listed, ...]
    next: str


class _Envelope(msgspec.Struct, frozen=True):
    data: _Page


def run(url: str, folder: str, *, with_attempts: bool, as_json: bool, limits: FetchLimits = LIMITS) -> None:
    """Fetch. Raises `ConfigurationError` (NODE_URL_INVALID, NODE_ANSWER_INVALID), `NetworkError` (NODE_UNREACHABLE,
    FETCH_LIMIT_REACHED) and `HostError` (EXPORT_UNWRITABLE)."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ConfigurationError(
            "NODE_URL_INVALID", f"{url!r} is no address of a node", hint="give it as http://127.0.0.1:9980"
        )
    to = Path(folder).absolute()
    try:
        for name in ("receipts", "ledger", "attempts", "arenas", "targets"):
            (to / name).mkdir(parents=True, exist_ok=True)
        result = asyncio.run(_Fetch(url.rstrip("/"), to, limits, with_attempts=with_attempts).run())
    except OSError as error:
        raise HostError("EXPORT_UNWRITABLE", f"{to} cannot be written: {error.strerror or error}") from error
    Output("receipt fetch", as_json=as_json).result(result, lambda console: _show(console, result))


class _Fetch:
    def __init__(self, url: str, to: Path, limits: FetchLimits, *, with_attempts: bool) -> None:
        self._url = url
        self._to = to
        self._limits = limits
        self._bytes = 0
        self._end = time.monotonic() + limits.total_seconds
        self._with_attempts = with_attempts
        self._new = 0
        self._absent: list[str] = []
        self._session: aiohttp.ClientSession

    async def run(self) -> Fetched:
        import aiohttp

        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=self._limits.answer_seconds), cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False, headers={"Accept-Encoding": "identity"},  # what comes is counted as it comes
        )
        async with self._session:
            listed = await self._list()
            for one in listed:
                await self._receipt(one)
        return Fetched(str(self._to), len(listed), self._new, tuple(self._absent))

    async def _list(self) -> list[_Listed]:
        """Return every receipt that the node lists, each once."""
        listed: dict[str, _Listed] = {}
        after = ""
        while True:
            query = urlencode({"limit": _PAGE} | ({"after": after} if after else {}))
            body = await self._get(f"/api/v1/receipts?{query}", self._limits.page_bytes)
            try:
                page = msgspec.json.decode(body or b"", type=_Envelope).data
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise self._strange("something else than a list of receipts") from error
            if len(page.receipts) > _PAGE or (page.next and not is_digest(page.next)):
                raise self._strange("a page of another form than was asked for")
            known = len(listed)
            listed |= {one.digest: one for one in page.receipts if is_digest(one.digest)}
            if len(listed) > self._limits.receipts:
                raise self._beyond(f"more than {self._limits.receipts} receipts")
            if not page.next or len(listed) == known:
                return list(listed.values())
            after = page.next

    async def _receipt(self, one: _Listed) -> None:
        is_ledger = one.kind == _LEDGER_KIND
        path = self._to / ("ledger" if is_ledger else "receipts") / (one.digest if is_ledger else f"{one.digest}.json")
        if not path.exists():
            body = await self._get(f"/api/v1/{path.parent.name}/{one.digest}", RECEIPT_BYTES)
            if body is None:
                self._absent.append(f"{path.parent.name}/{one.digest}")
                return
            if sha256_hex(body) != one.digest:
                raise self._strange(f"other bytes than those of {one.digest[:12]}")
            self._write(path, body)
        if not is_ledger:
            for kind, digest, ending in self._behind(path.read_bytes()):
                await self._evidence(kind, digest, ending)

    def _behind(self, receipt: bytes) -> list[tuple[str, str, str]]:
        """Return the documents that a verdict's receipt names. Whether it is a good receipt is asked later."""
        try:
            statement = read_statement(open_envelope(receipt).payload)
        except GradeError:
            return []
        said: dict[str, Any] = statement.predicate if statement.predicate_type == VERDICT_V1 else {}
        named = [("arenas", "arena_digest", ".toml"), ("targets", "target_digest", ".json")]
        if self._with_attempts:
            named.append(("attempts", "attempt_digest", ".json.gz"))
        return [(kind, str(said[key]), ending) for kind, key, ending in named if is_digest(said.get(key))]

    async def _evidence(self, kind: str, digest: str, ending: str) -> None:
        path, name = self._to / kind / f"{digest}{ending}", f"{kind}/{digest}"
        if path.exists() or name in self._absent:
            return
        body = await self._get(f"/api/v1/{name}", _BODY_BYTES[kind])
        if body is None:
            self._absent.append(name)
        elif not await asyncio.to_thread(_is_named, kind, digest, body):
            raise self._strange(f"other bytes than those of {name[: len(kind) + 13]}")
        else:
            self._write(path, body)

    def _write(self, path: Path, body: bytes) -> None:
        write_durably(path, body, mode=0o644)
        self._new += 1

    async def _get(self, path: str, limit: int) -> bytes | None:
        """Return a page's bytes, `limit` of them at most, or None when the node has no such document."""
        import aiohttp

        body = bytearray()
        self._count(0)
        try:
            async with self._session.get(self._url + path, allow_redirects=False) as response:
                while len(body) <= limit and (more := await response.content.read(_CHUNK_BYTES)):
                    body += more
                    self._count(len(more))
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
            raise NetworkError(
                "NODE_UNREACHABLE", f"the node at {self._url} cannot be asked: {str(error) or type(error).__name__}",
                blame=Blame.OPERATOR, hint="check the address, and that the node runs with `http.listen` set",
            ) from error
        if response.status == 404:
            return None
        if len(body) > limit:
            raise self._beyond(f"more than {limit} bytes as an answer to {path.partition('?')[0]}")
        if response.status != 200:
            raise self._strange(f"status {response.status}")
        return bytes(body)

    def _count(self, taken: int) -> None:
        self._bytes += taken
        if self._bytes > self._limits.total_bytes:
            raise self._beyond(f"more than {self._limits.total_bytes} bytes in all")
        if time.monotonic() > self._end:
            raise self._beyond(f"its documents for more than {self._limits.total_seconds:.0f} s")

    def _beyond(self, what: str) -> NetworkError:
        return NetworkError(
            "FETCH_LIMIT_REACHED", f"{self._url} sends {what}", blame=Blame.OPERATOR,
            hint="what was fetched is kept: a second run goes on after it; a node that never ends is none to believe",
        )

    def _strange(self, what: str) -> ConfigurationError:
        return ConfigurationError(
            "NODE_ANSWER_INVALID", f"{self._url} answers with {what}, not as a node of this release",
            hint="check that the address is that of a node's `http.listen`",
        )


def _is_named(kind: str, digest: str, body: bytes) -> bool:
    """Say whether a document has the digest that it was asked by, as its kind counts that."""
    try:
        match kind:
            case "attempts":
                return sha256_hex(inflate(body)) == digest
            case "arenas":
                return parse_arena(body, "the answer").digest == digest
            case _:
                return domain_digest(TARGET_DOMAIN, read_json(body, require_canonical=True)) == digest
    except (zlib.error, ValueError, RecursionError, ConfigurationError, CanonicalJsonError):
        return False


def _show(console: Console, result: Fetched) -> None:
    rows = [("folder", result.folder), ("receipts", f"{result.listed} listed"), ("new files", str(result.new))]
    if result.absent:
        rows.append(("not served", f"{len(result.absent)} documents that receipts name"))
    facts(console, [*rows, ("check", f"cacheon weights recompute {result.folder} --hotkey ADDRESS")])
