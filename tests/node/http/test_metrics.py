"""`/metrics`: the format, the names that the guide lists, bounded labels, and what a scrape costs the store."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import Engine, event

from node.http.health import read_snapshot
from node.http.loop_lag import BUCKETS, LoopLag
from node.store.chain_seen import ChainSeen, write_chain_seen
from node.store.engine import Store, reader_engine
from node.store.events import append_event
from node.store.waiting_rows import WaitingView, record_waiting
from qualify.sandbox.layers import LAYERS
from tests.node.http.big_store import fill
from tests.node.http.conftest import Site, served
from tests.node.http.test_readyz import LAYERS_HERE, begun
from tests.node.support import until

GUIDE = Path(__file__).parents[3] / "docs" / "operator.md"
SIZE = 6000


def parsed(text: str) -> dict[str, Metric]:
    """The families of a page, by name; a line that is not of the format raises."""
    return {family.name: family for family in text_string_to_metric_families(text)}


def value(families: dict[str, Metric], name: str, **labels: str) -> float:
    """The one sample with these labels."""
    (found,) = (one.value for family in families.values() for one in family.samples
                if one.name == name and one.labels == labels)
    return float(found)


async def whole(store: Store) -> None:
    """A store about which everything is known."""
    await begun(store, waived=("landlock",))
    write_chain_seen(store.layout, ChainSeen(block=4711, block_ms=int(time.time() * 1000)))
    await store.write(fill, SIZE)


async def test_what_a_scrape_says(store: Store) -> None:
    """Readiness, layers, chain, jobs, attempts and publications, as they stand in the store."""
    await whole(store)
    async with served(store) as site:
        async with site.session.get(site.url + "/metrics") as response:
            kind = response.headers["Content-Type"]
            families = parsed(await response.text())
    assert kind == "text/plain; version=0.0.4; charset=utf-8"
    assert value(families, "cacheon_ready") == 1
    assert value(families, "cacheon_readiness_reason", reason="layers_waived") == 1
    assert value(families, "cacheon_readiness_reason", reason="chain_away") == 0
    assert value(families, "cacheon_sandbox_layer_waived", layer="landlock") == 1
    present = families["cacheon_sandbox_layer_present"].samples
    assert [one.labels["layer"] for one in present if one.value] == LAYERS_HERE
    assert {one.labels["layer"] for one in families["cacheon_sandbox_layer_waived"].samples} == set(LAYERS)
    assert value(families, "cacheon_chain_head_block") == 4711
    assert "cacheon_chain_block_age_seconds" in families
    assert sum(one.value for one in families["cacheon_queue_jobs"].samples) == SIZE
    assert value(families, "cacheon_attempts_total", outcome="FAIL", code="NOT_FASTER") == SIZE / 6
    assert value(families, "cacheon_attempts_total", outcome="PASS", code="") == SIZE / 6
    assert value(families, "cacheon_attempts_total", outcome="LOST", code="ATTEMPT_INTERRUPTED") == SIZE / 6
    assert value(families, "cacheon_attempts_total", outcome="FAIL", code="other") == SIZE / 6
    assert value(families, "cacheon_attempts_running") == SIZE / 6
    states = {one.labels["state"]: one.value for one in families["cacheon_publications"].samples}
    assert states["intent"] == states["submitted"] == 0
    assert states["confirmed"] + states["dropped"] + states["expired"] == SIZE // 3
    assert value(families, "cacheon_weights_last_success_timestamp_seconds") == 3 * (SIZE // 3) - 3
    assert value(families, "cacheon_store_bytes") > 0


async def test_the_guide_lists_every_name(store: Store) -> None:
    """The table of the operator's guide is what a scrape says: name, type and labels, no more and no less."""
    await whole(store)
    async with served(store) as site:
        families = parsed(await site.text("/metrics"))
    found = set()
    for family in families.values():
        suffix = "_total" if family.type == "counter" else ""
        labels = sorted({label for one in family.samples for label in one.labels} - {"le"})
        found.add((family.name + suffix, family.type, ", ".join(labels)))
    rows = re.findall(r"^\| `(cacheon_[a-z_]+)` \| (\w+) \| ([a-z, `]*)\|", GUIDE.read_text("utf-8"), re.MULTILINE)
    listed = {(name, kind, labels.replace("`", "").strip()) for name, kind, labels in rows}
    assert listed == found


