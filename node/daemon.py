"""The node: the one place where its parts are put together.

Invariants
1. Nothing serves before everything that `cacheon doctor` requires was checked: settings, machine, torch, wallet, state
   folder, isolation, chain, registration. Each missing thing is one error, and leaves nothing behind.
2. On start, interrupted jobs go back to where they can be picked up, before any service runs.
3. SIGTERM and SIGINT stop the node within seconds: services are cancelled, children killed, the store closed. What was
   interrupted is picked up at the next start. A second signal stops at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Iterator
from importlib import metadata

import structlog
from sqlalchemy import Connection

from chain.client import ChainClient
from chain.signer import Signer
from config.errors import ExitCode
from config.settings import Settings
from config.target_catalog import load_catalog
from intake.fetch import ArchiveFetcher, FetchPolicy
from intake.publish import sweep_staging
from node.doctor.chain import ChainReady
from node.doctor.configuration import require_arena, require_state_dir, require_waivers
from node.doctor.disk import layout_of
from node.doctor.wallet import require_hotkey
from node.http.listener import bind
from node.http.service import HttpService
from node.services import selfcheck
from node.services.admission import AdmissionService
from node.services.arena_copy import keep_arena
from node.services.context import NodeContext, worker_digest
from node.services.fetching import FetchingService
from node.services.heads import HeadsService, HeadWatch
from node.services.intake import IntakeService
from node.services.parking import ParkingService
from node.services.publication import PublicationService
from node.services.qualification import QualificationService
from node.services.receipts import ReceiptBook
from node.services.restoring import Restorer
from node.services.reveals import RevealsService
from node.services.settlement import SettlementService
from node.services.supervisor import Service, supervise_all
from node.store.engine import Store
from node.store.events import append_event
from node.store.evidence_rows import lose_running_attempts
from node.store.job_rows import entries, recover_all
from node.store.layout import StateLayout
from qualify.intake_runner import IntakeRunner


async def run_node(
    settings: Settings, *, stop: asyncio.Event | None = None, ready: asyncio.Event | None = None
) -> None:
    """Run the node until `stop` is set or a signal comes; `ready` is set once it serves.

    Raises `CacheonError` for everything that keeps it from starting.
    """
    stop = stop if stop is not None else asyncio.Event()
    with _signals(stop):
        serving = asyncio.create_task(_serve(settings, ready))
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            interrupted = not serving.done() and serving.cancel()
        with contextlib.suppress(*([asyncio.CancelledError] if interrupted else [])):
            await serving
    structlog.get_logger().info("node.stopped")


async def _serve(settings: Settings, ready: asyncio.Event | None) -> None:
    """Check everything, then serve until cancelled; leaves nothing open however it ends."""
    require_state_dir(settings)
    async with contextlib.AsyncExitStack() as parts:
        screener = IntakeRunner(waive=require_waivers(settings))
        parts.push_async_callback(asyncio.to_thread, screener.close)
        await selfcheck.check_host(settings, screener)
        catalog = load_catalog()
        arena = require_arena(settings, catalog)
        signer = require_hotkey(settings)
        layout = layout_of(settings)
        pages = parts.enter_context(bind(settings.http.listen)) if settings.http.listen else None
        store = await parts.enter_async_context(_opened(layout))
        worker = await asyncio.to_thread(worker_digest, arena)
        arena_path = await asyncio.to_thread(keep_arena, arena, layout.arenas)
        context = NodeContext(settings, layout, store, arena, catalog, worker, arena_path)
        receipts = await asyncio.to_thread(ReceiptBook.open, layout)
        client = ChainClient.from_settings(settings.chain, runtime_cache_dir=layout.runtime_cache)
        parts.push_async_callback(client.close)
        chain = await selfcheck.check_chain(settings, client, signer)
        await store.bind(chain.genesis_hash, settings.chain.netuid)
        fetcher = await parts.enter_async_context(
            ArchiveFetcher(FetchPolicy.from_settings(settings.intake, settings.profile))
        )
        await _resume(context, chain)
        services = _services(context, client, signer, receipts, fetcher, screener)
        if pages is not None:
            services.append(HttpService(layout, settings.http, pages))
        if ready is not None:
            ready.set()
        await supervise_all(context, services)


def _services(
    context: NodeContext, client: ChainClient, signer: Signer, receipts: ReceiptBook, fetcher: ArchiveFetcher,
    screener: IntakeRunner,
) -> list[Service]:
    heads = HeadWatch()
    return [
        HeadsService(client, heads, context.settings.chain.poll_seconds),
        RevealsService(context, client),
        AdmissionService(context, client),
        FetchingService(context, fetcher),
        IntakeService(context, screener),
        QualificationService(context, receipts),
        SettlementService(context, receipts),
        PublicationService(context, client, signer, heads, receipts),
        ParkingService(context, Restorer(context, fetcher, screener)),
    ]


@contextlib.asynccontextmanager
async def _opened(layout: StateLayout) -> AsyncIterator[Store]:
    store = await Store.open(layout)
    try:
        yield store
    finally:
        await store.close()


async def _resume(context: NodeContext, chain: ChainReady) -> None:
    """Pick up what an earlier run left, and say who is running."""
    store, arena = context.store, context.arena
    lost = await store.write(lose_running_attempts)
    recovered = await store.write(recover_all)
    await asyncio.to_thread(_sweep, context.layout, await store.read(_known))
    started = {
        "version": metadata.version("cacheon"), "pid": os.getpid(), "arena": arena.id, "arena_digest": arena.digest,
        "worker": context.worker, "waived": list(context.settings.sandbox.waive), "hotkey": chain.hotkey,
        "spec_version": chain.spec_version, "uid": chain.uid, "validator_permit": chain.validator_permit,
    }
    await store.write(append_event, "node.started", "", started)
    structlog.get_logger().info(
        "node.started", **started, finalized=chain.head.number, recovered=len(recovered), lost_attempts=lost,
        state_dir=str(context.layout.root),
    )


def _known(connection: Connection) -> set[str]:
    return {entry.submission.submission_id for entry in entries(connection) if entry.job.state.value == "ready"}


def _sweep(layout: StateLayout, waiting: set[str]) -> None:
    """Empty the archive folder of whatever no job waits for, and remove what interrupted writes left anywhere."""
    keep = {layout.archive(submission_id) for submission_id in waiting}
    for path in layout.archives.iterdir():
        if path not in keep:
            path.unlink(missing_ok=True)
    layout.sweep()
    sweep_staging(layout.bundles)


@contextlib.contextmanager
def _signals(stop: asyncio.Event) -> Iterator[None]:
    """Turn SIGTERM and SIGINT into a stop; the second one ends the process at once."""
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        if stop.is_set():
            os._exit(ExitCode.INTERRUPTED)
        structlog.get_logger().info("node.stopping")
        stop.set()

    installed = []
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(ValueError, NotImplementedError):  # not the main thread: the caller owns signals
            loop.add_signal_handler(number, on_signal)
            installed.append(number)
    try:
        yield
    finally:
        for number in installed:
            loop.remove_signal_handler(number)
