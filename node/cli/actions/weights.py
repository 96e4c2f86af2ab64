"""`cacheon weights show` and `weights plan`: the weights as decided, as published, and as the chain has them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from chain.blocks import BlockRef
from chain.publication_plan import Plan, PublicationOptions, plan_publication
from chain.validator_state import read_row
from chain.waiting import Waiting
from config.errors import ConfigurationError, NetworkError
from config.target_catalog import load_catalog
from node.cli.output import Output, facts, table
from node.cli.resolve import resolve
from node.services.weight_vector import Decision, decide
from node.weights_view import Share, WeightsView, read_weights, shares_of

if TYPE_CHECKING:
    from rich.console import Console

    from chain.client import ChainClient
    from chain.hyperparameters import Hyperparameters
    from chain.metagraph import Metagraph
    from chain.weights import WeightTarget
    from config.settings import Settings
    from node.cli.options import ChainChoice

_SHOWN = 20  # publications in the table; --json has all


class Entry(msgspec.Struct, frozen=True):
    """One entry of a row; `on_chain` and `wanted` are values of 0..65535."""

    uid: int
    hotkey: str
    on_chain: int
    wanted: int


class ChainRow(msgspec.Struct, frozen=True):
    """The validator's stored row at a finalized block, beside the row that was signed last or would be next."""

    block: int
    epoch: int
    entries: tuple[Entry, ...]
    differs: bool


class Shown(msgspec.Struct, frozen=True):
    """The result of `weights show`; `chain` is null when the chain was not asked or cannot be reached."""

    state: WeightsView
    chain: ChainRow | None
    chain_problem: str


class Planned(msgspec.Struct, frozen=True):
    """The result of `weights plan`. `next` is `sign` only when the node would sign at this block."""

    block: int
    epoch: int
    hotkey: str
    next: str  # sign, wait, follow (a publication is open), done (the epoch has had its own)
    waiting: Waiting | None
    commit_reveal: bool
    version_key: int
    shares: tuple[Share, ...]
    row: ChainRow | None


def show(choice: ChainChoice, state: str | None, *, offline: bool, as_json: bool) -> None:
    """Show what the state folder and the chain know."""
    settings = _settings(choice, state)
    view = read_weights(settings.state_dir)
    chain, problem = None, ""
    if not offline and settings.chain.endpoints and view.head is not None:
        try:
            chain = asyncio.run(_signed_row(settings, view))
        except NetworkError as error:
            problem = error.message
    result = Shown(view, chain, problem)
    Output("weights show", as_json=as_json).result(result, lambda console: _print_shown(console, result))


def plan(choice: ChainChoice, state: str | None, hotkey: str | None, *, as_json: bool) -> None:
    """Work out the next publication."""
    settings = _settings(choice, state)
    view = read_weights(settings.state_dir)
    validator = hotkey or view.hotkey
    if not validator:
        raise ConfigurationError(
            "VALIDATOR_NOT_GIVEN", "the state folder does not tell whose weights these are",
            hint="give --hotkey ADDRESS; a node that has started once is remembered",
        )
    result = asyncio.run(_plan(settings, view, validator))
    Output("weights plan", as_json=as_json).result(result, lambda console: _print_plan(console, result))


def _settings(choice: ChainChoice, state: str | None) -> Settings:
    overrides = choice.overrides() | ({"state_dir": state} if state is not None else {})
    settings = resolve(choice.config, overrides).settings
    if not settings.state_dir:
        raise ConfigurationError(
            "STATE_NOT_GIVEN", "no state folder is named", hint="give --state DIR, or -c FILE with `state_dir` set"
        )
    return settings


async def _signed_row(settings: Settings, view: WeightsView) -> ChainRow | None:
    """Compare the chain's row with the one that was signed last."""
    from chain.client import ChainClient
    from chain.validator_state import read_validator

    head = view.head
    if head is None:
        return None
    async with ChainClient.from_settings(settings.chain) as client:
        block = await client.finalized_head()
        state = await read_validator(client, head.netuid, head.hotkey, block, mechanism=head.mechanism)
        wanted = dict(zip(head.uids, head.values, strict=True))
        return await _row(client, block, state.parameters.epoch, state.uid, wanted, head.netuid, head.mechanism)


async def _row(
    client: ChainClient, block: BlockRef, epoch: int, uid: int | None, wanted: dict[int, int], netuid: int,
    mechanism: int,
) -> ChainRow:
    from chain.abi import Storage

    stored = dict(await read_row(client, netuid, uid, block, mechanism)) if uid is not None else {}
    uids = sorted({*stored, *wanted})
    owners = await client.read(block, [(Storage.KEYS, [netuid, one]) for one in uids]) if uids else []
    entries = tuple(
        Entry(one, str(owner), stored.get(one, 0), wanted.get(one, 0)) for one, owner in zip(uids, owners, strict=True)
    )
    return ChainRow(block.number, epoch, entries, stored != wanted)


