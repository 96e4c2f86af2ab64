"""For who runs a chain or a node: `devnet`, `doctor`, `node ...`, `config ...`.

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
from node.cli.commands import signer

node_app = typer.Typer(no_args_is_help=True, help="Run the validator node and ask how it is doing.")
config_app = typer.Typer(no_args_is_help=True, help="Look at the settings.")


def devnet(
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=0, max=65535, help="Loopback port; 0 picks a free one.")
    ] = 9944,
    block_time: Annotated[
        float,
        typer.Option(
            "--block-time", metavar="SECONDS", min=0.0, help="Time between blocks; 0 = a block per extrinsic."
        ),
    ] = 0.25,
    finality_lag: Annotated[
        int, typer.Option("--finality-lag", metavar="N", min=0, help="Blocks between the best and the finalized head.")
    ] = 2,
    state: Annotated[
        str | None,
        typer.Option("--state", metavar="FILE", help="Keep the chain here across restarts.", show_default=False),
    ] = None,
    genesis: Annotated[
        str | None,
        typer.Option(
            "--genesis", metavar="FILE", help="Accounts, subnets and hotkeys of block 0 (JSON).", show_default=False
        ),
    ] = None,
) -> int:
    """Serve a local chain that the unmodified Bittensor SDK talks to (loopback only).

    Serves real subtensor metadata: signed extrinsics, timelocked commitments, commit-reveal weights, the metagraph.
    Prints its URL once it listens.
    """
    from node.cli.actions.devnet import run

    return run(port=port, block_time=block_time, finality_lag=finality_lag, state=state, genesis=genesis)


def doctor(
    config: options.Config = None,
    patience: Annotated[
        float, typer.Option(min=1.0, max=100.0, help="Give every check so many times its deadline, on a busy machine.")
    ] = 1.0,
    json: options.Json = False,
) -> int:
    """Look at this machine, and with -c at a node's settings, and say what keeps the node from working.

    Each line is PASS, WARN, FAIL or SKIP, with what was seen and the fix. Exit code 6 exactly when a node would refuse.
    """
    from node.cli.actions.doctor import run

    return run(config, as_json=json, patience=patience)


def node_run(
    config: Annotated[str, typer.Option("--config", "-c", metavar="FILE", help="Settings file (TOML).")],
) -> int:
    """Run the validator node until it is told to stop (SIGTERM or Ctrl-C)."""
    from node.cli.actions.node_run import run

    return run(config)


def node_status(config: options.Config = None, state: options.State = None, json: options.Json = False) -> None:
    """Show what the node knows: chain position, submissions by state, crowns, the last weights.

    Reads the state folder, so it works while the node runs and after it stopped.
    """
    from node.cli.actions.node_status import run

    run(config, state, as_json=json)


def config_show(
    config: options.Config = None,
    origin: Annotated[bool, typer.Option("--origin", help="Say which layer set each key.")] = False,
    json: options.Json = False,
) -> None:
    """Print the resolved settings, as a settings file.

    Layers, later ones win: defaults, profile, file, environment (CACHEON_SECTION__KEY), flags.
    """
    from node.cli.actions.config_show import run

    run(config, origin=origin, as_json=json)


def register(app: typer.Typer) -> None:
    """Add these commands to `app`, in the order in which help lists them."""
    app.command(rich_help_panel=panels.OPERATOR)(devnet)
    app.command(rich_help_panel=panels.OPERATOR)(doctor)
    node_app.command("run")(node_run)
    node_app.command("status")(node_status)
    config_app.command("show")(config_show)
    app.add_typer(node_app, name="node", rich_help_panel=panels.OPERATOR)
    signer.register(app)
    app.add_typer(config_app, name="config", rich_help_panel=panels.OPERATOR)
