"""The node: the one place where its parts are put together.

Invariants
1. Nothing serves before everything that `cacheon doctor` requires was checked: settings, machine, torch, wallet, state
   folder, isolation, chain, registration. Each missing thing is one error, and leaves nothing behind.
2. On start, interrupted jobs go back to where they can be picked up, before any service runs.
3. A chain that is away ends nothing, neither at start nor later: what needs no chain goes on with what is known, and
   the rest begins when the chain answers. Settings that name the wrong chain, subnet or key do end the start.
4. SIGTERM and SIGINT stop the node within seconds: services are cancelled, children killed, the store closed. What was
   interrupted is picked up at the next start. A second signal stops at once, and so does a stop that takes too long,
   whatever thread is stuck (`node.exit_watch`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from importlib import metadata
from typing import Any

import structlog
from sqlalchemy import Connection

from chain.blocks import BlockRef
from chain.client import ChainClient
from config.errors import ExitCode
from config.settings import Settings
from config.target_catalog import load_catalog
from intake.fetch import ArchiveFetcher, FetchPolicy
from intake.publish import sweep_staging
from node.doctor.chain import ChainReady
from node.doctor.configuration import require_arena, require_state_dir, require_waivers
from node.doctor.disk import layout_of
from node.doctor.wallet import require_signer
from node.exit_watch import ExitWatch
from node.http.listener import bind
from node.http.service import HttpService
from node.services import selfcheck
from node.services.admission import AdmissionService
from node.services.arena_copy import keep_arena
from node.services.chain_start import reach_chain
from node.services.chain_watch import ChainWatch
from node.services.context import NodeContext, worker_digest
from node.services.fetching import FetchingService
from node.services.heads import HeadsService, HeadWatch
from node.services.intake import IntakeService
from node.services.parking import ParkingService
from node.services.publication import PublicationService
from node.services.qualification import QualificationService
from node.services.receipts import ReceiptBook, compare_files, deliver
from node.services.restoring import Restorer
from node.services.reveals import RevealsService
from node.services.settlement import SettlementService
from node.services.supervisor import Service, cancel_all, supervise_all
from node.services.target_copy import keep_targets
from node.store.engine import Store
from node.store.events import append_event
from node.store.evidence_rows import lose_running_attempts
from node.store.job_rows import entries, recover_all
from node.store.layout import StateLayout
from node.store.queries import chain_view
from qualify.intake_runner import IntakeRunner


async def run_node(
    settings: Settings, *, stop: asyncio.Event | None = None, ready: asyncio.Event | None = None,
    exit_watch: ExitWatch | None = None,
) -> None:
    """Run the node until `stop` is set or a signal comes; `ready` is set once it serves.

    With an `exit_watch` the process belongs to the node: it is armed once the node means to end, for whatever reason,
    and the caller ends the process then. Raises `CacheonError` for everything that keeps it from starting.
    """
    if exit_watch is None:
        await _run(settings, stop or asyncio.Event(), ready)
        return
    with exit_watch.watching_loop():
        try:
            await _run(settings, stop or asyncio.Event(), ready, on_stop=exit_watch.arm)
        finally:
            exit_watch.arm()


async def _run(
    settings: Settings, stop: asyncio.Event, ready: asyncio.Event | None, on_stop: Callable[[], None] = lambda: None
) -> None:
    with _signals(stop):
        serving = asyncio.create_task(_serve(settings, ready))
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            on_stop()
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
        layers = await selfcheck.check_host(settings, screener)
        catalog = load_catalog()
        arena = require_arena(settings, catalog)
        signer = await asyncio.to_thread(require_signer, settings)
        layout = layout_of(settings)
        pages = parts.enter_context(bind(settings.http.listen)) if settings.http.listen else None
        store = await parts.enter_async_context(_opened(layout))
        worker = await asyncio.to_thread(worker_digest, arena)
        arena_path = await asyncio.to_thread(keep_arena, arena, layout.arenas)
        await asyncio.to_thread(keep_targets, catalog, layout.targets)
        context = NodeContext(settings, layout, store, arena, catalog, worker, arena_path)
        receipts = await asyncio.to_thread(ReceiptBook.open, layout)
        bound = await store.read(chain_view)
        client = ChainClient.from_settings(
            settings.chain, runtime_cache_dir=layout.runtime_cache, genesis_hash=bound.genesis_hash if bound else "",
            final=BlockRef(bound.cursor_block, bound.cursor_hash) if bound and bound.cursor_hash else None,
        )
        parts.push_async_callback(client.close)
        watch = ChainWatch(layout, settings.chain.poll_seconds)
        reaching = asyncio.create_task(
            reach_chain(settings, client, signer, watch, bound_genesis=bound.genesis_hash if bound else ""),
            name="reach-chain",
        )
        parts.push_async_callback(cancel_all, [reaching])
        await _first_look(reaching, watch, may_work_alone=bound is not None and bound.netuid == settings.chain.netuid)
        fetcher = await parts.enter_async_context(
            ArchiveFetcher(FetchPolicy.from_settings(settings.intake, settings.profile))
        )
        await _resume(context, layers, receipts)
        heads = HeadWatch()
        local: list[Service] = [
            FetchingService(context, fetcher), IntakeService(context, screener),
            QualificationService(context, receipts), SettlementService(context, receipts),
            ParkingService(context, Restorer(context, fetcher, screener)),
        ]
        if pages is not None:
            local.append(HttpService(layout, settings.http, pages, lambda: store.works))
        following: list[Service] = [
            HeadsService(client, heads, watch), RevealsService(context, client, heads),
            AdmissionService(context, client),
        ]
        if signer is None:
            structlog.get_logger().warning("node.observing", why="no wallet is named: no weights are published")
        else:
            following.append(PublicationService(context, client, signer, heads, receipts))

        async def follow() -> None:
            await _serve_chain(context, await reaching, ready)
            await supervise_all(context, following)

        await _all_or_none([supervise_all(context, local), follow()])


async def _first_look(reaching: asyncio.Task[ChainReady], watch: ChainWatch, *, may_work_alone: bool) -> None:
    """Wait until the chain answered or, if the folder knows its chain, was found away; raises what `reaching` does."""
    gone = asyncio.create_task(watch.gone.wait())
    try:
        await asyncio.wait({reaching, gone} if may_work_alone else {reaching}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
    if reaching.done():
        reaching.result()


async def _all_or_none(works: list[Coroutine[Any, Any, None]]) -> None:
    """Run `works` until cancelled; the first that fails ends all."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
    finally:
        await cancel_all(tasks)


