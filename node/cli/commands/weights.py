"""For operators: the weights, what they follow from, what the chain shows, and what would be signed next.

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

weights_app = typer.Typer(no_args_is_help=True, help="Look at the weights and at what would be published next.")

Validator = Annotated[
    str | None,
    typer.Option(
        "--hotkey", metavar="ADDRESS", help="The validator (SS58). Default: the node's, as its state folder knows it.",
        show_default=False,
    ),
]


def weights_show(
    config: options.Config = None,
    state: options.State = None,
    network: options.Network = None,
    endpoint: options.Endpoint = None,
    offline: Annotated[bool, typer.Option("--offline", help="Read the state folder only.")] = False,
    json: options.Json = False,
) -> None:
    """Show the last decided weights: who gets what and why, what the chain holds, and every publication's fate.

    Reads the state folder, so it works while the node runs and after it stopped; with endpoints also the chain.
    """
    from node.cli.actions.weights import show

    choice = ChainChoice(config=config, network=network, endpoints=tuple(endpoint) if endpoint else None)
    show(choice, state, offline=offline, as_json=json)


def weights_plan(
    config: options.Config = None,
    state: options.State = None,
    hotkey: Validator = None,
    network: options.Network = None,
    endpoint: options.Endpoint = None,
    json: options.Json = False,
) -> None:
    """Work out what would be signed next, and the difference to the chain, without a wallet and without a trace.

    The same code as the node's: a reason to wait names what there is, what is needed and the block at which it can
    work.
    """
    from node.cli.actions.weights import plan

    choice = ChainChoice(config=config, network=network, endpoints=tuple(endpoint) if endpoint else None)
    plan(choice, state, hotkey, as_json=json)


Earner = Annotated[
    str | None,
    typer.Option("--hotkey", metavar="ADDRESS", help="Explain this hotkey only (SS58).", show_default=False),
]
Epoch = Annotated[
    int | None, typer.Option("--epoch", metavar="N", help="Default: the newest one.", show_default=False)
]


def weights_explain(
    config: options.Config = None,
    state: options.State = None,
    hotkey: Earner = None,
    epoch: Epoch = None,
    json: options.Json = False,
) -> None:
    """Say why each hotkey gets what it gets: crowns, credited speed-up, age, decay, shares, what burns and why.

    Derived from signed receipts alone: --state takes a node's state folder or one that `receipt export` wrote.
    """
    from node.cli.actions.weights_explain import run

    run(config, state, hotkey, epoch, as_json=json)


def weights_recompute(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="Published receipts, as `receipt export` writes them.")],
    hotkey: Annotated[
        str | None,
        typer.Option(
            "--hotkey", metavar="ADDRESS", help="The validator whose they must be (SS58).", show_default=False
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            "--key", metavar="HEX", help="Receipt key to believe. Default: those that the hotkey vouches for.",
            show_default=False,
        ),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy", metavar="HEX", show_default=False,
            help="Digest of the policy that must have been used: half-life, burning, absence.",
        ),
    ] = None,
    epoch: Epoch = None,
    json: options.Json = False,
) -> None:
    """Reproduce a published weight vector, bit for bit, from receipts alone: offline, without a node or a chain.

    Walks from the vector to its crowns, their verdicts, and, where they are published, the attempt files, which are
    graded again. The first link that does not hold is the error.
    """
    from node.cli.actions.weights_recompute import run

    run(folder, hotkey, key, policy, epoch, as_json=json)


def register(app: typer.Typer) -> None:
    """Add the commands of this group to `app`."""
    weights_app.command("show")(weights_show)
    weights_app.command("plan")(weights_plan)
    weights_app.command("explain")(weights_explain)
    weights_app.command("recompute")(weights_recompute)
    app.add_typer(weights_app, name="weights", rich_help_panel=panels.OPERATOR)
