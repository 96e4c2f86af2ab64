"""What a person decides: `node review ...`, `node reopen`.

Invariants
1. Nothing here imports torch, the chain SDK, the store or a room other than `config`. Bodies are in `node.cli.actions`,
   imported when they run.
2. A function's docstring is its help text; the first sentence is what the overview shows.
3. A command returns its exit code, or None for success; failures are raised and rendered at the boundary.
"""

from __future__ import annotations

from typing import Annotated

import typer

from node.cli import options
from node.cli.commands.operator import node_app

review_app = typer.Typer(no_args_is_help=True, help="Decide about speed-ups that are too good to be believed unseen.")

Submission = Annotated[str, typer.Argument(metavar="ID", help="Id of the submission, or its first digits.")]
Reason = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="Why, in a sentence. Signed into a receipt, and public.")
]


def review_ls(config: options.Config = None, state: options.State = None, json: options.Json = False) -> None:
    """List the submissions that wait for a person, with the attempt file to look at."""
    from node.cli.actions.review import ls

    ls(config=config, state=state, as_json=json)


def review_accept(
    submission: Submission,
    reason: Reason,
    config: options.Config = None,
    state: options.State = None,
    json: options.Json = False,
) -> None:
    """Accept a speed-up: the submission is measured again, and no such speed stops it any more.

    Works while the node runs and when it does not. Both attempts still have to pass.
    """
    from node.cli.actions.review import decide

    decide("accept", submission, reason, "node review accept", config=config, state=state, as_json=json)


def review_refuse(
    submission: Submission,
    reason: Reason,
    config: options.Config = None,
    state: options.State = None,
    json: options.Json = False,
) -> None:
    """Refuse a speed-up: the submission fails, and so do the same bytes of the same hotkey in this arena."""
    from node.cli.actions.review import decide

    decide("refuse", submission, reason, "node review refuse", config=config, state=state, as_json=json)


def reopen(
    submission: Submission,
    reason: Reason,
    config: options.Config = None,
    state: options.State = None,
    json: options.Json = False,
) -> None:
    """Open a submission again that failed, or lost its crown, by a fault of this validator.

    It keeps its place in chain order and is judged anew by the present build; a verdict that was right comes again.
    """
    from node.cli.actions.review import decide

    decide("reopen", submission, reason, "node reopen", config=config, state=state, as_json=json)


def register(app: typer.Typer) -> None:  # noqa: ARG001 - these belong to `node`
    """Add these commands to `node`, in the order in which help lists them."""
    review_app.command("ls")(review_ls)
    review_app.command("accept")(review_accept)
    review_app.command("refuse")(review_refuse)
    node_app.add_typer(review_app, name="review")
    node_app.command("reopen")(reopen)
