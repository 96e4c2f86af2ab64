"""Fetching from hosts that fail, lie, stall and redirect. Loopback only."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import random
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import trustme
from aiohttp import web
from asyncio_throttle.throttler import Throttler

from config.errors import IntakeError, NetworkError
from config.settings import IntakeSettings
from intake import fetch
from intake.fetch import ArchiveFetcher, FetchedArchive, FetchPolicy
from intake.retry import RetryPolicy, retry_delay

POLICY = FetchPolicy(deadline_seconds=10.0, per_host_per_second=1000, allow_loopback_http=True)
BODY = bytes(range(256)) * 1000
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def host(handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Serve every path with `handler`; gives the base URL."""
    application = web.Application()
    application.router.add_route("*", "/{tail:.*}", handler)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def raw_host(answer: bytes, *, hold: bool = False) -> AsyncIterator[str]:
    """Serve fixed bytes to every connection; `hold` keeps the connection open afterwards."""

    handlers: set[asyncio.Task[None] | None] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handlers.add(asyncio.current_task())
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()
            if hold:
                await reader.read()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/a"
    finally:
        server.close()
        await asyncio.gather(*(task for task in handlers if task is not None))
        await server.wait_closed()


async def get(url: str, policy: FetchPolicy = POLICY) -> FetchedArchive:
    """Fetch one URL with a fresh fetcher."""
    async with ArchiveFetcher(policy) as fetcher:
        return await fetcher.fetch(url)


async def refusal(url: str, policy: FetchPolicy = POLICY) -> tuple[type, str]:
    """Return the family and code of the error a fetch gives."""
    with pytest.raises((NetworkError, IntakeError)) as caught:
        await get(url, policy)
    return type(caught.value), caught.value.code


async def serve_body(_: web.Request) -> web.StreamResponse:
    return web.Response(body=BODY)


async def test_an_archive_arrives_unchanged() -> None:
    """Bytes, digest and final URL are returned, and nothing was decoded on the way."""

    async def encoded(request: web.Request) -> web.StreamResponse:
        assert request.headers["Accept-Encoding"] == "identity"
        assert "Cookie" not in request.headers
        return web.Response(body=BODY, headers={"Content-Encoding": "gzip", "Set-Cookie": "a=b"})

    async with host(encoded) as base:
        found = await get(f"{base}/x%20y?q=%2F")
    assert found.data == BODY
    assert found.archive_sha256 == hashlib.sha256(BODY).hexdigest()
    assert found.url == f"{base}/x%20y?q=%2F"


async def test_the_url_is_sent_as_committed() -> None:
    """No client library rewrites path or query."""
    seen: list[str] = []

    async def note(request: web.Request) -> web.StreamResponse:
        seen.append(request.raw_path)
        return web.Response(body=b"x")

    async with host(note) as base:
        await get(f"{base}/a/../b//c%2fd?x=%41")
    assert seen == ["/a/../b//c%2fd?x=%41"]


@pytest.mark.parametrize("status", [201, 204, 304, 400, 401, 403, 404, 408, 410, 425, 429, 500, 502, 503, 599])
async def test_every_error_status_may_heal(status: int) -> None:
    """Any answer but 200 and redirects is transient."""

    async def fail(_: web.Request) -> web.StreamResponse:
        return web.Response(status=status)

    async with host(fail) as base:
        assert await refusal(f"{base}/a") == (NetworkError, "FETCH_STATUS")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_followed(status: int) -> None:
    """A relative Location leads on; a fragment in it is dropped."""

    async def move(request: web.Request) -> web.StreamResponse:
        if request.path == "/a":
            return web.Response(status=status, headers={"Location": "/b?x=1#top"})
        return web.Response(body=BODY)

    async with host(move) as base:
        found = await get(f"{base}/a")
    assert (found.data, found.url) == (BODY, f"{base}/b?x=1")


async def test_five_redirects_are_the_limit() -> None:
    """The fifth redirect is followed, the sixth is refused."""

    async def move(request: web.Request) -> web.StreamResponse:
        left = int(request.path.strip("/"))
        return web.Response(body=b"x") if left == 0 else web.Response(status=302, headers={"Location": f"/{left - 1}"})

    async with host(move) as base:
        assert (await get(f"{base}/5")).data == b"x"
        assert await refusal(f"{base}/6") == (IntakeError, "REDIRECT_REFUSED")


@pytest.mark.parametrize(
    "location", ["", "ftp://x/", "http://example.org/", "file:///etc/passwd", "https://u:p@x/", "//[", "https://"]
)
async def test_redirects_out_of_the_grammar_are_refused(location: str) -> None:
    """A redirect obeys the same grammar as the committed URL."""

    async def move(_: web.Request) -> web.StreamResponse:
        return web.Response(status=302, headers={"Location": location} if location else {})

    async with host(move) as base:
        assert await refusal(f"{base}/a") == (IntakeError, "REDIRECT_REFUSED")


