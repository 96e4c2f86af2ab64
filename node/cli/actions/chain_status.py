"""`cacheon chain-status`: where submissions stand, from the chain and, when one is named, from a node.

A submission goes `sealed` -> `revealed` (or `refused`, when the opened bytes are no payload) on the chain, and on
through the states of a node's job when `--node` or `--node-state` names one.

Invariants
1. Watching keeps nothing: everything is asked again, so it can be stopped at any time and started elsewhere with the
   same id.
2. A first question that fails is an error; later ones that fail are told once and asked again until they succeed.
3. Changes are talk (standard error), or with `--json` one line each of their own schema; the result is printed once, at
   the end, as without `--watch`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from config.canonical import is_digest
from config.errors import ConfigurationError, NetworkError
from node.cli.node_views import FolderNode, HttpNode, NodeSource, require_same_chain
from node.cli.output import Output, table
from node.cli.resolve import require_subnet_named, resolve
from node.cli.standings import Standing, Wanted, exit_code, kinship_lines, stage_text, standings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from rich.console import Console

    from chain.client import ChainClient
    from config.settings import Settings
    from node.cli.options import ChainChoice

_SS58_LENGTH = 48
_RETRY_SECONDS, _RETRY_CAP_SECONDS = 1.0, 30.0


@dataclass(frozen=True)
class Watching:
    """Which node is asked, and how long. `timeout` is seconds; None means until the verdict."""

    node: str | None = None
    node_state: str | None = None
    watch: bool = False
    timeout: float | None = None


def run(identifier: str | None, choice: ChainChoice, watching: Watching, *, as_json: bool) -> int:
    """Show, or follow, the submissions of one hotkey. Returns the exit code of the verdict, 7 while there is none."""
    address = choice.hotkey if choice.hotkey and len(choice.hotkey) == _SS58_LENGTH else None
    overrides = choice.overrides()
    if address:
        overrides.pop("chain.hotkey")
    source = _source(watching)
    settings = require_subnet_named(resolve(choice.config, overrides).settings)
    wanted = _wanted(identifier, address, settings)
    return asyncio.run(_show(settings, wanted, source, Output("chain-status", as_json=as_json), watching))


def _source(watching: Watching) -> NodeSource | None:
    if watching.node is not None and watching.node_state is not None:
        raise ConfigurationError(
            "NODE_NAMED_TWICE", "both --node and --node-state name a node", hint="give one of them"
        )
    if watching.node is not None:
        return HttpNode(watching.node)
    return FolderNode(watching.node_state) if watching.node_state is not None else None


def _wanted(identifier: str | None, address: str | None, settings: Settings) -> Wanted:
    hotkey, _, content_hash = (identifier or "").rpartition(":")
    if content_hash and not is_digest(content_hash):
        raise ConfigurationError(
            "SUBMISSION_ID_INVALID",
            f"{identifier!r} is no submission id",
            hint="give the id that chain-submit printed, or a content hash of 64 hexadecimal characters",
        )
    if not (hotkey or address):
        from chain.wallet import load_hotkey

        hotkey = load_hotkey(settings.chain.wallet_path, settings.chain.wallet, settings.chain.hotkey).ss58_address
    return Wanted(hotkey or address or "", content_hash)


async def _show(
    settings: Settings, wanted: Wanted, source: NodeSource | None, output: Output, watching: Watching
) -> int:
    from chain.client import ChainClient

    try:
        async with ChainClient.from_settings(settings.chain) as client:
            await client.require_subnet(settings.chain.netuid, await client.finalized_head())
            rows = await _standings(client, settings, wanted, source)
            if watching.watch:
                rows = await _follow(
                    lambda: _standings(client, settings, wanted, source),
                    rows,
                    output,
                    watching.timeout,
                    poll_seconds=settings.chain.poll_seconds,
                )
    finally:
        if source is not None:
            await source.close()
    _print_all(rows, output, asked_a_node=source is not None)
    return int(exit_code(rows))


async def _follow(
    ask: Callable[[], Awaitable[tuple[Standing, ...]]],
    rows: tuple[Standing, ...],
    output: Output,
    timeout: float | None,  # noqa: ASYNC109 - the option's meaning: what was seen last is the result
    *,
    poll_seconds: float,
) -> tuple[Standing, ...]:
    """Ask until every row is final or the time is over; return the last rows."""
    loop = asyncio.get_running_loop()
    deadline = None if timeout is None else loop.time() + timeout
    shown: dict[str, Standing] = {}
    failures = 0
    while True:
        for row in rows:
            steady = msgspec.structs.replace(row, rounds_left=0)  # a countdown is no change
            if shown.get(row.id) != steady:
                shown[row.id] = steady
                _tell(row, output)
        if rows and all(row.final for row in rows):
            return rows
        wait = poll_seconds if not failures else min(_RETRY_SECONDS * 2 ** (failures - 1), _RETRY_CAP_SECONDS)
        if deadline is not None and loop.time() + wait > deadline:
            await asyncio.sleep(max(0.0, deadline - loop.time()))
            return rows
        await asyncio.sleep(wait)
        try:
            rows = await ask()
        except NetworkError as error:
            if not failures:
                output.note(f"{error.message} [{error.code}]; asking again until it answers")
            failures += 1
            continue
        if failures:
            output.note("it answers again")
        failures = 0


async def _standings(
    client: ChainClient, settings: Settings, wanted: Wanted, source: NodeSource | None
) -> tuple[Standing, ...]:
    from chain.commitments import commitment_state

    # the node first: a reveal that comes in between is then one that it has not read, not one that it left out
    view = await source.view(wanted) if source is not None else None
    if view is not None:
        require_same_chain(view, await client.genesis_hash(), settings.chain.netuid)
    state = await commitment_state(
        client, settings.chain.netuid, wanted.hotkey, await client.head(), allow_loopback_http=settings.is_devnet
    )
    return standings(wanted, state, view)


def _print_all(rows: tuple[Standing, ...], output: Output, *, asked_a_node: bool) -> None:
    if not rows and not output.as_json:
        output.note("nothing is known of this hotkey or content hash on this subnet")
        return
    cells = [(str(row.block), row.content_hash or "sealed", stage_text(row), row.code, row.blame) for row in rows]
    listing = table(("block", "content hash", "stage", "code", "blame"), cells, whole=("content hash", "code"))
    text = "\n".join(line for row in rows for line in (*detail_lines(row), *kinship_lines(row)))

    def show(console: Console) -> None:
        console.print(listing)
        if text:
            console.print(text, markup=False, highlight=False, soft_wrap=True)

    output.result(rows, show)
    for text in next_steps(rows, asked_a_node=asked_a_node):
        output.note(text)


def next_steps(rows: Sequence[Standing], *, asked_a_node: bool) -> list[str]:
    """Return what the reader may want to do now, as one line each."""
    codes = sorted({row.code for row in rows if row.code})
    steps = [f"`cacheon explain {code}` says what it means and what to do" for code in codes]
    if not asked_a_node and any(row.stage == "revealed" for row in rows):
        steps.append("the chain knows no verdict: `--node URL` asks a validator's node for it")
    return steps


def detail_lines(row: Standing) -> list[str]:
    """Return what a verdict says beside its code."""
    return [f"block {row.block}, {row.content_hash[:12]}: {row.detail}"] if row.detail else []


def _tell(row: Standing, output: Output) -> None:
    if output.as_json:
        Output("chain-status event", as_json=True).json_line(row)
    text = f"block {row.block}  {row.content_hash or '(sealed)'}  {stage_text(row)}  {row.code} {row.detail}".rstrip()
    output.note(text)
