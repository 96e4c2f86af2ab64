"""What a node knows of a hotkey: asked of its pages over HTTP, or read from its state folder.

Invariants
1. Nothing that a node answers is trusted to be of any size or form: bytes and time are bounded, documents are decoded
   strictly, and the rest is one error.
2. The answer of a node that follows another chain or subnet is refused, because its blocks mean nothing here.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlencode, urlsplit

import msgspec

from config.errors import Blame, ConfigurationError, NetworkError
from node.cli.standings import NodeView, Wanted
from node.kinship import Kinship

if TYPE_CHECKING:
    import aiohttp

_PAGE, _PAGES = 100, 20
_ANSWER_BYTES = 4 * 1024 * 1024
_SECONDS = 20.0


class NodeSource(Protocol):
    """Where a node's view comes from."""

    async def view(self, wanted: Wanted) -> NodeView:
        """Return what the node knows. Raises `CacheonError`."""

    async def close(self) -> None:
        """Let go of what is held."""


class Told(msgspec.Struct, frozen=True):
    """One submission as a node's pages tell it; more keys than these are none of our business."""

    hotkey: str
    block: int
    content_hash: str
    url: str
    state: str
    code: str
    blame: str
    detail: str
    weight_ppm: int
    final: bool
    kinship: Kinship | None = None


class _Page(msgspec.Struct, frozen=True):
    genesis_hash: str
    netuid: int
    cursor_block: int
    submissions: tuple[Told, ...]
    next: str


class _Refusal(msgspec.Struct, frozen=True):
    code: str = ""
    message: str = ""


class _Envelope(msgspec.Struct, frozen=True):
    ok: bool
    data: _Page | None = None
    error: _Refusal = _Refusal()


class HttpNode:
    """A node's pages. Use within one event loop."""

    def __init__(self, url: str) -> None:
        """Raises `ConfigurationError` (NODE_URL_INVALID)."""
        parts = urlsplit(url)
        try:
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:  # a port that is no number
            usable = False
        if not usable or parts.query or parts.fragment or parts.username:
            raise ConfigurationError(
                "NODE_URL_INVALID", f"{url!r} is no address of a node", hint="give it as http://127.0.0.1:9980"
            )
        self._url = url.rstrip("/")
        self._session: aiohttp.ClientSession | None = None

    async def view(self, wanted: Wanted) -> NodeView:
        """Return what the node knows.

        Raises `NetworkError` (NODE_UNREACHABLE) and `ConfigurationError` (NODE_ANSWER_INVALID).
        """
        pages = [await self._page(wanted, "")]
        while pages[-1].next and len(pages) < _PAGES:
            pages.append(await self._page(wanted, pages[-1].next))
        told = tuple(one for page in pages for one in page.submissions)
        first = pages[0]
        return NodeView(first.genesis_hash, first.netuid, first.cursor_block, told)

    async def _page(self, wanted: Wanted, after: str) -> _Page:
        asked = {"hotkey": wanted.hotkey, "content_hash": wanted.content_hash, "limit": str(_PAGE), "after": after}
        query = urlencode({name: text for name, text in asked.items() if text})
        status, body = await self._get(f"{self._url}/api/v1/submissions?{query}")
        try:
            envelope = msgspec.json.decode(body, type=_Envelope)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise self._strange(f"status {status} and something else") from error
        if envelope.data is not None and envelope.ok:
            return envelope.data
        said = f"{envelope.error.code}: {envelope.error.message}"[:300]
        if status >= 500:
            raise self._away(said)
        raise self._strange(said)

    async def _get(self, url: str) -> tuple[int, bytes]:
        import aiohttp
        from yarl import URL

        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=_SECONDS)
            self._session = aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar())
        try:
            async with self._session.get(URL(url, encoded=True), allow_redirects=False) as response:
                body = await response.content.read(_ANSWER_BYTES + 1)
                while len(body) <= _ANSWER_BYTES and (more := await response.content.read(_ANSWER_BYTES)):
                    body += more
        except TimeoutError as error:
            raise self._away(f"no answer within {_SECONDS:g} s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            said = " ".join(str(error).split()).replace(" ssl:default", "")  # the library's words for "no TLS"
            raise self._away(said[:300] or type(error).__name__) from error
        if len(body) > _ANSWER_BYTES:
            raise self._strange(f"more than {_ANSWER_BYTES} bytes")
        return response.status, body

    def _away(self, why: str) -> NetworkError:
        return NetworkError(
            "NODE_UNREACHABLE",
            f"the node at {self._url} cannot be asked: {why}",
            blame=Blame.OPERATOR,
            hint="check the address, and that the node runs with `http.listen` set",
        )

    def _strange(self, what: str) -> ConfigurationError:
        return ConfigurationError(
            "NODE_ANSWER_INVALID",
            f"{self._url} answers with {what}, not as a node of this release",
            hint="check that the address is that of a node's `http.listen`",
        )

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()


class FolderNode:
    """A node's state folder on this machine."""

    def __init__(self, state_dir: str) -> None:
        self._state_dir = Path(state_dir)

    async def view(self, wanted: Wanted) -> NodeView:  # noqa: ARG002 - the folder is read as a whole
        """Return what the node knows. Raises `NotFoundError` (STATE_NOT_FOUND), `HostError` (STORE_UNUSABLE)."""
        import asyncio

        from node.status import read_status

        status = await asyncio.to_thread(read_status, self._state_dir)
        return NodeView(status.genesis_hash, status.netuid, status.cursor_block, status.submissions)

    async def close(self) -> None:
        """Nothing is held."""


def require_same_chain(view: NodeView, genesis_hash: str, netuid: int) -> None:
    """Compare a node's chain with the one that was asked. Raises `ConfigurationError` (NODE_FOREIGN_CHAIN)."""
    if not view.genesis_hash:  # it has not begun yet
        return
    if (view.genesis_hash, view.netuid) != (genesis_hash, netuid):
        raise ConfigurationError(
            "NODE_FOREIGN_CHAIN",
            f"the node follows subnet {view.netuid} of chain {view.genesis_hash[:10]}, this command asks subnet "
            f"{netuid} of chain {genesis_hash[:10]}",
            hint="name the node's network and subnet with --network, --endpoint and --netuid",
        )
