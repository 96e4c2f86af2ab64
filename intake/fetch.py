"""Fetching archives from hosts that miners chose.

Invariants
1. A URL follows `config.urls`, also after every redirect (at most `INTAKE.redirects`). Plain http reaches loopback
   only, and only under the devnet profile.
2. A name is resolved here, every answer is reviewed (`intake.addresses`), and sockets are opened to reviewed addresses
   only. TLS is 1.2 or later, with certificate and host name checks against the URL's host. No proxies, no cookies.
   Names are looked up on threads of their own: a name server that never answers holds up no other work of the process.
3. One absolute deadline covers everything; bytes are capped while they stream; a host that trickles is dropped.
4. Bodies are never decoded: the bytes returned are the bytes sent.
5. `NetworkError` means the host may heal and the same URL may be tried again; `IntakeError` means that no retry can
   change the answer. Only what follows from the committed URL and our own limits is terminal:

   transient: DNS failures, refused or broken connections, TLS and certificate failures, the deadline, a trickle, every
              status but 200 and redirects (404 and 403 too: an upload may be late), a short body, malformed HTTP.
   terminal:  a URL outside the grammar, an address that is not public, a bad or sixth redirect, too many bytes.

   Transient faults are bounded by the node's retry budget; bytes with another content hash are never accepted.
"""

from __future__ import annotations

import asyncio
import hashlib
import socket
import ssl
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple, Self
from urllib.parse import urldefrag, urljoin

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from asyncio_throttle.throttler import Throttler
from yarl import URL

from config.errors import Blame, IntakeError, NetworkError
from config.limits import INTAKE
from config.settings import IntakeSettings
from config.urls import BundleUrl, parse_url
from intake.addresses import address_problem
from intake.refusal import clip

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_CHUNK = 64 * 1024
_HOSTS_REMEMBERED = 1024
_LOOKUPS = 32  # at once; the system's resolver cannot be interrupted, so each may outlive its fetch by half a minute
_HEADERS = {
    "Accept": "application/gzip, application/octet-stream",
    "Accept-Encoding": "identity",
    "User-Agent": "cacheon-intake/1",
}


@dataclass(frozen=True)
class FetchPolicy:
    """How archives are fetched. Times are seconds, sizes bytes."""

    deadline_seconds: float = 60.0  # DNS, TLS, headers, redirects and body together
    stall_seconds: float = 15.0  # no byte for so long ends the fetch; also the grace before the minimum rate counts
    minimum_bytes_per_second: int = 1024
    per_host_per_second: int = 4
    archive_bytes: int = INTAKE.archive_bytes
    redirects: int = INTAKE.redirects
    allow_loopback_http: bool = False

    @classmethod
    def from_settings(cls, settings: IntakeSettings, profile: str) -> FetchPolicy:
        """Derive the policy from settings; the profile alone decides about loopback http."""
        return cls(
            deadline_seconds=settings.fetch_deadline_seconds,
            per_host_per_second=settings.per_host_per_second,
            allow_loopback_http=profile == "devnet",
        )


class FetchedArchive(NamedTuple):
    """The bytes a host sent, their SHA-256, and the URL that sent them (after redirects)."""

    data: bytes
    archive_sha256: str
    url: str


