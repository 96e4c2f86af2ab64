"""`cacheon node review` and `cacheon node reopen`: a person's decisions, in the node's store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from node import decisions
from node.cli.output import Output, facts, table
from node.cli.resolve import resolve_state
from node.decisions import Decided, Pending
from scoring.decision import Kind

if TYPE_CHECKING:
    from rich.console import Console

_PPM = 1_000_000


def ls(*, config: str | None, state: str | None, as_json: bool) -> None:
    """Show what waits for a person. Raises `NotFoundError` (STATE_NOT_FOUND), `HostError`."""
    found = decisions.pending(resolve_state(config, state).state_dir)
    output = Output("node review ls", as_json=as_json)
    output.result(found, lambda console: _print(console, found))
    if not found:
        output.note("nothing waits for a person")


def decide(
    kind: Kind, submission: str, reason: str, command: str, *, config: str | None, state: str | None, as_json: bool
) -> None:
    """Decide about a submission and show what came of it. Raises what `node.decisions.decide` raises."""
    decided = decisions.decide(resolve_state(config, state).state_dir, kind, submission, reason)
    Output(command, as_json=as_json).result(decided, lambda console: _tell(console, decided))


def _tell(console: Console, decided: Decided) -> None:
    facts(console, [
        ("submission", decided.submission_id), ("decided", decided.kind), ("because", decided.reason),
        ("now", decided.state + (f" [{decided.code}]" if decided.code else "")), ("receipt", decided.receipt),
    ])


def _print(console: Console, found: list[Pending]) -> None:
    columns = ("submission", "target", "hotkey", "why", "speed-up", "attempt file")
    rows = [
        (
            one.submission_id, one.target_id, one.hotkey, one.code,
            f"{one.lower_ppm / _PPM:.3f}x to {one.upper_ppm / _PPM:.3f}x", one.path,
        )
        for one in found
    ]
    if rows:
        console.print(table(columns, rows, whole=("submission",)))
