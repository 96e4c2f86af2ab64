"""What a miner makes and tries a bundle with: `demo`, `init`, `scan`, `verify`, `bench`.

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


def scan(bundle: options.BundleOrArchive, json: options.Json = False) -> int:
    """Find everything a validator would refuse about a bundle, with file and line.

    Runs the validator's own intake code. Exit code 3 when there is something to mend.
    """
    from node.cli.actions.scan import run

    return run(bundle, as_json=json)


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


def register(app: typer.Typer) -> None:
    """Add these commands to `app`, in the order in which help lists them."""
    app.command(rich_help_panel=panels.MINER)(demo)
    app.command(rich_help_panel=panels.MINER)(init)
    app.command(rich_help_panel=panels.MINER)(scan)
    app.command(rich_help_panel=panels.MINER)(verify)
    app.command(rich_help_panel=panels.MINER)(bench)
