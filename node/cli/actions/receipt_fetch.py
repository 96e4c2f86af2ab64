"""`cacheon receipt fetch`: a node's published documents, over HTTP, into a folder as `receipt export` writes it.

Invariants
1. What a node answers is not trusted: sizes and times are bounded, receipts and ledgers are written only if their bytes
   have the digest they were asked by, and everything else is checked by whoever reads the folder.
2. What is there already is not asked for again; a file is complete under its name or not there.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

import msgspec

from config.canonical import is_digest, sha256_hex
from config.errors import Blame, ConfigurationError, GradeError, HostError, NetworkError
from config.statement import open_envelope, read_statement
from node.cli.output import Output, facts
from node.receipt_folder import RECEIPT_BYTES
from node.store.layout import write_durably
from scoring.ledger import LEDGER_V1
from scoring.receipts import VERDICT_V1

if TYPE_CHECKING:
    import aiohttp
    from rich.console import Console

_SECONDS, _PAGE = 60.0, 100
_LEDGER_KIND = LEDGER_V1.rpartition(":")[2]


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


def run(url: str, folder: str, *, with_attempts: bool, as_json: bool) -> None:
    """Fetch. Raises `ConfigurationError` (NODE_URL_INVALID, NODE_ANSWER_INVALID), `NetworkError` (NODE_UNREACHABLE) and
    `HostError` (EXPORT_UNWRITABLE)."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ConfigurationError(
            "NODE_URL_INVALID", f"{url!r} is no address of a node", hint="give it as http://127.0.0.1:9980"
        )
    to = Path(folder).absolute()
    try:
        for name in ("receipts", "ledger", "attempts", "arenas", "targets"):
            (to / name).mkdir(parents=True, exist_ok=True)
        result = asyncio.run(_Fetch(url.rstrip("/"), to, with_attempts=with_attempts).run())
    except OSError as error:
        raise HostError("EXPORT_UNWRITABLE", f"{to} cannot be written: {error.strerror or error}") from error
    Output("receipt fetch", as_json=as_json).result(result, lambda console: _show(console, result))


class _Fetch:
    def __init__(self, url: str, to: Path, *, with_attempts: bool) -> None:
        self._url = url
        self._to = to
        self._with_attempts = with_attempts
        self._new = 0
        self._absent: list[str] = []
        self._session: aiohttp.ClientSession

    async def run(self) -> Fetched:
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as self._session:
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
            body = await self._get(f"/api/v1/receipts?{query}")
            try:
                page = msgspec.json.decode(body or b"", type=_Envelope).data
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise self._strange("something else than a list of receipts") from error
            known = len(listed)
            listed |= {one.digest: one for one in page.receipts if is_digest(one.digest)}
            if not page.next or len(listed) == known:
                return list(listed.values())
            after = page.next

    async def _receipt(self, one: _Listed) -> None:
        is_ledger = one.kind == _LEDGER_KIND
        path = self._to / ("ledger" if is_ledger else "receipts") / (one.digest if is_ledger else f"{one.digest}.json")
        if not path.exists():
            body = await self._get(f"/api/v1/{path.parent.name}/{one.digest}")
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
        body = await self._get(f"/api/v1/{name}")
        if body is None:
            self._absent.append(name)
        else:
            self._write(path, body)

    def _write(self, path: Path, body: bytes) -> None:
        write_durably(path, body, mode=0o644)
        self._new += 1

    async def _get(self, path: str) -> bytes | None:
        """Return a page's bytes, or None when the node has no such document."""
        import aiohttp

        try:
            async with self._session.get(self._url + path, allow_redirects=False) as response:
                body = b""
                while len(body) <= RECEIPT_BYTES and (more := await response.content.read(RECEIPT_BYTES)):
                    body += more
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
            raise NetworkError(
                "NODE_UNREACHABLE", f"the node at {self._url} cannot be asked: {str(error) or type(error).__name__}",
                blame=Blame.OPERATOR, hint="check the address, and that the node runs with `http.listen` set",
            ) from error
        if response.status == 404:
            return None
        if response.status != 200 or len(body) > RECEIPT_BYTES:
            raise self._strange(f"status {response.status} and {len(body)} bytes")
        return body

    def _strange(self, what: str) -> ConfigurationError:
        return ConfigurationError(
            "NODE_ANSWER_INVALID", f"{self._url} answers with {what}, not as a node of this release",
            hint="check that the address is that of a node's `http.listen`",
        )


def _show(console: Console, result: Fetched) -> None:
    rows = [("folder", result.folder), ("receipts", f"{result.listed} listed"), ("new files", str(result.new))]
    if result.absent:
        rows.append(("not served", f"{len(result.absent)} documents that receipts name"))
    facts(console, [*rows, ("check", f"cacheon weights recompute {result.folder} --hotkey ADDRESS")])
