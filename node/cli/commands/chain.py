"""What a miner packs, commits and follows a bundle with.

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
from node.cli.commands import publish
from node.cli.options import ChainChoice


def chain_package(
    bundle: options.Bundle,
    out: Annotated[
        str | None,
        typer.Option(
            "--out", metavar="FILE", help="Archive to write. Default: ./<content hash>.tar.gz", show_default=False
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Pack a bundle into the archive that a validator fetches, and print its content hash.

    The same tree always gives the same bytes. Every file that the hash covers is listed.
    """
    from node.cli.actions.package import run

    run(bundle, out, as_json=json)


def chain_submit(  # noqa: PLR0913 - one parameter per option
    bundle: options.Bundle,
    url: Annotated[str, typer.Option("--url", metavar="URL", help="Where validators fetch the packed archive.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print hash and payload; sign and send nothing.")] = False,
    blocks_until_reveal: Annotated[
        int,
        typer.Option("--blocks-until-reveal", metavar="N", min=2, help="Blocks until the chain opens the commitment."),
    ] = 10,
    pay: Annotated[bool, typer.Option("--pay", help="Pay the evaluation cost from the wallet's coldkey.")] = False,
    payment_block: Annotated[
        int | None,
        typer.Option(
            "--payment-block", metavar="N", min=1, help="Block of a payment made before.", show_default=False
        ),
    ] = None,
    payment_index: Annotated[
        int | None,
        typer.Option(
            "--payment-index", metavar="N", min=0, help="Its extrinsic's position in that block.", show_default=False
        ),
    ] = None,
    password_env: Annotated[
        str | None,
        typer.Option(
            "--password-env",
            metavar="NAME",
            help="Environment variable that holds the coldkey's password.",
            show_default=False,
        ),
    ] = None,
    password_file: Annotated[
        str | None,
        typer.Option(
            "--password-file", metavar="FILE", help="File that holds the coldkey's password.", show_default=False
        ),
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(
            "--state",
            metavar="DIR",
            help="Where payments are remembered. Default: the user's state folder.",
            show_default=False,
        ),
    ] = None,
    wallet: options.Wallet = None,
    hotkey: options.Hotkey = None,
    wallet_path: options.WalletPath = None,
    network: options.Network = None,
    endpoint: options.Endpoint = None,
    netuid: options.Netuid = None,
    config: options.Config = None,
    json: options.Json = False,
) -> None:
    """Commit a bundle's content hash and URL to the chain under a timelock.

    The tree is hashed again and refused if a validator would refuse it. The printed id is what `chain-status` follows.
    With --pay the evaluation cost is paid first, once: when anything fails, run the same command again.
    """
    from node.cli.actions.submit import Request, run
    from node.cli.paying import Wish

    endpoints = tuple(endpoint) if endpoint else None
    choice = ChainChoice(config, network, endpoints, netuid, wallet, hotkey, wallet_path)
    wish = Wish(pay, payment_block, payment_index, state, password_env, password_file)
    run(Request(bundle, url, choice, wish, blocks_until_reveal), dry_run=dry_run, as_json=json)


def chain_status(  # noqa: PLR0913 - one parameter per option
    identifier: Annotated[
        str | None,
        typer.Argument(
            metavar="ID",
            help="Id printed by chain-submit, or a content hash. Default: everything of the hotkey.",
            show_default=False,
        ),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Follow until every listed submission is decided.")] = False,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout", metavar="SECONDS", min=0.0, help="Stop watching after this long.", show_default=False
        ),
    ] = None,
    node: Annotated[
        str | None,
        typer.Option(
            "--node", metavar="URL", help="Pages of a node (its `http.listen`): adds its view.", show_default=False
        ),
    ] = None,
    hotkey: Annotated[
        str | None,
        typer.Option(
            "--hotkey",
            "--wallet-hotkey",
            metavar="NAME|SS58",
            help="Hotkey name in the wallet, or an address.",
            envvar="BT_WALLET_HOTKEY",
            show_default=False,
        ),
    ] = None,
    node_state: Annotated[
        str | None,
        typer.Option(
            "--node-state",
            metavar="DIR",
            help="State folder of a node on this machine: adds its view.",
            show_default=False,
        ),
    ] = None,
    wallet: options.Wallet = None,
    wallet_path: options.WalletPath = None,
    network: options.Network = None,
    endpoint: options.Endpoint = None,
    netuid: options.Netuid = None,
    config: options.Config = None,
    json: options.Json = False,
) -> int:
    """Show where submissions stand: sealed, revealed, and, when a node is named, each of its states and the verdict.

    Watching can be stopped and taken up again at any time. With `--watch --json` every change is one line, and the last
    line is the result. Exit code 7 while something is pending or nothing is known, else that of the newest verdict: 0
    for a crown, 3 for a rejection. Without a node the reveal is the end.
    """
    from node.cli.actions.chain_status import Watching, run

    endpoints = tuple(endpoint) if endpoint else None
    choice = ChainChoice(config, network, endpoints, netuid, wallet, hotkey, wallet_path)
    return run(identifier, choice, Watching(node, node_state, watch, timeout), as_json=json)


def register(app: typer.Typer) -> None:
    """Add these commands to `app`, in the order in which help lists them."""
    app.command("chain-package", rich_help_panel=panels.MINER)(chain_package)
    publish.register(app)
    app.command("chain-submit", rich_help_panel=panels.MINER)(chain_submit)
    app.command("chain-status", rich_help_panel=panels.MINER)(chain_status)
