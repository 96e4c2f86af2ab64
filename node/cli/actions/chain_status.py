"""`cacheon chain-status`: where submissions stand, from the chain and, when it is at hand, from a node's store.

A submission goes `sealed` -> `revealed` (or `refused`, when the opened bytes are no payload) on the chain, and on
through the states of a node's job when `--node-state` names its folder.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from config.canonical import is_digest
from config.errors import ConfigurationError, ExitCode
from node.cli.miner import submission_id
from node.cli.output import Output, table
from node.cli.resolve import resolve
from node.kinship import Kinship

if TYPE_CHECKING:
    from rich.console import Console

    from chain.client import ChainClient
    from chain.commitments import CommitmentState
    from config.settings import Settings
    from node.cli.options import ChainChoice
    from node.status import NodeStatus, SubmissionStatus

_SS58_LENGTH = 48


class Standing(msgspec.Struct, frozen=True):
    """One submission of a hotkey. `block` is where it was committed (while sealed) or revealed.

    `rounds_left` counts beacon rounds until a sealed one opens; `weight_ppm` is its confirmed share.
    """

    id: str
    hotkey: str
    content_hash: str
    url: str
    stage: str
    block: int
    rounds_left: int
    code: str
    blame: str
    detail: str
    weight_ppm: int
    final: bool
    kinship: Kinship | None = None  # what it shares with an earlier submission, when a node knows it


class Wanted(msgspec.Struct, frozen=True):
    """Whose submissions are asked for; an empty content hash means all of them."""

    hotkey: str
    content_hash: str


def run(identifier: str | None, choice: ChainChoice, *, node_state: str | None, watch: bool, as_json: bool) -> int:
    """Show, or follow, the submissions of one hotkey. Returns 7 while one is pending or none is known."""
    output = Output("chain-status", as_json=as_json)
    address = choice.hotkey if choice.hotkey and len(choice.hotkey) == _SS58_LENGTH else None
    overrides = choice.overrides()
    if address:
        overrides.pop("chain.hotkey")
    settings = resolve(choice.config, overrides).settings
    wanted = _wanted(identifier, address, settings)
    return asyncio.run(_show(settings, wanted, node_state, output, watch=watch))


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


async def _show(settings: Settings, wanted: Wanted, node_state: str | None, output: Output, *, watch: bool) -> int:
    from chain.client import ChainClient

    shown: dict[str, Standing] = {}
    async with ChainClient.from_settings(settings.chain) as client:
        await client.require_subnet(settings.chain.netuid, await client.finalized_head())
        while True:
            rows = await _standings(client, settings, wanted, node_state)
            if not watch:
                _print_all(rows, output)
                break
            for row in rows:
                steady = msgspec.structs.replace(row, rounds_left=0)  # a countdown is no change
                if shown.get(row.id) != steady:
                    shown[row.id] = steady
                    _print_change(row, output)
            if rows and all(row.final for row in rows):
                break
            await asyncio.sleep(settings.chain.poll_seconds)
    return int(ExitCode.OK if rows and all(row.final for row in rows) else ExitCode.NOT_FOUND)


async def _standings(
    client: ChainClient, settings: Settings, wanted: Wanted, node_state: str | None
) -> tuple[Standing, ...]:
    from chain.commitments import commitment_state

    block = await client.head()
    state = await commitment_state(
        client, settings.chain.netuid, wanted.hotkey, block, allow_loopback_http=settings.is_devnet
    )
    view = None
    if node_state is not None:
        from node.status import read_status

        view = await asyncio.to_thread(read_status, node_state)
    return standings(wanted, state, view)


def standings(wanted: Wanted, state: CommitmentState, view: NodeStatus | None) -> tuple[Standing, ...]:
    """Return the submissions that `wanted` names, oldest first; what a node knows goes before what the chain shows."""
    known = {}
    for submission in view.submissions if view else ():
        if submission.hotkey == wanted.hotkey:
            known[submission.content_hash, submission.block] = submission
    rows = [_from_node(submission) for submission in known.values()]
    for reveal in state.reveals:
        if (reveal.content_hash, reveal.block) in known:
            continue
        stage, final = ("refused", True) if reveal.reason else ("revealed", view is None)
        row = _row(wanted.hotkey, reveal.content_hash, stage, reveal.block, final=final)
        rows.append(msgspec.structs.replace(row, url=reveal.url, code=reveal.reason))
    if wanted.content_hash:
        rows = [row for row in rows if row.content_hash == wanted.content_hash]
    if state.status in ("sealed", "failed") and not (wanted.content_hash and rows):
        # a sealed commitment does not say what is in it: it counts as the one asked for until something else turns up
        row = _row(
            wanted.hotkey, wanted.content_hash, state.status, state.committed_block or 0, final=state.status == "failed"
        )
        rows.append(msgspec.structs.replace(row, rounds_left=max(0, (state.reveal_round or 0) - state.last_round)))
    return tuple(sorted(rows, key=lambda row: row.block))


def _row(hotkey: str, content_hash: str, stage: str, block: int, *, final: bool) -> Standing:
    identity = submission_id(hotkey, content_hash) if content_hash else f"{hotkey}:block-{block}"
    return Standing(identity, hotkey, content_hash, "", stage, block, 0, "", "", "", 0, final)


def _from_node(submission: SubmissionStatus) -> Standing:
    return Standing(
        id=submission_id(submission.hotkey, submission.content_hash),
        hotkey=submission.hotkey,
        content_hash=submission.content_hash,
        url=submission.url,
        stage=str(submission.state),
        block=submission.block,
        rounds_left=0,
        code=submission.code,
        blame=submission.blame,
        detail=submission.detail,
        weight_ppm=submission.weight_ppm,
        final=submission.final,
        kinship=submission.kinship,
    )


def _print_all(rows: tuple[Standing, ...], output: Output) -> None:
    if not rows and not output.as_json:
        output.note("nothing is known of this hotkey or content hash on this subnet")
        return
    cells = [(str(row.block), row.content_hash or "sealed", _stage_text(row), row.code, row.blame) for row in rows]
    listing = table(("block", "content hash", "stage", "code", "blame"), cells, whole=("content hash", "code"))
    text = "\n".join(line for row in rows for line in kinship_lines(row))

    def show(console: Console) -> None:
        console.print(listing)
        if text:
            console.print(text, markup=False, highlight=False, soft_wrap=True)

    output.result(rows, show)


def kinship_lines(row: Standing) -> list[str]:
    """Return, line by line, which parts of a submission are those of an earlier one."""
    kinship = row.kinship
    if kinship is None:
        return []
    what = "is a copy of" if kinship.kind == "copy" else "resembles (which decides nothing)"
    shares = f"{kinship.equal_ppm / 10_000:.0f} % equal, {kinship.alike_ppm / 10_000:.0f} % but for constants"
    return [
        f"{row.content_hash} {what} submission {kinship.submission_id}",
        f"  of {kinship.hotkey}, revealed in block {kinship.block}: {shares}",
        *(
            f"  {part.ours} = {part.earlier}{'' if part.is_equal else ' (but for constants)'}, {part.weight} tokens"
            for part in kinship.parts
        ),
    ]


def _print_change(row: Standing, output: Output) -> None:
    text = f"block {row.block}  {row.content_hash or '(sealed)'}  {_stage_text(row)}  {row.code} {row.detail}".rstrip()
    text = "\n".join([text, *kinship_lines(row)])
    output.result(row, lambda console: console.print(text, markup=False, soft_wrap=True))


def _stage_text(row: Standing) -> str:
    if row.stage != "sealed":
        return row.stage
    return f"sealed, {row.rounds_left} round{'' if row.rounds_left == 1 else 's'} left"
