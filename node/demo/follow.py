"""Watching the node work until every submission is final and the weights are confirmed on the chain."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence

from config.errors import HostError, InternalError, NotFoundError
from node.demo.cast import CAST
from node.demo.children import Child
from node.demo.place import Place
from node.demo.reporter import Progress, Reporter
from node.demo.result import verdict_code
from node.status import NodeStatus, SubmissionStatus, all_final, read_status, weights_confirmed

POLL_SECONDS = 0.5
LIMIT_SECONDS = 600.0


def finished(status: NodeStatus | None) -> bool:
    """Say whether the node has nothing left to do for the demo."""
    return status is not None and all_final(status, len(CAST)) and weights_confirmed(status)


async def current(place: Place) -> NodeStatus | None:
    """Return what the node knows, or None before its first start and while it makes its database."""
    try:
        return await asyncio.to_thread(read_status, place.node_state)
    except (NotFoundError, HostError):
        return None


async def until_finished(
    place: Place, children: Sequence[Child], hotkeys: Mapping[str, str], reporter: Reporter
) -> NodeStatus:
    """Follow the node.

    Raises the failure of a child that ended, `HostError` (STATE_NOT_FOUND) when somebody removed the state folder, or
    `InternalError` (DEMO_TIMEOUT).
    """
    deadline = time.monotonic() + LIMIT_SECONDS
    shown: object = None
    while time.monotonic() < deadline:
        for child in children:
            child.check()
        if not place.plan.exists():
            raise HostError(
                "STATE_NOT_FOUND",
                f"the state folder {place.root} was removed while the demo worked in it",
                hint="start again; with --state DIR it works in a folder that nobody cleans up",
            )
        status = await current(place)
        rows, note = progress_rows(status, hotkeys), progress_note(status)
        if (rows, note) != shown:
            shown = (rows, note)
            reporter.progress(rows, note)
        if status is not None and finished(status):
            return status
        await asyncio.sleep(POLL_SECONDS)
    raise InternalError(
        "DEMO_TIMEOUT",
        f"the demo did not end within {LIMIT_SECONDS:.0f} s",
        hint=f"start it again with --state {place.root}; logs are in {place.logs}",
    )


def progress_rows(status: NodeStatus | None, hotkeys: Mapping[str, str]) -> tuple[Progress, ...]:
    """Return one row per miner, in the order of the cast."""
    by_hotkey = {submission.hotkey: submission for submission in status.submissions} if status else {}
    return tuple(Progress(player.wallet, player.what, _now(by_hotkey.get(hotkeys[player.wallet]))) for player in CAST)


def _now(submission: SubmissionStatus | None) -> str:
    if submission is None:
        return "sealed on the chain"
    if submission.final:
        return verdict_code(submission)
    running = [attempt for attempt in submission.attempts if attempt.state == "running"]
    if running:
        return f"measuring, {running[-1].role} attempt"
    if submission.seen_hash:
        return "fetching: the host serves other bytes"
    return str(submission.state).replace("_", " ")


def progress_note(status: NodeStatus | None) -> str:
    """Return one line about the node as a whole."""
    if status is None:
        return "the validator is starting"
    head = status.publication
    return "no weights yet" if head is None else f"weights of epoch {head.epoch}: {head.status}"
