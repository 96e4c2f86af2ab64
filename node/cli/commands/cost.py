"""What a submission costs: `chain-cost` for miners, `node credits ...` for operators.

Invariants
1. Nothing here imports torch, the chain SDK, the store or a room other than `config`. Bodies are in `node.cli.actions`,
   imported when they run.
2. A function's docstring is its help text; the first sentence is what the overview shows.
3. A command returns its exit code, or None for success; failures are raised and rendered at the boundary.
"""

from __future__ import annotations

from typing import Annotated

import typer

from node.cli import options, panels
from node.cli.commands.operator import node_app
from node.cli.options import ChainChoice

credits_app = typer.Typer(no_args_is_help=True, help="Let miners submit without paying, one submission per credit.")


def chain_cost(
    wallet: options.Wallet = None,
    wallet_path: options.WalletPath = None,
    network: options.Network = None,
    endpoint: options.Endpoint = None,
    netuid: options.Netuid = None,
    config: options.Config = None,
    json: options.Json = False,
) -> None:
    """Show what a submission costs now, to whom it is paid, until when the quote holds, and your coldkey's balance.

    The price is that of the settings (`evaluation_cost`); the rest is read from the chain. Signs nothing.
    """
    from node.cli.actions.chain_cost import run

    endpoints = tuple(endpoint) if endpoint else None
    run(ChainChoice(config, network, endpoints, netuid, wallet, None, wallet_path), as_json=json)


def credits_grant(
    hotkey: Annotated[str, typer.Argument(metavar="HOTKEY", help="Address of the miner's hotkey.")],
    count: Annotated[int, typer.Option("--count", metavar="N", min=1, max=1000, help="How many credits.")] = 1,
    note: Annotated[
        str | None, typer.Option("--note", metavar="TEXT", help="Why, for the record.", show_default=False)
    ] = None,
    config: options.Config = None,
    state: options.State = None,
    json: options.Json = False,
) -> None:
    """Give a hotkey credits; each admits one submission that names no payment.

    Works while the node runs and when it does not.
    """
    from node.cli.actions.credits import grant

    grant(hotkey, count, note or "", config=config, state=state, as_json=json)


def credits_ls(
    hotkey: Annotated[
        str | None,
        typer.Argument(metavar="HOTKEY", help="Only this hotkey's. Default: everybody's.", show_default=False),
    ] = None,
    unspent: Annotated[bool, typer.Option("--unspent", help="Only those that can still be spent.")] = False,
    config: options.Config = None,
    state: options.State = None,
    json: options.Json = False,
) -> None:
    """List credits, oldest first: who has them, why, and which submission they admitted."""
    from node.cli.actions.credits import ls

    ls(hotkey or "", unspent=unspent, config=config, state=state, as_json=json)


def register(app: typer.Typer) -> None:
    """Add these commands to `app`, in the order in which help lists them."""
    app.command("chain-cost", rich_help_panel=panels.MINER)(chain_cost)
    credits_app.command("grant")(credits_grant)
    credits_app.command("ls")(credits_ls)
    node_app.add_typer(credits_app, name="credits")
