"""Keeps the services running.

Invariants
1. A service that raises is started again after a growing delay; the others never notice.
2. Whatever a service does not expect is an `error.internal` event and a log line with its traceback. An upstream that
   cannot be reached is expected, and only logged.
3. Only the stop of the node, which cancels everything, ends a service; and the loss of its state folder, which ends the
   node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Protocol

import structlog

from config.errors import CacheonError, ChainError, HostError, InternalError, NetworkError
from node.services.context import NodeContext
from node.store.engine import StateReplacedError
from node.store.events import append_event
from node.store.values import storable

_BACKOFF_BASE_SECONDS = 0.5
_BACKOFF_CAP_SECONDS = 30.0
_CANCEL_AGAIN_SECONDS = 0.5
_CALM_SECONDS = 60.0  # a service that ran this long is considered healthy again


class Service(Protocol):
    """One long-lived task of the node."""

    @property
    def name(self) -> str:
        """Short lower-case name, for logs."""

    async def run(self) -> None:
        """Work until cancelled."""


async def supervise_all(context: NodeContext, services: Iterable[Service]) -> None:
    """Run `services` until cancelled; then cancel them and wait for their end.

    Raises `StateReplacedError` (STATE_REPLACED).
    """
    tasks = [asyncio.create_task(_keep_alive(context, service), name=service.name) for service in services]
    try:
        await asyncio.gather(*tasks)
    finally:
        await cancel_all(tasks)


async def cancel_all(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel `tasks` and wait for their end. A cancellation that some library swallowed is repeated."""
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=_CANCEL_AGAIN_SECONDS)


async def _keep_alive(context: NodeContext, service: Service) -> None:
    log = structlog.get_logger().bind(service=service.name)
    loop = asyncio.get_running_loop()
    failures = 0
    while True:
        started = loop.time()
        try:
            await service.run()
            log.error("service.ended")  # a service works until cancelled; an early end is a fault like any other
        except StateReplacedError:
            raise
        except Exception as error:  # noqa: BLE001 - the boundary that keeps one service's fault from the others
            await report_fault(context, service.name, error)
        failures = 1 if loop.time() - started > _CALM_SECONDS else failures + 1
        delay = min(_BACKOFF_BASE_SECONDS * 2 ** (failures - 1), _BACKOFF_CAP_SECONDS)
        log.info("service.restarts", delay_seconds=delay)
        await asyncio.sleep(delay)


async def report_fault(context: NodeContext, where: str, error: Exception, subject: str = "") -> None:
    """Log `error`; unless it is an unreachable upstream, also record it as an `error.internal` event."""
    log = structlog.get_logger()
    code = error.code if isinstance(error, CacheonError) else "UNEXPECTED"
    if isinstance(error, ChainError | NetworkError):
        log.warning("upstream.unavailable", where=where, code=code, error=str(error))
        return
    log.error("error.internal", where=where, code=code, submission=subject, exc_info=error)
    body = {"where": where, "code": code, "error": storable(f"{type(error).__name__}: {error}"[:500])}
    try:
        await context.store.write(append_event, "error.internal", subject, body)
    except StateReplacedError:
        raise
    except (HostError, InternalError) as failure:  # there is nowhere, or no way, to write it down
        log.error("error.unrecorded", code=failure.code)
