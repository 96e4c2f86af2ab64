"""`cacheon receipt fetch` from a node that means harm: it ends with a stable code, and writes nothing it must not."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from config.canonical import canonical_json, sha256_hex
from config.errors import CacheonError
from node.cli.actions.receipt_fetch import FetchLimits, run
from node.receipt_folder import DOCUMENT_BYTES
from scoring.attempt import attempt_digest, encode_attempt
from scoring.dsse import sign
from scoring.grade import grade
from scoring.receipts import verdict_statement
from tests.scoring.support import FakeReferee, make_arena

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
ARENA = make_arena()
ATTEMPT = FakeReferee(ARENA).measure()
VERDICT = sign(verdict_statement(ATTEMPT, attempt_digest(encode_attempt(ATTEMPT)), grade(ATTEMPT, ARENA)), bytes(32))


@asynccontextmanager
async def hostile(handlers: dict[str, Handler]) -> AsyncIterator[str]:
    """Serve what `handlers` answer, by the first part of the path below `/api/v1/`; everything else is 404."""

    async def answer(request: web.Request) -> web.StreamResponse:
        kind = request.match_info["kind"] + ("/" if "name" in request.match_info else "")
        return await handlers[kind](request) if kind in handlers else web.Response(status=404)

    app = web.Application()
    app.router.add_get("/api/v1/{kind}", answer)
    app.router.add_get("/api/v1/{kind}/{name:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def page(*digests: str, kind: str = "verdict.v1", following: str = "") -> bytes:
    """Return a page of the list."""
    listed = [{"digest": digest, "kind": kind} for digest in digests]
    return canonical_json({"schema": "cacheon.api-receipts.v1", "ok": True, "data": {
        "receipts": listed, "next": following,
    }})


def always(body: bytes, **headers: str) -> Handler:
    """Return what answers every request with `body`."""

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(body=body, headers=headers)

    return answer


async def endless_list(request: web.Request) -> web.StreamResponse:
    """Answer with a page of receipts that were never named before."""
    after = request.query.get("after", "")
    names = [sha256_hex(f"{after} {number}".encode()) for number in range(100)]
    return web.Response(body=page(*names, following=names[-1]))


def endless(piece: bytes, pause: float = 0.0) -> Handler:
    """Return what answers with `piece`, again and again."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(piece)
            await asyncio.sleep(pause)

    return answer


