"""`cacheon chain-cost`: what a submission costs now, and what it would be paid from."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from config.errors import ChainError, WalletError
from config.settings import Settings
from node.cli.options import ChainChoice
from node.cli.output import Output, facts, tao_text
from node.cli.resolve import require_subnet_named, resolve

if TYPE_CHECKING:
    from rich.console import Console


class Cost(msgspec.Struct, frozen=True):
    """The cost as `--json` shows it. Amounts are rao. `next_block` is the first block with another price, null when
    none is announced; `destination` is null for a subnet without owner; `payer` and `spendable_rao` are null without a
    wallet."""

    netuid: int
    block: int
    amount_rao: int
    quoted_until: int
    next_block: int | None
    next_amount_rao: int | None
    window_blocks: int
    destination: str | None
    payer: str | None
    spendable_rao: int | None


def run(choice: ChainChoice, *, as_json: bool) -> None:
    """Show the cost. Raises `ConfigurationError`, `NetworkError` and `ChainError` (SUBNET_NOT_FOUND)."""
    output = Output("chain-cost", as_json=as_json)
    settings = require_subnet_named(resolve(choice.config, choice.overrides()).settings)
    cost, why = asyncio.run(_read(settings))
    output.result(cost, lambda console: _show(console, cost))
    if why:
        output.note(why)


async def _read(settings: Settings) -> tuple[Cost, str]:
    from chain.client import ChainClient
    from chain.coldkey import coldkey_address
    from chain.paying import owner_coldkey, spendable_rao

    chain, prices = settings.chain, settings.evaluation_cost
    payer: str | None = None
    destination: str | None = None
    why = ""
    try:
        payer = coldkey_address(chain.wallet_path, chain.wallet)
    except WalletError as error:
        why = f"no balance is shown: {error.message}"
    async with ChainClient.from_settings(chain) as client:
        head = await client.finalized_head()
        try:
            destination = await owner_coldkey(client, chain.netuid, head)
        except ChainError as error:
            if error.code != "SUBNET_OWNERLESS":
                raise
        spendable = None if payer is None else await spendable_rao(client, payer, head)
    change = prices.next_change(head.number)
    cost = Cost(
        netuid=chain.netuid, block=head.number, amount_rao=prices.price_at(head.number),
        quoted_until=prices.quoted_until(head.number), next_block=change,
        next_amount_rao=None if change is None else prices.price_at(change), window_blocks=prices.window_blocks,
        destination=destination, payer=payer, spendable_rao=spendable,
    )
    return cost, why


def _price(amount_rao: int) -> str:
    return tao_text(amount_rao) if amount_rao else "nothing"


def _show(console: Console, cost: Cost) -> None:
    rows = [
        ("a submission costs", _price(cost.amount_rao)),
        ("the quote holds", f"from block {cost.block} to block {cost.quoted_until}"),
    ]
    if cost.next_block is not None and cost.next_amount_rao is not None:
        rows.append(("then", f"{_price(cost.next_amount_rao)} from block {cost.next_block}"))
    rows += [
        ("paid to", cost.destination or f"nobody: subnet {cost.netuid} has no owner"),
        ("counts for reveals", f"up to {cost.window_blocks} blocks after the payment"),
    ]
    if cost.payer is not None and cost.spendable_rao is not None:
        rows.append(("your coldkey", f"{cost.payer}: {tao_text(cost.spendable_rao)}"))
    facts(console, rows)
