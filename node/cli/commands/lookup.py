"""Commands that look something up or check it, for anybody.

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
from node.cli.commands import ledger, receipts, weights


def regrade(
    attempt: Annotated[
        str, typer.Argument(metavar="ATTEMPT", help="An attempt file, or its digest with --state or -c.")
    ],
    reproduction: Annotated[
        str | None,
        typer.Argument(
            metavar="REPRODUCTION", help="A second attempt: is it an independent repetition, and what do both earn?",
            show_default=False,
        ),
    ] = None,
    arena: Annotated[
        str | None,
        typer.Option(
            "--arena", metavar="ID|FILE", help="Arena document. Default: the one the attempt names.", show_default=False
        ),
    ] = None,
    reviewed: Annotated[
        bool, typer.Option("--reviewed", help="Grade as after a review: no speed is too good to be believed.")
    ] = False,
    config: options.Config = None,
    state: options.State = None,
    json: options.Json = False,
) -> int:
    """Grade an attempt file again, offline: the same evidence always gives the same verdict.

    Exit code 0 for PASS, 3 for FAIL and for two attempts that are no pair, 7 for RETRY.
    """
    from node.cli.actions.regrade import Source, run

    return run(attempt, reproduction, Source(arena, config, state, reviewed), as_json=json)


def explain(
    code: Annotated[
        str | None, typer.Argument(metavar="CODE", help="An error code. Default: list all.", show_default=False)
    ] = None,
    json: options.Json = False,
) -> None:
    """Explain an error code: what happened, whose turn it is, what to do."""
    from node.cli.actions.explain import run

    run(code, as_json=json)


def targets(json: options.Json = False) -> None:
    """List the reward units that a bundle can compete for."""
    from node.cli.actions.targets import run

    run(as_json=json)


def slots(
    slot: Annotated[
        str | None, typer.Argument(metavar="SLOT", help="A slot's id. Default: list all.", show_default=False)
    ] = None,
    json: options.Json = False,
) -> None:
    """Describe the calls that kernels serve: arguments, dtypes, what a row may say, which targets hold them."""
    from node.cli.actions.slots import run

    run(slot, as_json=json)


def register(app: typer.Typer) -> None:
    """Add these commands to `app`, in the order in which help lists them."""
    app.command(rich_help_panel=panels.LOOKUP)(regrade)
    app.command(rich_help_panel=panels.LOOKUP)(explain)
    app.command(rich_help_panel=panels.LOOKUP)(targets)
    app.command(rich_help_panel=panels.LOOKUP)(slots)
    receipts.register(app)
    ledger.register(app)
    weights.register(app)