class ArchiveFetcher:
    """Fetches archives under one policy; remembers hosts only to throttle them. Use within one event loop."""

    def __init__(self, policy: FetchPolicy, *, tls: ssl.SSLContext | None = None) -> None:
        self._policy = policy
        self._tls = ssl.create_default_context() if tls is None else tls
        self._tls.minimum_version = ssl.TLSVersion.TLSv1_2
        self._throttles: OrderedDict[str, Throttler] = OrderedDict()
        self._lookups = ThreadPoolExecutor(_LOOKUPS, "lookup")

    async def fetch(self, url: str) -> FetchedArchive:
        """Fetch one archive.

        Raises `NetworkError` (transient): FETCH_DEADLINE, FETCH_DNS, FETCH_CONNECTION, FETCH_TLS, FETCH_STATUS,
        FETCH_TRUNCATED, FETCH_BAD_RESPONSE, FETCH_TOO_SLOW; `IntakeError` (terminal): URL_REFUSED, ADDRESS_REFUSED,
        REDIRECT_REFUSED, ARCHIVE_TOO_LARGE.
        """
        current = self._parse(url)
        try:
            async with asyncio.timeout(self._policy.deadline_seconds):
                for _ in range(self._policy.redirects + 1):
                    outcome = await self._hop(current)
                    if isinstance(outcome, FetchedArchive):
                        return outcome
                    current = outcome
        except TimeoutError as error:
            raise _transient(
                "FETCH_DEADLINE", f"the host did not deliver within {self._policy.deadline_seconds:g} s."
            ) from error
        raise IntakeError("REDIRECT_REFUSED", f"the host redirects more than {self._policy.redirects} times.")

    def _parse(self, url: str) -> BundleUrl:
        return parse_url(url, allow_loopback_http=self._policy.allow_loopback_http)

    async def _hop(self, url: BundleUrl) -> FetchedArchive | BundleUrl:
        """Make one request; return the archive, or where the host redirects to."""
        addresses = await self._review(url)
        await self._throttle(url.host).acquire()  # type: ignore[no-untyped-call]  # the library is untyped
        connector = _pinned_connector(addresses, url, self._tls)
        timeout = aiohttp.ClientTimeout(total=None, sock_read=self._policy.stall_seconds)
        try:
            async with aiohttp.ClientSession(
                connector=connector,
                timeout=timeout,
                headers=_HEADERS,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,
            ) as session:
                async with session.get(URL(url.text, encoded=True), allow_redirects=False) as response:
                    return await self._answer(url, response)
        except aiohttp.ClientError as error:
            raise _translate(error, url) from error
        except OSError as error:
            raise _transient("FETCH_CONNECTION", f"{clip(url.host)} cannot be reached: {error}.") from error
        except ValueError as error:
            raise _transient("FETCH_BAD_RESPONSE", f"{clip(url.host)} sent malformed HTTP.") from error

    async def _review(self, url: BundleUrl) -> tuple[str, ...]:
        """Resolve the host of `url` and return its addresses if every one may be contacted."""
        try:
            answers = await asyncio.get_running_loop().run_in_executor(self._lookups, _look_up, url.host, url.port)
        except (OSError, UnicodeError) as error:
            raise _transient("FETCH_DNS", f"the name {clip(url.host)} does not resolve: {error}.") from error
        addresses = tuple(sorted(set(answers)))
        if not addresses:
            raise _transient("FETCH_DNS", f"the name {clip(url.host)} has no address.")
        if len(addresses) > INTAKE.fetch_address_count:
            raise _refused_address(url.host, "has too many addresses")
        for address in addresses:
            problem = address_problem(address, allow_loopback=url.scheme == "http")
            if problem:
                raise _refused_address(url.host, f"resolves to {address}, which {problem}")
        return addresses

    def _throttle(self, host: str) -> Throttler:
        throttle = self._throttles.pop(host, None) or Throttler(rate_limit=self._policy.per_host_per_second, period=1.0)
        self._throttles[host] = throttle
        while len(self._throttles) > _HOSTS_REMEMBERED:
            self._throttles.popitem(last=False)
        return throttle

    async def _answer(self, url: BundleUrl, response: aiohttp.ClientResponse) -> FetchedArchive | BundleUrl:
        if response.status in _REDIRECTS:
            return self._redirect(url, response.headers.get("Location", ""))
        if response.status != 200:
            raise _transient("FETCH_STATUS", f"{clip(url.host)} answered with status {response.status}.")
        announced = response.content_length
        if announced is not None and announced > self._policy.archive_bytes:
            raise self._too_large()
        return await self._body(url, response)

    def _redirect(self, url: BundleUrl, location: str) -> BundleUrl:
        try:
            return self._parse(urldefrag(urljoin(url.text, location)).url if location else "")
        except (IntakeError, ValueError) as error:
            raise IntakeError(
                "REDIRECT_REFUSED",
                f"{clip(url.host)} redirects to {clip(location)}, which is no acceptable URL.",
                hint="Commit the final https:// URL of the archive.",
            ) from error

    async def _body(self, url: BundleUrl, response: aiohttp.ClientResponse) -> FetchedArchive:
        loop = asyncio.get_running_loop()
        started = loop.time()
        digest = hashlib.sha256()
        chunks: list[bytes] = []
        received = 0
        async for chunk in response.content.iter_chunked(_CHUNK):
            received += len(chunk)
            if received > self._policy.archive_bytes:
                raise self._too_large()
            elapsed = loop.time() - started
            if elapsed > self._policy.stall_seconds and received < elapsed * self._policy.minimum_bytes_per_second:
                raise _transient("FETCH_TOO_SLOW", f"{clip(url.host)} sends too slowly.")
            digest.update(chunk)
            chunks.append(chunk)
        return FetchedArchive(b"".join(chunks), digest.hexdigest(), url.text)

    def _too_large(self) -> IntakeError:
        return IntakeError("ARCHIVE_TOO_LARGE", f"the archive is larger than {self._policy.archive_bytes} bytes.")

    async def close(self) -> None:
        """Forget all hosts. Connections do not outlive a fetch."""
        self._throttles.clear()
        self._lookups.shutdown(wait=False, cancel_futures=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _look_up(host: str, port: int) -> list[str]:
    return [str(answer[4][0]) for answer in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


class _PinnedResolver(AbstractResolver):
    """Answers with the reviewed addresses, whatever it is asked."""

    def __init__(self, addresses: tuple[str, ...]) -> None:
        self._addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        results: list[ResolveResult] = []
        for address in self._addresses:
            kind = socket.AF_INET6 if ":" in address else socket.AF_INET
            if family in (socket.AF_UNSPEC, kind):
                flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
                results.append(ResolveResult(hostname=host, host=address, port=port, family=kind, proto=0, flags=flags))
        return results

    async def close(self) -> None:
        """Nothing to release."""


def _pinned_connector(addresses: tuple[str, ...], url: BundleUrl, tls: ssl.SSLContext) -> aiohttp.TCPConnector:
    def open_socket(info: aiohttp.AddrInfoType) -> socket.socket:
        family, kind, protocol, _, target = info
        # Literal addresses bypass the resolver, so the last word is here.
        if str(target[0]) not in addresses or target[1] != url.port:
            raise _refused_address(url.host, f"would be contacted at {target[0]}, which was not reviewed")
        opened = socket.socket(family, kind, protocol)
        opened.setblocking(False)
        return opened

    return aiohttp.TCPConnector(
        resolver=_PinnedResolver(addresses),
        ssl=tls,
        use_dns_cache=False,
        force_close=True,
        socket_factory=open_socket,
    )


def _translate(error: aiohttp.ClientError, url: BundleUrl) -> NetworkError | IntakeError:
    """Map a client error to ours; order matters, the classes overlap."""
    host = clip(url.host)
    if isinstance(error, aiohttp.ClientSSLError):
        return _transient("FETCH_TLS", f"no trusted TLS connection to {host}: {clip(str(error), 160)}.")
    if isinstance(error, aiohttp.InvalidURL):
        return IntakeError("URL_REFUSED", f"the bundle URL names no usable host {host}.")
    if isinstance(error, aiohttp.ServerTimeoutError):
        return _transient("FETCH_TOO_SLOW", f"{host} stopped sending.")
    if isinstance(error, aiohttp.ClientPayloadError):
        return _transient("FETCH_TRUNCATED", f"{host} sent less than it announced.")
    if isinstance(error, aiohttp.ClientResponseError):
        return _transient("FETCH_BAD_RESPONSE", f"{host} sent malformed HTTP.")
    return _transient("FETCH_CONNECTION", f"{host} cannot be reached: {clip(str(error), 160)}.")


def _transient(code: str, message: str) -> NetworkError:
    return NetworkError(
        code, message, hint="Check that the archive is reachable under the committed URL.", blame=Blame.MINER
    )


def _refused_address(host: str, complaint: str) -> IntakeError:
    return IntakeError(
        "ADDRESS_REFUSED",
        f"the host {clip(host)} {complaint}.",
        hint="Host the archive on a public address.",
    )
