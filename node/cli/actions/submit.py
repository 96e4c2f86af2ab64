"""`cacheon chain-submit`: commit a bundle under a timelock, and pay the evaluation cost if asked to."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from config.errors import CacheonError
from config.settings import Settings
from node.cli.miner import Prepared, bundle_folder, commit, prepare, require_registration, submission_id
from node.cli.options import ChainChoice
from node.cli.output import Output, facts, tao_text
from node.cli.paying import (
    Paid,
    Plan,
    Wish,
    check_pointer,
    forget,
    is_due,
    pay,
    plan,
    require_payable,
    with_pointer,
    with_retry,
)
from node.cli.resolve import require_subnet_named, resolve

if TYPE_CHECKING:
    from rich.console import Console

    from chain.client import ChainClient
    from chain.signer import Signer


class DryRun(msgspec.Struct, frozen=True):
    """What would be committed, as `--json` shows it; `payload` is text, `payload_bytes` its length."""

    content_hash: str
    url: str
    payload: str
    payload_bytes: int
    dry_run: bool = True
    payment: Plan | None = None  # what --pay would do; the payload is that of a submission without payment


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
    payment: Paid | None = None  # what --pay paid


@dataclass(frozen=True)
class Request:
    """What the command line asks for."""

    bundle: str
    url: str
    choice: ChainChoice
    wish: Wish
    reveal_in_blocks: int


def run(request: Request, *, dry_run: bool, as_json: bool) -> None:
    """Commit a bundle, and pay for it if asked to; with `dry_run` only say what would be done."""
    output = Output("chain-submit", as_json=as_json)
    request.wish.check()
    settings = resolve(request.choice.config, request.choice.overrides()).settings
    folder = bundle_folder(request.bundle)
    prepared = prepare(folder, request.url, allow_loopback_http=settings.is_devnet)
    if request.wish.pay:
        require_payable(settings, prepared, folder)
    if request.wish.pay or not dry_run:
        require_subnet_named(settings)
    if dry_run:
        _plan(settings, prepared, request, output)
        return
    submitted = asyncio.run(_submit(settings, prepared, request, output))
    output.result(submitted, lambda console: _show(console, submitted))
    flags = "".join(f" {flag}" for flag in request.choice.chain_flags())
    output.note(f"next: `cacheon chain-status {submitted.id} --watch{flags}`")


def _plan(settings: Settings, prepared: Prepared, request: Request, output: Output) -> None:
    from chain.client import ChainClient

    async def ask() -> Plan:
        async with ChainClient.from_settings(settings.chain) as client:
            return await plan(client, settings, request.reveal_in_blocks)

    if request.wish.block is not None and request.wish.index is not None:
        prepared = with_pointer(
            prepared, request.wish.block, request.wish.index, allow_loopback_http=settings.is_devnet
        )
    payload = prepared.payload.decode("ascii")
    payment = asyncio.run(ask()) if request.wish.pay else None
    planned = DryRun(prepared.content_hash, request.url, payload, len(prepared.payload), payment=payment)
    output.result(planned, lambda console: _show_plan(console, planned))
    output.note("nothing was signed or sent")


async def _submit(settings: Settings, prepared: Prepared, request: Request, output: Output) -> Submitted:
    from chain.client import ChainClient
    from chain.wallet import load_hotkey

    chain, wish = settings.chain, request.wish
    signer = load_hotkey(chain.wallet_path, chain.wallet, chain.hotkey)
    hotkey = signer.ss58_address
    async with ChainClient.from_settings(chain) as client:
        await client.probe()
        paid = await _settle_payment(client, settings, prepared, signer, request, output)
        pointer = (paid.block, paid.index) if paid is not None else (wish.block, wish.index)
        if pointer[0] is not None and pointer[1] is not None:
            prepared = with_pointer(prepared, pointer[0], pointer[1], allow_loopback_http=settings.is_devnet)
        try:
            receipt = await commit(
                client, signer, prepared, netuid=chain.netuid, profile=settings.profile,
                reveal_in_blocks=request.reveal_in_blocks,
            )
        except CacheonError as error:
            if paid is None:
                raise
            raise with_retry(error, request.bundle, request.url, request.choice, paid.block, paid.index) from error
        if paid is not None:
            forget(settings, await client.genesis_hash(), hotkey, prepared.content_hash, wish)
    return Submitted(
        id=submission_id(hotkey, prepared.content_hash),
        content_hash=prepared.content_hash,
        url=prepared.url,
        hotkey=hotkey,
        netuid=chain.netuid,
        extrinsic_hash=receipt.extrinsic_hash,
        block=receipt.block.number,
        reveal_round=receipt.reveal_round,
        reveal_block=receipt.block.number + request.reveal_in_blocks,
        payment=paid,
    )


async def _settle_payment(
    client: ChainClient, settings: Settings, prepared: Prepared, signer: Signer, request: Request, output: Output
) -> Paid | None:
    """Pay if asked to and due, or look at the payment that was named; return what was paid."""
    wish, reveal_in_blocks = request.wish, request.reveal_in_blocks
    hotkey = signer.ss58_address
    if not wish.pay:
        await check_pointer(
            client, settings, prepared, hotkey, wish, output, reveal_in_blocks=reveal_in_blocks
        )
        if wish.block is None and await is_due(client, settings, reveal_in_blocks):
            output.note("a submission costs something now: without --pay only a credit of the hotkey admits this one")
        return None
    await require_registration(client, signer, settings.chain.netuid)
    if not await is_due(client, settings, reveal_in_blocks):
        output.note("nothing is due: nothing is paid")
        return None
    return await pay(client, settings, prepared, hotkey, wish, output, reveal_in_blocks=reveal_in_blocks)


def _show_plan(console: Console, planned: DryRun) -> None:
    rows = [
        ("content hash", planned.content_hash),
        ("payload", planned.payload),
        ("bytes", str(planned.payload_bytes)),
    ]
    if planned.payment is not None:
        payment = planned.payment
        rows += [
            ("would pay", f"{tao_text(payment.amount_rao)} to {payment.destination}"),
            ("out of", f"{tao_text(payment.spendable_rao)} of {payment.payer}"),
            ("price holds", f"from block {payment.block} to block {payment.quoted_until}"),
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
    if submitted.payment is not None:
        paid = submitted.payment
        rows.append(("paid", f"{tao_text(paid.amount_rao)} in block {paid.block}, extrinsic {paid.index}"))
    facts(console, rows)
