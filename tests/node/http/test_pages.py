"""The node's pages: what they say, what they never say, and how they refuse."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path

import pytest

from config.canonical import sha256_hex
from config.errors import HostError
from config.settings import HttpSettings, load_settings
from node.http import listener, pages
from node.http.listener import bind, own_names
from node.http.service import HttpService
from node.http.views import told
from node.store.engine import Store
from tests.node.http.conftest import Site, served
from tests.node.judging import SLOW, World
from tests.node.support import GENESIS, HOTKEY_A, HOTKEY_B, record, submission, until


async def test_a_journey_is_told(judging: World) -> None:
    """State, verdict, bounds and digests are there, newest first; the same document by id and in the list."""
    good, slow = submission(1), submission(2)
    judging.gains[slow.content_hash] = SLOW
    await judging.queue(good, slow)
    await judging.work()
    async with served(judging.store) as site:
        answer = await site.get(f"/api/v1/submissions?hotkey={HOTKEY_A}")
        assert (answer.status, answer.document["schema"]) == (200, "cacheon.api-submissions.v1")
        data = answer.document["data"]
        assert (data["genesis_hash"], data["netuid"], data["next"]) == (GENESIS, 2, "")
        assert [(one["state"], one["code"], one["final"]) for one in data["submissions"]] == [
            ("failed", "NOT_FASTER", True),
            ("settled", "", True),
        ]
        settled = data["submissions"][1]
        assert [attempt["outcome"] for attempt in settled["attempts"]] == ["PASS", "PASS"]
        assert settled["speedup_ppm"] == min(attempt["lower_ppm"] for attempt in settled["attempts"])
        assert all(len(attempt["digest"]) == 64 for attempt in settled["attempts"])
        alone = await site.get(f"/api/v1/submissions/{settled['id']}")
        assert alone.document["data"] == settled


async def test_nothing_of_this_machine_is_told(judging: World) -> None:
    """No path of the state folder or of anything else stands in a page."""
    await judging.queue(submission(1))
    await judging.work()
    async with served(judging.store) as site:
        text = json.dumps((await site.get("/api/v1/submissions")).document)
    assert str(judging.store.layout.root) not in text
    assert '"path"' not in text


async def test_a_fault_of_ours_is_told_in_general_words(judging: World) -> None:
    """What names this machine stays in its log; the code and its summary are for everybody."""
    await judging.queue(submission(1))
    secret = "/srv/secret/place"
    job = await judging.job(submission(1))
    await judging.store.write(_park, job.submission_id, secret)
    async with served(judging.store) as site:
        (one,) = (await site.get("/api/v1/submissions")).document["data"]["submissions"]
    assert one["state"] == "parked"
    assert one["code"] == "HOST_IO_FAILED"
    assert one["detail"]
    assert secret not in json.dumps(one)


def _park(connection: object, submission_id: str, detail: str) -> None:
    from node.store.schema import jobs

    connection.execute(  # type: ignore[attr-defined]
        jobs.update()
        .where(jobs.c.submission_id == submission_id)
        .values(state="parked", code="HOST_IO_FAILED", blame="operator", detail=detail)
    )


def test_what_the_miner_is_told() -> None:
    """The detail of a verdict is told in full; without a code there is nothing to tell."""
    assert told("WRONG_OUTPUT", "miner", "row=1") == "row=1"
    assert told("", "", "anything") == ""
    assert told("HOST_IO_FAILED", "operator", "/root/x") not in ("", "/root/x")


async def test_pages_follow_each_other(store: Store) -> None:
    """Pages are bounded and complete, and submissions that come in between shift nothing."""
    await record(store, *(submission(number) for number in range(7)))
    async with served(store) as site:
        seen: list[int] = []
        after = ""
        while True:
            page = (await site.get(f"/api/v1/submissions?limit=3{after}")).document["data"]
            seen += [one["block"] for one in page["submissions"]]
            if len(seen) == 3:
                await record(store, submission(50))
            if not page["next"]:
                break
            after = f"&after={page['next']}"
    assert seen == [16, 15, 14, 13, 12, 11, 10]


async def test_only_the_asked_for(store: Store) -> None:
    """A hotkey and a content hash select; what nobody has is an empty page."""
    wanted = submission(2, hotkey=HOTKEY_B)
    await record(store, submission(1), wanted, submission(3, hotkey=HOTKEY_B))
    async with served(store) as site:
        both = await site.get(f"/api/v1/submissions?hotkey={HOTKEY_B}")
        one = await site.get(f"/api/v1/submissions?hotkey={HOTKEY_B}&content_hash={wanted.content_hash}")
        none = await site.get(f"/api/v1/submissions?content_hash={'0' * 64}")
    assert [len(answer.document["data"]["submissions"]) for answer in (both, one, none)] == [2, 1, 0]


@pytest.mark.parametrize(
    "query",
    [
        "hotkey=",
        "hotkey=5A",
        "hotkey=../../etc/passwd",
        "limit=0",
        "limit=101",
        "limit=-1",
        "limit=1e3",
        "limit=",
        "limit=5&limit=5",
        "content_hash=zz",
        f"content_hash={'A' * 64}",
        "after=1",
        "unknown=1",
        "hotkey[]=x",
        "limit=%D9%A3",
        "%00=%00",
    ],
)
async def test_parameters_are_read_strictly(site: Site, query: str) -> None:
    """Unknown, repeated and misformed parameters are refused, each with one code."""
    answer = await site.get(f"/api/v1/submissions?{query}")
    assert (answer.status, answer.document["error"]["code"]) == (400, "HTTP_PARAMETER_INVALID")


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/", 404, "HTTP_PAGE_UNKNOWN"),
        ("/api/v1/submissions/", 404, "HTTP_PAGE_UNKNOWN"),
        (f"/api/v1/submissions/{'0' * 64}", 404, "SUBMISSION_NOT_FOUND"),
        (f"/api/v1/submissions?after={'0' * 64}", 404, "SUBMISSION_NOT_FOUND"),
        ("/api/v1/submissions/x", 400, "HTTP_PARAMETER_INVALID"),
        (f"/api/v1/ledger/{'0' * 64}", 404, "LEDGER_NOT_FOUND"),
        ("/api/v1/ledger/..%2Fnode.db", 400, "HTTP_PARAMETER_INVALID"),
        ("/livez?verbose=1", 400, "HTTP_PARAMETER_INVALID"),
    ],
)
async def test_refusals_are_envelopes(site: Site, path: str, status: int, code: str) -> None:
    """Every refusal has all five keys, and no page is guessed."""
    answer = await site.get(path)
    assert (answer.status, answer.document["ok"], answer.document["error"]["code"]) == (status, False, code)
    assert set(answer.document["error"]) == {"code", "message", "hint", "blame", "location"}
    assert answer.headers["Content-Type"].startswith("application/json")


async def test_livez_answers(site: Site) -> None:
    """The loop turns, so it answers; nothing may keep the answer."""
    answer = await site.get("/livez")
    assert answer.document["data"]["alive"] is True
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["Server"] == "cacheon"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
async def test_nothing_can_be_changed(site: Site, method: str) -> None:
    """Other methods are refused by name."""
    async with site.session.request(method, site.url + "/api/v1/submissions") as response:
        document = json.loads(await response.read())
    assert (response.status, document["error"]["code"]) == (405, "HTTP_READ_ONLY")


async def test_a_body_is_refused_unread(site: Site) -> None:
    """A request with a body is refused before any of it is read."""
    answer = await site.get("/livez", data=b"x" * 1_000_000)
    assert (answer.status, answer.document["error"]["code"]) == (400, "HTTP_PARAMETER_INVALID")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("127.0.0.1:9", 200),
        ("[::1]:80", 200),
        ("localhost:8080", 200),
        ("evil.example", 421),
        ("evil.example:80", 421),
        ("127.0.0.1.evil.example", 421),
        ("", 421),
    ],
)
async def test_other_names_are_refused_on_loopback(site: Site, host: str, status: int) -> None:
    """A browser that was led here under a foreign name gets nothing."""
    assert (await site.get("/livez", headers={"Host": host})).status == status


async def test_a_named_host_is_served(store: Store) -> None:
    """Behind a proxy the public name is configured."""
    settings = HttpSettings(listen="127.0.0.1:0", hosts=("node.example.org",))
    async with served(store, settings) as site:
        assert (await site.get("/livez", headers={"Host": "Node.example.org"})).status == 200
        assert (await site.get("/livez", headers={"Host": "other.example.org"})).status == 421


def test_an_open_address_answers_to_every_name() -> None:
    """Who serves the world decides about names elsewhere, unless they are configured."""
    with bind("0.0.0.0:0") as listening:
        assert own_names(HttpSettings(), listening)("anything.example")
        assert not own_names(HttpSettings(hosts=("a.example",)), listening)("b.example")


async def test_ledger_documents_are_served_by_digest(store: Store) -> None:
    """Exactly the bytes of the digest, to keep for ever; damaged files are not served."""
    body = b'{"crowns":[]}'
    name = sha256_hex(body)
    (store.layout.ledger / name).write_bytes(body)
    (store.layout.ledger / ("1" * 64)).write_bytes(body)
    async with served(store) as site:
        async with site.session.get(f"{site.url}/api/v1/ledger/{name}") as response:
            assert (await response.read(), response.status) == (body, 200)
            assert "immutable" in response.headers["Cache-Control"]
        assert (await site.get(f"/api/v1/ledger/{'1' * 64}")).status == 404


async def test_a_defect_shows_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unexpected failure is one code without a traceback, and the next request works."""

    def fail(*_: object) -> None:
        raise ZeroDivisionError("secret detail")

    with monkeypatch.context() as patched:
        patched.setattr(pages, "read_page", fail)
        answer = await site.get("/api/v1/submissions")
    assert (answer.status, answer.document["error"]["code"]) == (500, "HTTP_FAILED")
    assert "secret" not in json.dumps(answer.document)
    assert (await site.get("/api/v1/submissions")).status == 200


