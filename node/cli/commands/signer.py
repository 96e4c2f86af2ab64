"""`signer run`: hold a hotkey in a process of its own.

Invariants: those of `node.cli.commands.miner`.
"""

from __future__ import annotations

from typing import Annotated

import typer

from node.cli import options, panels
from node.cli.options import ChainChoice

signer_app = typer.Typer(no_args_is_help=True, help="Hold a hotkey in a process of its own.")


def signer_run(  # noqa: PLR0913 - one parameter per option
    socket: Annotated[str, typer.Option("--socket", metavar="FILE", help="Unix socket to listen at.")],
    allow_uid: Annotated[
        list[int] | None,
        typer.Option(
            "--allow-uid",
            metavar="N",
            help="User id that may ask as well; may be repeated. Default: this user only.",
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
) -> int:
    """Hold a hotkey and sign what a validator node needs, over a unix socket, until told to stop.

    It signs weights, weight commits and commitments of one subnet, in extrinsics that it frames itself from the
    metadata of its own chain connection, and nothing else. The node is pointed at it with `chain.signer_socket`.
    """
    from node.cli.actions.signer_run import run

    endpoints = tuple(endpoint) if endpoint else None
    choice = ChainChoice(config, network, endpoints, netuid, wallet, hotkey, wallet_path)
    return run(socket, tuple(allow_uid or ()), choice)


def register(app: typer.Typer) -> None:
    """Add the group to `app`."""
    signer_app.command("run")(signer_run)
    app.add_typer(signer_app, name="signer", rich_help_panel=panels.OPERATOR)


@signer_app.callback()
def _group() -> None:
    """Hold a hotkey in a process of its own."""