async def _plan(settings: Settings, view: WeightsView, validator: str) -> Planned:
    from chain.client import ChainClient

    publication = settings.publication
    options = PublicationOptions(
        netuid=view.netuid, profile=settings.profile, mechanism=publication.mechanism,
        refresh_epochs=publication.refresh_epochs,
    )
    decisions: list[Decision] = []
    targets = load_catalog().targets

    async def decided(parameters: Hyperparameters, metagraph: Metagraph) -> WeightTarget:
        decisions.append(decide(view.crowns, parameters, metagraph, publication, validator, targets))
        return decisions[-1].target

    async with ChainClient.from_settings(settings.chain) as client:
        block = await client.finalized_head()
        made = await plan_publication(client, validator, view.head, decided, options, block, complete=True)
        row = None
        if made.row is not None:
            wanted = dict(zip(made.row.uids, made.row.values, strict=True))
            parameters = made.state.parameters
            row = await _row(
                client, block, parameters.epoch, made.state.uid, wanted, options.netuid, options.mechanism
            )
    return Planned(
        block=block.number, epoch=made.state.parameters.epoch, hotkey=validator, next=_next(view, made),
        waiting=made.waiting, commit_reveal=made.newest.parameters.commit_reveal_enabled,
        version_key=max(made.state.parameters.version_key, made.newest.parameters.version_key),
        shares=_planned_shares(decisions), row=row,
    )


def _planned_shares(decisions: list[Decision]) -> tuple[Share, ...]:
    if not decisions:
        return ()
    projection = decisions[-1].projection
    return shares_of(projection.vector.entries, projection.lines, decisions[-1].predicate.policy.burn_hotkey)


def _next(view: WeightsView, made: Plan) -> str:
    if view.head is not None and view.head.is_open:
        return "follow"
    if made.is_done:
        return "done"
    return "wait" if made.waiting is not None or made.row is None else "sign"


def _print_shown(console: Console, result: Shown) -> None:
    state = result.state
    rows = [("validator", f"{state.hotkey or 'not known yet'} on subnet {state.netuid}")]
    rows.append(("vector", f"decided at block {state.vector_block}" if state.shares else "none decided yet"))
    if state.waiting is not None:
        rows += _waiting_facts(state.waiting.code, state.waiting.message, state.waiting.at_block)
    if result.chain is not None:
        same = "another row than the one signed last" if result.chain.differs else "the row that was signed last"
        rows.append(("chain", f"block {result.chain.block}, epoch {result.chain.epoch}: {same}"))
    if result.chain_problem:
        rows.append(("chain", result.chain_problem))
    if state.ledger is not None:
        rows.append(("ledger", f"{state.ledger.status} in epoch {state.ledger.epoch}: {state.ledger.digest}"))
    facts(console, rows)
    _print_shares(console, state.shares)
    _print_row(console, result.chain, "signed")
    if state.publications:
        cells = [
            (str(one.epoch), one.status, str(one.submit_block), str(one.included_block or "-"),
             str(one.confirmed_block or "-"), one.reason)
            for one in state.publications[:_SHOWN]
        ]
        console.print(table(("epoch", "state", "signed", "included", "confirmed", "reason"), cells, whole=("state",)))


def _print_plan(console: Console, result: Planned) -> None:
    words = {
        "sign": "would be signed now", "wait": "waits",
        "follow": "nothing new, while the publication that was signed last is followed",
        "done": "the epoch has had its publication",
    }
    how = "commit-reveal" if result.commit_reveal else "in the clear"
    rows = [
        ("validator", result.hotkey),
        ("at", f"finalized block {result.block}, epoch {result.epoch}"),
        ("next", f"{words[result.next]}; {how}, version key {result.version_key}"),
    ]
    if result.waiting is not None:
        rows += _waiting_facts(result.waiting.code, result.waiting.message, result.waiting.at_block)
    facts(console, rows)
    _print_shares(console, result.shares)
    _print_row(console, result.row, "planned")


def _waiting_facts(code: str, message: str, at_block: int | None) -> list[tuple[str, str]]:
    return [("waits", f"{code}: {message}"), ("works at", f"block {at_block}" if at_block else "not known")]


def _print_shares(console: Console, shares: tuple[Share, ...]) -> None:
    if shares:
        cells = [(one.hotkey, f"{one.ppm / 10_000:.4f} %", "\n".join(one.why)) for one in shares]
        console.print(table(("hotkey", "share", "why"), cells, whole=("hotkey",)))


def _print_row(console: Console, row: ChainRow | None, name: str) -> None:
    if row is not None and row.differs:
        cells = [(str(one.uid), one.hotkey, str(one.on_chain), str(one.wanted)) for one in row.entries]
        console.print(table(("uid", "hotkey", "on chain", name), cells, whole=("hotkey",)))
