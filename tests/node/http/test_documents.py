"""Receipts and what stands behind them, as an observer fetches them from a node."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from config.canonical import canonical_json, domain_digest, sha256_hex
from config.errors import ConfigurationError, NetworkError
from node.cli.actions.receipt_fetch import run
from node.receipt_folder import open_folder
from node.services.arena_copy import keep_arena
from node.services.target_copy import keep_targets
from node.store.engine import Store
from node.store.receipt_outbox import SealedReceipt, mark_delivered, record_receipt
from scoring.published import read_receipt
from scoring.receipts import VerdictPredicate
from tests.node.http.conftest import Site, served
from tests.node.judging import ARENA, World
from tests.node.support import GENESIS, submission


async def fetch(site: Site, path: str) -> tuple[int, bytes]:
    """GET bytes."""
    async with site.session.get(site.url + path) as response:
        return response.status, await response.read()


async def test_every_receipt_is_listed_and_leads_to_its_evidence(judging: World) -> None:
    """From the list to the receipt, from a verdict to its attempt file and arena; nothing else of the folder."""
    await judging.queue(submission(1))
    await judging.work()
    layout = judging.store.layout
    keep_arena(ARENA, layout.arenas)
    keep_targets(judging.context.catalog, layout.targets)
    async with served(judging.store) as site:
        listed = (await site.get("/api/v1/receipts")).document
        assert listed["schema"] == "cacheon.api-receipts.v1"
        assert (listed["data"]["genesis_hash"], listed["data"]["next"]) == (GENESIS, "")
        kinds = [one["kind"] for one in listed["data"]["receipts"]]
        assert sorted(kinds) == ["crown.v1", "verdict.v1", "verdict.v1"]
        crowns = (await site.get("/api/v1/receipts?kind=crown.v1")).document["data"]["receipts"]
        assert [one["kind"] for one in crowns] == ["crown.v1"]
        for one in listed["data"]["receipts"]:
            status, data = await fetch(site, f"/api/v1/receipts/{one['digest']}")
            assert (status, sha256_hex(data)) == (200, one["digest"])
            predicate = read_receipt(data, one["digest"], [judging.receipts.public_key]).predicate
            if isinstance(predicate, VerdictPredicate):
                status, data = await fetch(site, f"/api/v1/attempts/{predicate.attempt_digest}")
                assert sha256_hex(gzip.decompress(data)) == predicate.attempt_digest
                assert (await fetch(site, f"/api/v1/arenas/{predicate.arena_digest}"))[0] == 200
        target = judging.context.catalog.targets["norm.rmsnorm"]
        status, data = await fetch(site, f"/api/v1/targets/{target.digest}")
        assert data == canonical_json(target.document())
        assert domain_digest("cacheon.target-spec", target.document()) == target.digest


async def test_an_observer_fetches_the_folder(
    judging: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every receipt with what it names, once; what the node does not serve is told, and the rest is there."""
    await judging.queue(submission(1))
    await judging.work()
    layout = judging.store.layout
    keep_arena(ARENA, layout.arenas)
    async with served(judging.store) as site:

        async def fetched(*, with_attempts: bool = True) -> dict[str, Any]:
            await asyncio.to_thread(
                run, site.url, str(tmp_path / "out"), with_attempts=with_attempts, as_json=True
            )
            data: dict[str, Any] = json.loads(capsys.readouterr().out)["data"]
            return data

        small = await fetched(with_attempts=False)
        assert (small["listed"], small["new"]) == (3, 4)
        assert [one.partition("/")[0] for one in small["absent"]] == ["targets"]
        assert (await fetched())["new"] == 2
        assert (await fetched())["new"] == 0
        with pytest.raises(ConfigurationError) as refused:
            await asyncio.to_thread(run, site.url + "/api", str(tmp_path / "o"), with_attempts=True, as_json=True)
        assert refused.value.code == "NODE_ANSWER_INVALID"
    folder = open_folder(tmp_path / "out")
    found = folder.published(folder.anchor(key=judging.receipts.public_key.hex()))
    assert (len(found.verdicts), len(found.crowns)) == (2, 1)
    for receipt in found.verdicts.values():
        assert isinstance(receipt.predicate, VerdictPredicate)
        assert folder.attempt(receipt.predicate.attempt_digest) is not None
        assert folder.arena(receipt.predicate.arena_digest) == ARENA
    with pytest.raises(NetworkError) as away:
        await asyncio.to_thread(run, site.url, str(tmp_path / "out"), with_attempts=True, as_json=True)
    assert away.value.code == "NODE_UNREACHABLE"


async def test_what_is_not_published_is_not_there(judging: World) -> None:
    """Unknown digests, damaged receipts, and attempt files that no verdict names: one code."""
    await judging.queue(submission(1))
    await judging.work()
    layout = judging.store.layout
    name = next(iter(layout.receipts.iterdir()))
    name.write_bytes(name.read_bytes() + b"\n")
    stray = layout.attempts / "other" / f"{'1' * 64}.json.gz"
    stray.parent.mkdir()
    stray.write_bytes(gzip.compress(b"{}"))
    empty = sha256_hex(b"")
    async with served(judging.store) as site:
        for path in (
            f"/api/v1/receipts/{'0' * 64}", f"/api/v1/receipts/{name.stem}", f"/api/v1/receipts/{empty}",
            f"/api/v1/attempts/{'1' * 64}", f"/api/v1/arenas/{'0' * 64}", f"/api/v1/targets/{'0' * 64}",
            f"/api/v1/receipts?after={'0' * 64}",
        ):
            answer = await site.get(path)
            assert (answer.status, answer.document["error"]["code"]) == (404, "DOCUMENT_NOT_FOUND"), path
        for path in ("/api/v1/receipts/..%2Fkeys", "/api/v1/receipts?kind=A%20B", "/api/v1/receipts?limit=101"):
            answer = await site.get(path)
            assert (answer.status, answer.document["error"]["code"]) == (400, "HTTP_PARAMETER_INVALID"), path


async def test_the_list_goes_on_where_it_stopped(store: Store) -> None:
    """Page by page, newest first, every receipt once."""
    signed = [SealedReceipt("weights.v1", b"%d" % number) for number in range(8)]
    for one in signed:
        await store.write(record_receipt, one, "subject")
    names = [one.digest for one in signed[:7]]  # the file of the last one is not on disk yet: it is not listed
    await store.write(mark_delivered, names)
    seen: list[str] = []
    async with served(store) as site:
        after = ""
        while True:
            page = (await site.get(f"/api/v1/receipts?limit=3{after}")).document["data"]
            seen += [one["digest"] for one in page["receipts"]]
            if not page["next"]:
                break
            after = f"&after={page['next']}"
    assert sorted(seen) == sorted(names)
