"""For anybody: what a validator's weights were derived from, checked against the chain.

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
from node.cli.options import ChainChoice

ledger_app = typer.Typer(no_args_is_help=True, help="Check what a validator's weights were derived from.")


def ledger_verify(
    file: Annotated[
        str | None,
        typer.Argument(metavar="FILE", help="A ledger document. Default: fetch the committed one.", show_default=False),
    ] = None,
    hotkey: Annotated[
        str | None,
        typer.Option(
            "--hotkey", metavar="ADDRESS", help="The validator (SS58); its commitment is read from the chain.",
            show_default=False,
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            "--key", metavar="HEX", help="Without --hotkey: the receipt key that must have signed FILE.",
            show_default=False,
        ),
    ] = None,
    config: options.Config = None,
    network: options.Network = None,
    endpoint: options.Endpoint = None,
    netuid: options.Netuid = None,
    json: options.Json = False,
) -> None:
    """Check a validator's crown ledger: on the chain, signed, and consistent from the first crown to the last.

    Reads the hotkey's commitment, fetches the document it names (or takes FILE), and says what that proves.
    """
    from node.cli.actions.ledger_verify import run

    choice = ChainChoice(config=config, network=network, endpoints=tuple(endpoint) if endpoint else None, netuid=netuid)
    run(file, hotkey, key, choice, as_json=json)


def register(app: typer.Typer) -> None:
    """Add the commands of this group to `app`."""
    ledger_app.command("verify")(ledger_verify)
    app.add_typer(ledger_app, name="ledger", rich_help_panel=panels.LOOKUP)
