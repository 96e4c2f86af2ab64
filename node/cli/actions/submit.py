"""`cacheon chain-submit`: commit a bundle under a timelock."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from config.settings import Settings
from node.cli.miner import Prepared, bundle_folder, commit, prepare, submission_id
from node.cli.options import ChainChoice
from node.cli.output import Output, facts
from node.cli.resolve import resolve

if TYPE_CHECKING:
    from rich.console import Console


class DryRun(msgspec.Struct, frozen=True):
    """What would be committed, as `--json` shows it; `payload` is text, `payload_bytes` its length."""

    content_hash: str
    url: str
    payload: str
    payload_bytes: int
    dry_run: bool = True


class Submitted(msgspec.Struct, frozen=True):
    """What was committed, as `--json` shows it. `reveal_block` is the expected block, 0 when it cannot be told."""

    id: str
    content_hash: str
    url: str
    hotkey: str
    netuid: int
    extrinsic_hash: str
    block: int
    reveal_round: int
    reveal_block: int
    dry_run: bool = False


def run(bundle: str, url: str, choice: ChainChoice, *, blocks_until_reveal: int, dry_run: bool, as_json: bool) -> None:
    """Commit `bundle`, or with `dry_run` only say what would be committed."""
    output = Output("chain-submit", as_json=as_json)
    settings = resolve(choice.config, choice.overrides()).settings
    prepared = prepare(bundle_folder(bundle), url, allow_loopback_http=settings.is_devnet)
    if dry_run:
        payload = prepared.payload.decode("ascii")
        planned = DryRun(prepared.content_hash, url, payload, len(prepared.payload))
        output.result(planned, lambda console: _show_plan(console, planned))
        output.note("nothing was signed or sent")
        return
    submitted = asyncio.run(_submit(settings, prepared, blocks_until_reveal))
    output.result(submitted, lambda console: _show(console, submitted))
    flags = "".join(f" {flag}" for flag in choice.chain_flags())
    output.note(f"next: `cacheon chain-status {submitted.id} --watch{flags}`")


async def _submit(settings: Settings, prepared: Prepared, reveal_in_blocks: int) -> Submitted:
    from chain.client import ChainClient
    from chain.wallet import load_hotkey

    chain = settings.chain
    signer = load_hotkey(chain.wallet_path, chain.wallet, chain.hotkey)
    async with ChainClient.from_settings(chain) as client:
        await client.probe()
        receipt = await commit(
            client, signer, prepared, netuid=chain.netuid, profile=settings.profile, reveal_in_blocks=reveal_in_blocks
        )
    return Submitted(
        id=submission_id(signer.ss58_address, prepared.content_hash),
        content_hash=prepared.content_hash,
        url=prepared.url,
        hotkey=signer.ss58_address,
        netuid=chain.netuid,
        extrinsic_hash=receipt.extrinsic_hash,
        block=receipt.block.number,
        reveal_round=receipt.reveal_round,
        reveal_block=receipt.block.number + reveal_in_blocks,
    )


def _show_plan(console: Console, planned: DryRun) -> None:
    rows = [
        ("content hash", planned.content_hash),
        ("payload", planned.payload),
        ("bytes", str(planned.payload_bytes)),
    ]
    facts(console, rows)


def _show(console: Console, submitted: Submitted) -> None:
    rows = [
        ("id", submitted.id),
        ("content hash", submitted.content_hash),
        ("committed in", f"block {submitted.block}"),
        ("opens about", f"block {submitted.reveal_block} (beacon round {submitted.reveal_round})"),
        ("extrinsic", submitted.extrinsic_hash),
    ]
    facts(console, rows)