async def test_labels_are_bounded_and_nothing_private_is_told(store: Store) -> None:
    """However much the store holds, there is no label of its making: no hotkey, digest, path, URL or unknown code."""
    await whole(store)
    async with served(store) as site:
        text = await site.text("/metrics")
    labels = {label for family in parsed(text).values() for one in family.samples for label in one.labels.values()}
    assert not [label for label in labels if re.search(r"[sS]ecret|5Hot|/|[0-9a-f]{16}|A_CODE_THAT", label)]
    assert str(store.layout.root) not in text
    assert all(name.startswith("cacheon_") for name in parsed(text))
    assert len(text.splitlines()) < 300


async def test_what_is_not_known_has_no_sample(site: Site) -> None:
    """A store without a past tells zeros only of what it counts."""
    families = parsed(await site.text("/metrics"))
    for name in ("cacheon_sandbox_layer_present", "cacheon_registered", "cacheon_chain_head_block",
                 "cacheon_chain_block_age_seconds", "cacheon_weights_last_success_timestamp_seconds"):
        assert name not in families
    assert value(families, "cacheon_queue_jobs", state="queued") == 0


@contextmanager
def plans(store: Store) -> Iterator[tuple[Engine, list[tuple[str, str]]]]:
    """Give a reader of the store, and collect (plan's line, statement) of every question that it asks."""
    engine, lines = reader_engine(store.layout), list[tuple[str, str]]()

    @event.listens_for(engine, "before_cursor_execute")
    def explain(connection, cursor, statement, parameters, context, many) -> None:  # type: ignore[no-untyped-def]
        if statement.lstrip().upper().startswith(("SELECT", "WITH")):
            explained = connection.connection.driver_connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)
            lines.extend((row[3], statement) for row in explained)

    try:
        yield engine, lines
    finally:
        engine.dispose()


@pytest.mark.parametrize("statistics", [False, True])
async def test_no_scrape_reads_a_whole_table(store: Store, statistics: bool) -> None:
    """The database answers every question of a scrape from an index, with and without statistics of its own."""
    await whole(store)
    await store.write(record_waiting, WaitingView("RATE_LIMITED", "soon"))
    if statistics:
        await store.write(lambda connection: connection.exec_driver_sql("ANALYZE"))
    with plans(store) as (engine, lines), engine.connect() as connection:
        read_snapshot(connection, store.layout)
    assert len(lines) > 8
    small = ("SCAN chain_binding", "SCAN anon_1")  # one row; and what was read from an index a line before
    scans = [
        (line, statement) for line, statement in lines
        if ((line.startswith("SCAN") and "COVERING INDEX" not in line and line not in small)
            or (line.startswith("SEARCH") and "USING" not in line))
        and ("LIMIT" not in statement or "WHERE" in statement)  # the last row of a table is no reading of it
    ]
    assert scans == []
    assert not [line for line, _ in lines if "FOR ORDER BY" in line]


async def test_scrapes_beside_a_writer(store: Store) -> None:
    """Many scrapes at once of a large store, while the node writes: each is whole, and the writer loses nothing."""
    await whole(store)
    before = await store.read(lambda connection: read_snapshot(connection, store.layout).counts.events)

    async def write() -> None:
        for _ in range(40):
            await store.write(append_event, "test", "")

    async with served(store) as site:
        pages, _ = await asyncio.gather(asyncio.gather(*(site.text("/metrics") for _ in range(24))), write())
        after = parsed(await site.text("/metrics"))
    assert all(parsed(page)["cacheon_queue_jobs"].samples for page in pages)
    assert value(after, "cacheon_store_events_total") == before + 40


def test_how_late_the_loop_is() -> None:
    """Delays are counted in cumulative buckets, the last of which holds all."""
    lag = LoopLag()
    for seconds in (0.0, 0.001, 0.02, 9.0):
        lag.observe(seconds)
    buckets = dict(lag.buckets)
    assert (buckets["0.001"], buckets["0.025"], buckets["5.0"], buckets["+Inf"]) == (2, 3, 3, 4)
    assert lag.seconds == pytest.approx(9.021)
    assert len(buckets) == len(BUCKETS) + 1


async def test_the_loop_is_measured_while_pages_are_served(store: Store) -> None:
    """The service itself takes the measure."""
    async with served(store) as site:

        async def measured() -> bool:
            return value(parsed(await site.text("/metrics")), "cacheon_loop_lag_seconds_count") > 0

        await until(measured)
