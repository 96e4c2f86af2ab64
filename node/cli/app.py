"""The command tree: names, options and help texts. Bodies live in `node.cli.actions` and are imported when they run.

Invariants
1. Nothing here imports torch, the chain SDK, the store or a room other than `config`.
2. A function's docstring is its help text; the first sentence is what the overview shows.
3. A command returns its exit code, or None for success; failures are raised and rendered at the boundary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from node.cli import options
from node.cli.options import ChainChoice

EPILOGUE = """\
Exit codes: 0 done; 1 defect of ours; 2 command line or settings; 3 rejected (FAIL); 4 chain or wallet; \
5 network, try again; 6 this machine is not ready; 7 pending or not found; 130 interrupted.

Standard output carries data, standard error carries talk. `cacheon explain CODE` explains any error."""

MINER, OPERATOR, LOOKUP = "For miners", "For operators", "Look things up"

app = typer.Typer(
    name="cacheon", no_args_is_help=True, epilog=EPILOGUE, context_settings={"help_option_names": ["-h", "--help"]}
)
node_app = typer.Typer(no_args_is_help=True, help="Run the validator node and ask how it is doing.")
config_app = typer.Typer(no_args_is_help=True, help="Look at the settings.")
receipt_app = typer.Typer(no_args_is_help=True, help="Check signed receipts.")
app.add_typer(node_app, name="node", rich_help_panel=OPERATOR)
app.add_typer(config_app, name="config", rich_help_panel=OPERATOR)
app.add_typer(receipt_app, name="receipt", rich_help_panel=LOOKUP)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"cacheon {version('cacheon')}")
        raise typer.Exit


@app.callback()
def root(
    debug: Annotated[bool, typer.Option("--debug", help="Print tracebacks of defects.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Validator node of a subnet that pays miners for faster GPU kernels, and its miners' tools.

    New here? `cacheon demo` shows the whole system at work on this machine in about a minute.
    """