@pytest.mark.parametrize(
    "target",
    [
        "https://127.0.0.1/",
        "https://169.254.169.254/latest",
        "https://100.100.100.200/latest",
        "https://localhost/",
        "https://2130706433/",
        "https://[::ffff:127.0.0.1]/",
        "https://[64:ff9b::7f00:1]/",
        "https://[2002:7f00:1::]/",
        "https://[fd00:ec2::254]/latest",
        "https://224.0.0.1/",
    ],
)
async def test_redirects_inside_are_refused(target: str) -> None:
    """Every hop is resolved and reviewed again."""

    async def move(_: web.Request) -> web.StreamResponse:
        return web.Response(status=302, headers={"Location": target})

    async with host(move) as base:
        assert await refusal(f"{base}/a") == (IntakeError, "ADDRESS_REFUSED")


@pytest.mark.parametrize(
    "url",
    ["https://127.0.0.1/a", "https://[::1]/a", "https://10.0.0.1/a", "https://0x7f000001/a", "https://localhost/a"],
)
async def test_hosts_inside_are_refused(url: str) -> None:
    """An address that is not public is terminal, under any spelling."""
    assert await refusal(url) == (IntakeError, "ADDRESS_REFUSED")


async def test_loopback_http_needs_the_devnet_profile() -> None:
    """Outside devnet the same URL is refused by its grammar; settings cannot change that."""
    policy = FetchPolicy.from_settings(IntakeSettings(), "finney")
    assert await refusal("http://127.0.0.1:9/a", policy) == (IntakeError, "URL_REFUSED")
    assert FetchPolicy.from_settings(IntakeSettings(), "devnet").allow_loopback_http


async def test_one_private_answer_refuses_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name with a public and a private address is not contacted at all."""
    answers = [(0, 0, 0, "", (address, 443)) for address in ("93.184.216.34", "10.0.0.1")]

    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: list(answers))
    assert await refusal("https://mixed.example/a") == (IntakeError, "ADDRESS_REFUSED")
    answers.clear()
    assert await refusal("https://empty.example/a") == (NetworkError, "FETCH_DNS")


async def test_a_name_that_does_not_resolve_may_heal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Resolver failures are transient, whatever their kind."""

    def fail(*_: object, **__: object) -> list[object]:
        raise OSError("no such name")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    assert await refusal("https://gone.example/a") == (NetworkError, "FETCH_DNS")


async def test_name_servers_that_never_answer_hold_up_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lookups that hang leave the threads on which the rest of the process works alone."""
    done = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: done.wait(30) and [])
    policy = replace(POLICY, deadline_seconds=0.3)
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    try:
        hanging = [asyncio.create_task(refusal("https://hangs.example/a", policy)) for _ in range(4)]
        await asyncio.sleep(0)
        assert await asyncio.wait_for(asyncio.to_thread(lambda: 1), 120) == 1
        assert await asyncio.gather(*hanging) == [(NetworkError, "FETCH_DEADLINE")] * 4
    finally:
        done.set()


async def test_a_closed_port_may_heal() -> None:
    """A refused connection is transient."""
    async with raw_host(b"") as url:
        pass
    assert await refusal(url) == (NetworkError, "FETCH_CONNECTION")


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (b"", "FETCH_CONNECTION"),
        (b"hello\r\n\r\n", "FETCH_BAD_RESPONSE"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "FETCH_BAD_RESPONSE"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "FETCH_BAD_RESPONSE"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort", "FETCH_TRUNCATED"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel", "FETCH_TRUNCATED"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "FETCH_BAD_RESPONSE"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokEXTRA", "FETCH_BAD_RESPONSE"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * 100_000 + b"\r\n\r\n", "FETCH_BAD_RESPONSE"),
    ],
)
async def test_broken_answers_may_heal(answer: bytes, code: str) -> None:
    """Hosts that break the protocol, or stop early, are transient."""
    async with raw_host(answer) as url:
        assert await refusal(url) == (NetworkError, code)


async def test_an_announced_size_over_the_limit_is_terminal() -> None:
    """Too large by its own word: refused before a byte of the body."""
    async with raw_host(b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\n", hold=True) as url:
        assert await refusal(url) == (IntakeError, "ARCHIVE_TOO_LARGE")


async def test_a_streamed_size_over_the_limit_is_terminal() -> None:
    """Too large without saying so: stopped while it streams."""

    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(64):
            await response.write(bytes(64 * 1024))
        return response

    async with host(endless) as base:
        small = replace(POLICY, archive_bytes=1 << 20)
        assert await refusal(f"{base}/a", small) == (IntakeError, "ARCHIVE_TOO_LARGE")


async def test_one_deadline_covers_everything() -> None:
    """A host that never answers costs the deadline and no more."""
    async with raw_host(b"", hold=True) as url:
        assert await refusal(url, replace(POLICY, deadline_seconds=0.2)) == (NetworkError, "FETCH_DEADLINE")


async def test_a_stalled_body_is_dropped() -> None:
    """A host that stops sending is dropped before the deadline."""
    async with raw_host(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nab", hold=True) as url:
        assert await refusal(url, replace(POLICY, stall_seconds=0.2)) == (NetworkError, "FETCH_TOO_SLOW")


async def test_a_trickling_body_is_dropped() -> None:
    """A byte now and then does not hold the fetch open."""

    async def trickle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            while True:
                await response.write(b"x")
                await asyncio.sleep(0.02)
        return response

    async with host(trickle) as base:
        slow = replace(POLICY, stall_seconds=0.2, minimum_bytes_per_second=1000)
        assert await refusal(f"{base}/a", slow) == (NetworkError, "FETCH_TOO_SLOW")


@pytest.fixture
def authority() -> trustme.CA:
    """A certificate authority of our own."""
    return trustme.CA()


def loopback_is_public(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the review pass loopback, so that TLS can be tested without a network."""
    monkeypatch.setattr(fetch, "address_problem", lambda address, **_: "" if address in ("127.0.0.1", "::1") else "x")


