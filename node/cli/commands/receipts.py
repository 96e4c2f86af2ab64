"""For anybody: signed receipts, checked and handed on.

Invariants: those of `node.cli.commands.lookup`.
"""

from __future__ import annotations

from typing import Annotated

import typer

from node.cli import options, panels

receipt_app = typer.Typer(no_args_is_help=True, help="Check signed receipts, and hand them on.")


def receipt_verify(
    file: Annotated[
        str, typer.Argument(metavar="FILE|DIR", help="A receipt (DSSE envelope), or a folder of published receipts.")
    ],
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="HEX", help="Public receipt key that must have signed.", show_default=False),
    ] = None,
    binding: Annotated[
        str | None,
        typer.Option(
            "--binding", metavar="FILE", help="Key binding that names the key, instead of --key.", show_default=False
        ),
    ] = None,
    hotkey: Annotated[
        str | None,
        typer.Option(
            "--hotkey", metavar="ADDRESS", help="The validator that must vouch for the key (SS58).", show_default=False
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Check the signature and form of receipts and print what they say.

    A folder's own key binding names the key where neither --key nor --binding does.
    """
    from node.cli.actions.receipt import run

    run(file, key, binding, hotkey, as_json=json)


def receipt_export(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="Where to write; what is there already is kept.")],
    config: options.Config = None,
    state: options.State = None,
    without_attempts: Annotated[
        bool, typer.Option("--without-attempts", help="Leave the attempt files out, by far the largest part.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Copy everything that an observer needs out of a node's state folder: receipts, ledgers, evidence, documents.

    Run it again whenever there is more: only what is new is written, so the folder can be one that a web server serves.
    """
    from node.cli.actions.receipt_export import run

    run(folder, config, state, with_attempts=not without_attempts, as_json=json)


def receipt_fetch(
    url: Annotated[str, typer.Argument(metavar="URL", help="A node's pages, such as http://127.0.0.1:9980.")],
    folder: Annotated[str, typer.Argument(metavar="DIR", help="Where to write; what is there already is kept.")],
    without_attempts: Annotated[
        bool, typer.Option("--without-attempts", help="Leave the attempt files out, by far the largest part.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Fetch a validator's published receipts from its node, as a folder that `weights recompute` takes.

    Only what is new is fetched, and nothing of it is believed: check the folder with `weights recompute`.
    """
    from node.cli.actions.receipt_fetch import run

    run(url, folder, with_attempts=not without_attempts, as_json=json)


def register(app: typer.Typer) -> None:
    """Add the commands of this group to `app`."""
    receipt_app.command("verify")(receipt_verify)
    receipt_app.command("export")(receipt_export)
    receipt_app.command("fetch")(receipt_fetch)
    app.add_typer(receipt_app, name="receipt", rich_help_panel=panels.LOOKUP)
