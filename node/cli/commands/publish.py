"""`chain-publish`: upload a bundle to an S3-compatible object store.

Invariants: those of `node.cli.commands.miner`.
"""

from __future__ import annotations

from typing import Annotated

import typer

from node.cli import options, panels
from node.cli.options import ChainChoice


def chain_publish(  # noqa: PLR0913 - one parameter per option
    bundle: options.Bundle,
    bucket: Annotated[str, typer.Option("--bucket", metavar="NAME", help="Bucket of the object store.")],
    endpoint_url: Annotated[
        str,
        typer.Option(
            "--endpoint-url",
            metavar="URL",
            help="The store, when it is not Amazon's. Default: as the AWS files have it.",
            show_default=False,
        ),
    ] = "",
    prefix: Annotated[
        str, typer.Option("--prefix", metavar="PATH", help="Folder in the bucket.")
    ] = "cacheon/miner-bundles",
    public_url: Annotated[
        str,
        typer.Option(
            "--public-url",
            metavar="URL",
            help="Address under which the bucket is read. Default: its own.",
            show_default=False,
        ),
    ] = "",
    region: Annotated[
        str,
        typer.Option(
            "--region",
            metavar="NAME",
            help="Region of the bucket. Default: as the AWS files have it.",
            show_default=False,
        ),
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print key and URL; upload nothing.")] = False,
    network: options.Network = None,
    config: options.Config = None,
    json: options.Json = False,
) -> None:
    """Upload a bundle's archive to an S3-compatible store, and fetch it again as a validator does.

    The key is the content hash. An archive that is there already is not uploaded again, and nothing is ever replaced.
    Credentials come from the AWS environment variables and files.
    """
    from node.cli.actions.publish import Wish, run
    from node.object_store import Place

    wish = Wish(Place(bucket, endpoint_url, region, public_url), prefix, dry_run)
    run(bundle, wish, ChainChoice(config, network), as_json=json)


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("chain-publish", rich_help_panel=panels.MINER)(chain_publish)