async def over_tls(authority: trustme.CA, server: ssl.SSLContext, name: str, *, trusted: bool = True) -> FetchedArchive:
    """Fetch from a TLS host on loopback under the host name `name`."""
    client = ssl.create_default_context()
    if trusted:
        authority.configure_trust(client)
    async with host(serve_body, server) as base:
        async with ArchiveFetcher(POLICY, tls=client) as fetcher:
            return await fetcher.fetch(base.replace("127.0.0.1", name) + "/a")


def server_context(authority: trustme.CA, name: str) -> ssl.SSLContext:
    """Return the context of a TLS server with a certificate for `name`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    return context


async def test_tls_with_a_trusted_certificate(authority: trustme.CA, monkeypatch: pytest.MonkeyPatch) -> None:
    """The certificate is checked against the URL's host while the socket goes to the reviewed address."""
    loopback_is_public(monkeypatch)
    found = await over_tls(authority, server_context(authority, "localhost"), "localhost")
    assert found.data == BODY


@pytest.mark.parametrize("case", ["untrusted", "wrong name", "old protocol"])
async def test_tls_faults_may_heal(case: str, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch) -> None:
    """Certificates expire and get renewed: transient, but never accepted."""
    loopback_is_public(monkeypatch)
    server = server_context(authority, "other.example" if case == "wrong name" else "localhost")
    if case == "old protocol":
        server.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning, match="TLSv1"):
            server.minimum_version = ssl.TLSVersion.TLSv1
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            server.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(NetworkError) as caught:
        await over_tls(authority, server, "localhost", trusted=case != "untrusted")
    assert caught.value.code in ("FETCH_TLS", "FETCH_CONNECTION")


def test_no_context_goes_below_tls_1_2() -> None:
    """Whatever context is given: the floor of the protocol is ours, and certificates and names stay checked."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    ArchiveFetcher(POLICY, tls=context)
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED


async def test_sockets_go_to_reviewed_addresses_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if the client library took another address, no socket would be opened to it."""

    async def review(*_: object) -> tuple[str, ...]:
        return ("127.0.0.2",)

    monkeypatch.setattr(ArchiveFetcher, "_review", review)
    assert await refusal("http://127.0.0.1:9/a") == (IntakeError, "ADDRESS_REFUSED")


async def test_requests_to_one_host_are_throttled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fetches of one host queue behind its rate; another host does not wait."""
    seconds: list[float] = []

    def patient(rate_limit: int, period: float) -> Throttler:
        seconds.append(period)
        return Throttler(rate_limit, period * 3600)  # so that no slow machine sees the period end

    monkeypatch.setattr(fetch, "Throttler", patient)
    fetcher = ArchiveFetcher(replace(POLICY, per_host_per_second=1))
    async with host(serve_body) as base:
        await fetcher.fetch(f"{base}/a")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await fetcher.fetch(f"{base}/b")
        assert (await fetcher.fetch(f"{base.replace('127.0.0.1', 'localhost')}/c")).data == BODY
    assert seconds == [1.0, 1.0]


def test_retries_back_off_within_their_budget() -> None:
    """Delays double with jitter up to the cap, and end with the budget."""
    policy = RetryPolicy(attempts=5, base_seconds=10.0, cap_seconds=35.0)
    dice = random.Random(1)
    delays = [retry_delay(attempt, policy, dice) for attempt in range(5)]
    for delay, ceiling in zip(delays, (10.0, 20.0, 35.0, 35.0), strict=False):
        assert delay is not None
        assert ceiling / 2 <= delay <= ceiling
    assert delays[4] is None
    assert retry_delay(10_000, RetryPolicy(10**9, 1.0, 60.0), dice) is not None