LIMITS = FetchLimits(receipts=1000, total_bytes=40 * 1024 * 1024)
LISTED = always(page(sha256_hex(VERDICT)))
GOOD: dict[str, Handler] = {"receipts": LISTED, "receipts/": always(VERDICT)}
BOMB = gzip.compress(bytes(100 * 1024 * 1024), 9)
CASES: dict[str, tuple[dict[str, Handler], FetchLimits, str]] = {
    "endless list": ({"receipts": endless_list}, LIMITS, "FETCH_LIMIT_REACHED"),
    "endless page": ({"receipts": endless(b" " * 65536)}, LIMITS, "FETCH_LIMIT_REACHED"),
    "crowded page": ({"receipts": always(page(*(sha256_hex(b"%d" % one) for one in range(101))))}, LIMITS,
                     "NODE_ANSWER_INVALID"),
    "next page of another name": ({"receipts": always(page(following="../" * 9))}, LIMITS, "NODE_ANSWER_INVALID"),
    "nested list": ({"receipts": always(b"[" * 200_000)}, LIMITS, "NODE_ANSWER_INVALID"),
    "giant receipt": ({"receipts": LISTED, "receipts/": endless(b" " * 65536)}, LIMITS, "FETCH_LIMIT_REACHED"),
    "giant arena": (GOOD | {"arenas/": always(b"#" * (DOCUMENT_BYTES + 1))}, LIMITS, "FETCH_LIMIT_REACHED"),
    "giants together": (GOOD | {"attempts/": endless(b" " * 65536)}, LIMITS, "FETCH_LIMIT_REACHED"),
    "slow drip": ({"receipts": endless(b" ", 0.01)}, FetchLimits(total_seconds=0.5), "FETCH_LIMIT_REACHED"),
    "no time": (GOOD, FetchLimits(total_seconds=-1.0), "FETCH_LIMIT_REACHED"),
    "another receipt": (GOOD | {"receipts/": always(VERDICT + b"\n")}, LIMITS, "NODE_ANSWER_INVALID"),
    "packed receipt": (GOOD | {"receipts/": always(gzip.compress(VERDICT), **{"Content-Encoding": "gzip"})}, LIMITS,
                       "NODE_ANSWER_INVALID"),
    "another arena": (GOOD | {"arenas/": always(b'schema = "cacheon.arena.v1"')}, LIMITS, "NODE_ANSWER_INVALID"),
    "another target": (GOOD | {"targets/": always(b"{}")}, LIMITS, "NODE_ANSWER_INVALID"),
    "nested target": (GOOD | {"targets/": always(b"[" * 100_000)}, LIMITS, "NODE_ANSWER_INVALID"),
    "another attempt": (GOOD | {"attempts/": always(gzip.compress(b"{}"))}, LIMITS, "NODE_ANSWER_INVALID"),
    "attempt that is no archive": (GOOD | {"attempts/": always(b"{}")}, LIMITS, "NODE_ANSWER_INVALID"),
    "attempt that unpacks without end": (GOOD | {"attempts/": always(BOMB)}, LIMITS, "NODE_ANSWER_INVALID"),
}


@pytest.mark.parametrize("case", CASES)
async def test_a_hostile_node_is_cut_off(case: str, tmp_path: Path) -> None:
    """Endless lists and documents, drips and bytes of other digests: one of two codes, and no such file."""
    handlers, limits, code = CASES[case]
    async with hostile(handlers) as url:
        with pytest.raises(CacheonError) as refused:
            await asyncio.to_thread(run, url, str(tmp_path / "out"), with_attempts=True, as_json=True, limits=limits)
    assert refused.value.code == code
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path.read_bytes() for path in written] in ([], [VERDICT])
    assert all(path.parent.name == "receipts" for path in written)


async def test_no_name_leads_out_of_the_folder(tmp_path: Path) -> None:
    """Names that are no digests are not asked for, whatever kind they are said to be."""
    names = ["../../escaped", "/etc/passwd", "A" * 64, "..", "0" * 63, "a" * 64 + "/../../x"]
    asked: list[str] = []

    async def told(request: web.Request) -> web.StreamResponse:
        asked.append(request.path)
        return web.Response(body=b"x")

    for kind in ("ledger.v1", "verdict.v1", "../keys"):
        handlers: dict[str, Handler] = {"receipts": always(page(*names, kind=kind)), "receipts/": told, "ledger/": told}
        async with hostile(handlers) as url:
            await asyncio.to_thread(run, url, str(tmp_path / "out"), with_attempts=True, as_json=True, limits=LIMITS)
    assert asked == []
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


async def test_what_came_before_a_limit_is_kept(tmp_path: Path) -> None:
    """A second run goes on after the first: nothing is asked for twice."""
    asked: list[str] = []

    async def once(request: web.Request) -> web.StreamResponse:
        asked.append(request.path)
        return web.Response(body=VERDICT)

    handlers: dict[str, Handler] = {"receipts": LISTED, "receipts/": once, "arenas/": endless(bytes(65536))}
    for _ in range(2):
        async with hostile(handlers) as url:
            with pytest.raises(CacheonError) as refused:
                await asyncio.to_thread(
                    run, url, str(tmp_path / "out"), with_attempts=False, as_json=True, limits=LIMITS
                )
        assert refused.value.code == "FETCH_LIMIT_REACHED"
    assert len(asked) == 1