@contextlib.asynccontextmanager
async def _opened(layout: StateLayout) -> AsyncIterator[Store]:
    store = await Store.open(layout)
    try:
        yield store
    finally:
        await store.close()


async def _serve_chain(context: NodeContext, chain: ChainReady, ready: asyncio.Event | None) -> None:
    """Bind the state folder to the chain, and say which it is and what the hotkey may do there."""
    await context.store.bind(chain.genesis_hash, context.settings.chain.netuid)
    found = {
        "hotkey": chain.hotkey, "spec_version": chain.spec_version, "uid": chain.uid,
        "validator_permit": chain.validator_permit,
    }
    await context.store.write(append_event, "chain.ready", "", found)
    structlog.get_logger().info("chain.ready", **found, finalized=chain.head.number)
    if ready is not None:
        ready.set()


async def _resume(context: NodeContext, layers: tuple[str, ...], receipts: ReceiptBook) -> None:
    """Pick up what an earlier run left, and say who is running."""
    store, arena = context.store, context.arena
    lost = await store.write(lose_running_attempts)
    recovered = await store.write(recover_all)
    await deliver(store, receipts)
    await compare_files(store)
    await asyncio.to_thread(_sweep, context.layout, await store.read(_known))
    started = {
        "version": metadata.version("cacheon"), "pid": os.getpid(), "arena": arena.id, "arena_digest": arena.digest,
        "worker": context.worker, "waived": list(context.settings.sandbox.waive), "layers": list(layers),
    }
    await store.write(append_event, "node.started", "", started)
    structlog.get_logger().info(
        "node.started", **started, recovered=len(recovered), lost_attempts=lost, state_dir=str(context.layout.root),
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
