"""What `/metrics` says, in Prometheus' text format.

Invariants
1. One prefix, base units, and labels from closed sets only: states, outcomes, codes that `cacheon explain` knows,
   layers, reasons. No hotkey, digest, path or URL.
2. What is not known has no sample; it is never 0.
3. Counters are counted from the store, so a restart does not reset them.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import get_args

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from chain.publication_record import Status
from config.codes import load_codes
from node.http.health import Snapshot, judge
from node.http.loop_lag import LoopLag
from node.jobs import JobState
from node.observed import Observed
from node.readiness import ReasonName
from node.store.counts import AttemptCount, Counts
from node.store.layout import StateLayout
from qualify.sandbox.layers import LAYERS

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PREFIX = "cacheon"
_LOST, _OTHER = "LOST", "other"


@dataclass(frozen=True, eq=False)  # the registry keeps collectors by identity
class Scrape(Collector):
    """What one scrape tells; `snapshot` is None when the store cannot be read."""

    layout: StateLayout
    lag: LoopLag
    snapshot: Snapshot | None
    store_works: bool | None

    def render(self) -> bytes:
        """Return the page."""
        registry = CollectorRegistry()
        registry.register(self)
        ProcessCollector(namespace=_PREFIX, registry=registry)
        return generate_latest(registry)

    def collect(self) -> Iterator[Metric]:
        """Yield every family that this module makes."""
        yield _gauge("build_info", "Always 1; the release that runs.", "version", {metadata.version("cacheon"): 1})
        observed = self.snapshot.observed if self.snapshot is not None else None
        yield from self._readiness(observed)
        if self.snapshot is not None:
            yield from _sandbox(self.snapshot.observed)
            yield from _chain(self.snapshot.observed)
            yield from _work(self.snapshot.counts)
        yield from _store(self.layout)
        yield HistogramMetricFamily(
            f"{_PREFIX}_loop_lag_seconds", "How late timers of the event loop came.", self.lag.buckets, self.lag.seconds
        )

    def _readiness(self, observed: Observed | None) -> Iterator[Metric]:
        readiness = judge(observed, self.store_works)
        holding = {reason.name for reason in readiness.reasons}
        yield _value("ready", "1 while the node does its work, as /readyz judges.", readiness.ready)
        yield _gauge(
            "readiness_reason", "1 for each reason that /readyz gives now.", "reason",
            {name.value: name in holding for name in ReasonName},
        )


def _sandbox(observed: Observed) -> Iterator[Metric]:
    layers, waived = observed.started.layers, observed.started.waived
    if layers is not None:
        yield _gauge(
            "sandbox_layer_present", "1 if a confined process confirmed the isolation layer at the node's start.",
            "layer", {name: name in layers for name in LAYERS},
        )
    yield _gauge(
        "sandbox_layer_waived", "1 if the settings give the isolation layer up.", "layer",
        {name: name in waived for name in LAYERS},
    )


def _chain(observed: Observed) -> Iterator[Metric]:
    known, seen = observed.conditions, observed.seen
    if known.registered is not None:
        yield _value("registered", "1 while the hotkey is registered on the subnet.", known.registered)
    if known.validator_permit is not None:
        yield _value("validator_permit", "1 while the chain lets the hotkey set weights.", known.validator_permit)
    if seen.block:
        yield _value("chain_head_block", "Newest finalized block that the node saw.", seen.block)
    if seen.block_ms:
        yield _value(
            "chain_last_block_timestamp_seconds", "When that block was made, by its own clock.", seen.block_ms / 1000
        )
    if known.block_age_seconds is not None:
        yield _value("chain_block_age_seconds", "Age of that block by this machine's clock.", known.block_age_seconds)
    if observed.chain is not None:
        yield _value("chain_scanned_block", "Block up to which reveals were read.", observed.chain.cursor_block)


def _work(counts: Counts) -> Iterator[Metric]:
    yield _gauge(
        "queue_jobs", "Submissions by the state of their job.", "state",
        {state.value: counts.jobs.get(state.value, 0) for state in JobState},
    )
    running = sum(one.count for one in counts.attempts if one.state == "running")
    yield _value("attempts_running", "Attempts that are being measured.", running)
    yield _attempts(counts.attempts)
    yield _gauge(
        "publications", "Weight publications by the state that they are in.", "state",
        {state: counts.publications.get(state, 0) for state in get_args(Status)},
    )
    if counts.confirmed_ms:
        yield _value(
            "weights_last_success_timestamp_seconds", "When weights were last seen on the chain.",
            counts.confirmed_ms / 1000,
        )
    family = CounterMetricFamily(f"{_PREFIX}_store_events", "Events in the store's log.")
    family.add_metric((), counts.events)
    yield family


def _attempts(counted: tuple[AttemptCount, ...]) -> Metric:
    family = CounterMetricFamily(
        f"{_PREFIX}_attempts", "Attempts that ended, by outcome (PASS, FAIL, RETRY, LOST) and code.",
        labels=("outcome", "code"),
    )
    ended: Counter[tuple[str, str]] = Counter()
    for one in counted:
        if one.state != "running":
            code = one.code if not one.code or one.code in load_codes() else _OTHER
            ended[one.outcome or _LOST, code] += one.count
    for labels, count in sorted(ended.items()):
        family.add_metric(labels, count)
    return family


def _store(layout: StateLayout) -> Iterator[Metric]:
    try:
        files = (layout.database, layout.database.with_name(f"{layout.database.name}-wal"))
        size = sum(path.stat().st_size for path in files if path.exists())
        free = shutil.disk_usage(layout.root).free
    except OSError:
        return
    yield _value("store_bytes", "Size of the database and of its write-ahead log.", size)
    yield _value("state_free_bytes", "Room on the state folder's disk.", free)


def _value(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"{_PREFIX}_{name}", text, value=float(value))


def _gauge(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(f"{_PREFIX}_{name}", text, labels=(label,))
    for key, value in values.items():
        family.add_metric((key,), float(value))
    return family