async def test_a_store_that_cannot_be_read_is_busy(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """503 with a code; no path of the database."""
    async with served(store) as site:
        store.layout.database.rename(store.layout.database.with_name("gone"))
        answer = await site.get("/api/v1/submissions")
        store.layout.database.with_name("gone").rename(store.layout.database)
    assert (answer.status, answer.document["error"]["code"]) == (503, "STORE_UNUSABLE")
    assert str(store.layout.root) not in json.dumps(answer.document)


async def raw(site: Site, data: bytes) -> bytes:
    """Send bytes and return everything that comes until the other side closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    try:
        writer.write(data)
        await writer.drain()
        return await asyncio.wait_for(reader.read(), 60)
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00garbage\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: " + b"b" * 100_000 + b"\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 5_000 + b"\r\n",
        b"GET /livez HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET /secret\x00marker HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
)
async def test_malformed_requests_end_at_once(site: Site, data: bytes) -> None:
    """Each is refused, without a repetition of what was sent and without harm to the next request."""
    answer = await raw(site, data)
    assert b" 200 " not in answer.partition(b"\r\n")[0]
    assert b"Traceback" not in answer
    assert b"marker" not in answer
    assert (await site.get("/livez")).status == 200


async def test_a_connection_that_says_nothing_ends(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """However slowly somebody sends, the connection's time is bounded."""
    monkeypatch.setattr(listener, "CONNECTION_SECONDS", 0.5)
    async with served(store) as site:
        assert await raw(site, b"GET /livez HTTP/1.1\r\nHost: local") == b""


async def test_too_many_connections_are_turned_away(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of open connections is bounded; one that ends makes room."""
    monkeypatch.setattr(listener, "CONNECTIONS", 2)
    async with served(store) as site:
        held = [await asyncio.open_connection("127.0.0.1", site.port) for _ in range(2)]
        for _, writer in held:  # both are at the server once they were answered
            writer.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for reader, _ in held:
            assert b" 200 " in await reader.readline()
        assert await raw(site, b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n") == b""
        held[0][1].close()
        await held[0][1].wait_closed()
        await until(lambda: _answers(site))
        held[1][1].close()


async def _answers(site: Site) -> bool:
    return b" 200 " in await raw(site, b"GET /livez HTTP/1.0\r\nHost: localhost\r\n\r\n")


async def test_the_service_can_be_started_again(store: Store) -> None:
    """A supervised service that ended serves again on the same address."""
    with bind("127.0.0.1:0") as listening:
        service = HttpService(store.layout, HttpSettings(), listening)
        for _ in range(2):
            running = asyncio.create_task(service.run())
            reader, writer = await asyncio.open_connection("127.0.0.1", listening.getsockname()[1])
            writer.write(b"GET /livez HTTP/1.0\r\nHost: localhost\r\n\r\n")
            assert b" 200 " in await reader.readline()
            writer.close()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running


def test_a_taken_port_is_one_error() -> None:
    """The address is named, with what to do."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(HostError) as caught:
            bind(f"127.0.0.1:{taken.getsockname()[1]}")
    assert caught.value.code == "HTTP_LISTEN_FAILED"
    with pytest.raises(HostError):
        bind("127.0.0.1:99999")


@pytest.mark.parametrize("listen", ["9980", "127.0.0.1", "127.0.0.1:x", "http://127.0.0.1:1", " :1"])
def test_a_misspelt_address_is_refused_with_the_settings(tmp_path: Path, listen: str) -> None:
    """The settings say what form it has."""
    file = tmp_path / "node.toml"
    file.write_text(f'[http]\nlisten = "{listen}"\n', "utf-8")
    with pytest.raises(Exception, match=r"http\.listen"):
        load_settings(file)