@app.command(rich_help_panel=MINER)
def demo(
    state: Annotated[
        str | None,
        typer.Option(
            "--state",
            metavar="DIR",
            help="Work here, and resume what is there. Default: a fresh temporary folder.",
            show_default=False,
        ),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the temporary folder afterwards.")] = False,
    json: options.Json = False,
) -> int:
    """Show the whole system at work on this machine: a chain, six miners, one validator, confirmed weights.

    Needs no network, no wallet and no GPU. Exit code 0 only when every submission got the verdict it deserves.
    """
    from node.cli.actions.demo import run

    return run(state, keep=keep, as_json=json)


@app.command(rich_help_panel=MINER)
def init(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="Folder to make; one that exists has to be empty.")],
    target: Annotated[
        str, typer.Option("--target", metavar="T", help="What the bundle competes for; `cacheon targets` lists it.")
    ],
    bundle_id: Annotated[
        str | None,
        typer.Option("--bundle-id", metavar="ID", help="Default: from the folder's name.", show_default=False),
    ] = None,
    dtype: Annotated[
        list[str] | None,
        typer.Option(
            "--dtype",
            metavar="NAME",
            help="Take calls of this dtype; may be repeated. Default: all.",
            show_default=False,
        ),
    ] = None,
    architecture: Annotated[
        list[str] | None,
        typer.Option(
            "--architecture",
            metavar="NAME",
            help="Run on this architecture; may be repeated. Default: all.",
            show_default=False,
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Make a new bundle for a target: correct kernels in plain torch, to be made faster.

    It passes `cacheon scan` as it is; where this release cannot run the target yet, FEATURE_NOT_SERVED is all it finds.
    """
    from node.cli.actions.init import run

    dtypes, architectures = tuple(dtype or ()), tuple(architecture or ())
    run(folder, target, bundle_id=bundle_id, dtypes=dtypes, architectures=architectures, as_json=json)


@app.command(rich_help_panel=MINER)
def scan(bundle: options.BundleOrArchive, json: options.Json = False) -> int:
    """Find everything a validator would refuse about a bundle, with file and line.

    Runs the validator's own intake code. Exit code 3 when there is something to mend.
    """
    from node.cli.actions.scan import run

    return run(bundle, as_json=json)


@app.command(rich_help_panel=MINER)
def verify(  # noqa: PLR0913 - one parameter per option
    bundle: options.BundleOrArchive,
    slot: Annotated[
        str | None,
        typer.Option("--slot", metavar="SLOT", help="Insist that the bundle serves this.", show_default=False),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option("--dtype", metavar="NAME", help="Call in this dtype. Default: the arena's.", show_default=False),
    ] = None,
    device: Annotated[str, typer.Option("--device", metavar="NAME", help="Where to run: cpu.")] = "cpu",
    seed: Annotated[
        str | None,
        typer.Option("--seed", metavar="TEXT", help="Repeat a run's shapes and inputs.", show_default=False),
    ] = None,
    shapes: Annotated[
        str | None,
        typer.Option(
            "--shapes",
            metavar="LIST",
            help="Only these: `num_tokens=7,d=1024;num_tokens=512,d=4096`.",
            show_default=False,
        ),
    ] = None,
    speed: Annotated[bool, typer.Option("--speed", help="Measure shortly against the incumbent as well.")] = False,
    arena: options.Arena = None,
    target: options.Target = None,
    against: options.Against = None,
    config: options.Config = None,
    json: options.Json = False,
) -> int:
    """Run a validator's screens on a bundle: static, build, abi, correctness, graph, and speed if asked for.

    The validator's own code, sandbox and codes, and every case with its worst element. Shapes and inputs at a validator
    are others: what passes here is no promise there. Exit code 3 when a screen rejects the bundle, 7 when this machine
    could not tell.
    """
    from node.cli.actions.verify import Cases, run
    from node.cli.bench_stand import Choice

    cases = Cases(slot, dtype, device, seed, shapes, speed)
    return run(bundle, Choice(arena, target, against, config), cases, as_json=json)


@app.command(rich_help_panel=MINER)
def bench(
    bundle: options.BundleOrArchive,
    arena: options.Arena = None,
    target: options.Target = None,
    against: options.Against = None,
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="DIR", help="Keep the attempt file here, for `regrade`.", show_default=False),
    ] = None,
    config: options.Config = None,
    json: options.Json = False,
) -> int:
    """Measure a bundle as a validator does: one whole attempt on this machine, graded, with its samples as a plot.

    A validator wants two such attempts on its own machine, with seeds of its own: a PASS here is no promise there. Exit
    code 0 for PASS, 3 for FAIL, 7 for RETRY.
    """
    from node.cli.actions.bench import run
    from node.cli.bench_stand import Choice

    return run(bundle, Choice(arena, target, against, config), out, as_json=json)


@app.command("chain-package", rich_help_panel=MINER)
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


@app.command("chain-submit", rich_help_panel=MINER)
def chain_submit(  # noqa: PLR0913 - one parameter per option
    bundle: options.Bundle,
    url: Annotated[str, typer.Option("--url", metavar="URL", help="Where validators fetch the packed archive.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print hash and payload; sign and send nothing.")] = False,
    blocks_until_reveal: Annotated[
        int,
        typer.Option("--blocks-until-reveal", metavar="N", min=2, help="Blocks until the chain opens the commitment."),
    ] = 10,
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
    """
    from node.cli.actions.submit import run

    endpoints = tuple(endpoint) if endpoint else None
    choice = ChainChoice(config, network, endpoints, netuid, wallet, hotkey, wallet_path)
    run(bundle, url, choice, blocks_until_reveal=blocks_until_reveal, dry_run=dry_run, as_json=json)


@app.command("chain-status", rich_help_panel=MINER)
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
    hotkey: Annotated[
        str | None,
        typer.Option(
            "--hotkey", metavar="NAME|SS58", help="Hotkey name in the wallet, or an address.", show_default=False
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
    """Show where submissions stand: sealed, revealed, and, with a node's state folder, their verdict.

    With `--watch --json` every change is one line. Exit code 7 while something is still pending or nothing is known.
    """
    from node.cli.actions.chain_status import run

    endpoints = tuple(endpoint) if endpoint else None
    choice = ChainChoice(config, network, endpoints, netuid, wallet, hotkey, wallet_path)
    return run(identifier, choice, node_state=node_state, watch=watch, as_json=json)


@app.command(rich_help_panel=OPERATOR)
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


@app.command(rich_help_panel=OPERATOR)
def doctor(config: options.Config = None, json: options.Json = False) -> int:
    """Look at this machine, and with -c at a node's settings, and say what keeps the node from working.

    Each line is PASS, WARN, FAIL or SKIP, with what was seen and the fix. Exit code 6 exactly when a node would refuse.
    """
    from node.cli.actions.doctor import run

    return run(config, as_json=json)


@node_app.command("run")
def node_run(
    config: Annotated[str, typer.Option("--config", "-c", metavar="FILE", help="Settings file (TOML).")],
) -> int:
    """Run the validator node until it is told to stop (SIGTERM or Ctrl-C)."""
    from node.cli.actions.node_run import run

    return run(config)


@node_app.command("status")
def node_status(config: options.Config = None, state: options.State = None, json: options.Json = False) -> None:
    """Show what the node knows: chain position, submissions by state, crowns, the last weights.

    Reads the state folder, so it works while the node runs and after it stopped.
    """
    from node.cli.actions.node_status import run

    run(config, state, as_json=json)


@app.command(rich_help_panel=LOOKUP)
def regrade(
    attempt: Annotated[
        str, typer.Argument(metavar="ATTEMPT", help="An attempt file, or its digest with --state or -c.")
    ],
    arena: Annotated[
        str | None,
        typer.Option(
            "--arena", metavar="ID|FILE", help="Arena document. Default: the one the attempt names.", show_default=False
        ),
    ] = None,
    config: options.Config = None,
    state: options.State = None,
    json: options.Json = False,
) -> int:
    """Grade an attempt file again, offline: the same evidence always gives the same verdict.

    Exit code 0 for PASS, 3 for FAIL, 7 for RETRY.
    """
    from node.cli.actions.regrade import run

    return run(attempt, arena, config=config, state=state, as_json=json)


@app.command(rich_help_panel=LOOKUP)
def explain(
    code: Annotated[
        str | None, typer.Argument(metavar="CODE", help="An error code. Default: list all.", show_default=False)
    ] = None,
    json: options.Json = False,
) -> None:
    """Explain an error code: what happened, whose turn it is, what to do."""
    from node.cli.actions.explain import run

    run(code, as_json=json)


@app.command(rich_help_panel=LOOKUP)
def targets(json: options.Json = False) -> None:
    """List the reward units that a bundle can compete for."""
    from node.cli.actions.targets import run

    run(as_json=json)


@app.command(rich_help_panel=LOOKUP)
def slots(
    slot: Annotated[
        str | None, typer.Argument(metavar="SLOT", help="A slot's id. Default: list all.", show_default=False)
    ] = None,
    json: options.Json = False,
) -> None:
    """Describe the calls that kernels serve: arguments, dtypes, what a row may say, which targets hold them."""
    from node.cli.actions.slots import run

    run(slot, as_json=json)


@config_app.command("show")
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


@receipt_app.command("verify")
def receipt_verify(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A receipt (DSSE envelope).")],
    key: Annotated[str, typer.Option("--key", metavar="HEX", help="Public receipt key that must have signed.")],
    json: options.Json = False,
) -> None:
    """Check the signature and form of a receipt and print what it says."""
    from node.cli.actions.receipt import run

    run(file, key, as_json=json)


def command_tree() -> Any:
    """Return the parser built from the declarations above."""
    return typer.main.get_command(app)


def command_name(tree: Any, arguments: Sequence[str]) -> str:
    """Return the command that `arguments` call, such as `node status`; "" when they call none."""
    words: list[str] = []
    for word in arguments:
        commands = getattr(tree, "commands", {})
        if word in commands:
            words.append(word)
            tree = commands[word]
        elif not word.startswith("-"):
            break
    return " ".join(words)
