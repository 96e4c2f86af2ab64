"""`cacheon node status`: what the node knows, read from its store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from node.cli.actions.regrade import bound_text
from node.cli.output import Output, table
from node.cli.resolve import resolve_state
from node.status import NodeStatus, SubmissionStatus, read_status

if TYPE_CHECKING:
    from rich.console import Console


def run(config: str | None, state: str | None, *, as_json: bool) -> None:
    """Show the status. Raises `NotFoundError` (STATE_NOT_FOUND) when no node ever ran there."""
    status = read_status(resolve_state(config, state).state_dir)
    Output("node status", as_json=as_json).result(status, lambda console: _show(console, status))


def _show(console: Console, status: NodeStatus) -> None:
    running = f"running, pid {status.running_pid}" if status.running_pid else "not running"
    counts = ", ".join(f"{count} {state}" for state, count in sorted(status.counts.items()) if count) or "none yet"
    facts = [
        ("node", f"{running}; state in {status.state_dir}"),
        ("chain", f"subnet {status.netuid}, read to block {status.cursor_block}"),
        ("submissions", counts),
        ("weights", _publication_text(status)),
    ]
    if status.waived:
        facts.append(("waived isolation", ", ".join(status.waived)))
    for name, text in facts:
        console.print(f"{name:16s} {text}", markup=False, soft_wrap=True)
    if status.submissions:
        console.print(table(("block", "hotkey", "target", "state", "code", "blame", "bound"), _rows(status)))
    for crown in status.crowns:
        if crown.live:
            gain = bound_text(crown.speedup_ppm, 0)
            console.print(f"crown            {crown.target_id}: {crown.hotkey}, {gain}", markup=False, soft_wrap=True)


def _publication_text(status: NodeStatus) -> str:
    head = status.publication
    if head is None:
        return "nothing published yet"
    return f"epoch {head.epoch}: {head.status}" + (f" ({head.reason})" if head.reason else "")


def _rows(status: NodeStatus) -> list[tuple[str, ...]]:
    return [
        (
            str(submission.block),
            submission.hotkey[:8],
            submission.target_id or "-",
            str(submission.state),
            submission.code,
            submission.blame,
            _bound(submission),
        )
        for submission in status.submissions
    ]


def _bound(submission: SubmissionStatus) -> str:
    graded = [attempt for attempt in submission.attempts if attempt.state == "graded"]
    if submission.speedup_ppm or not graded:
        return bound_text(submission.speedup_ppm, 0)
    return bound_text(graded[-1].lower_ppm, graded[-1].upper_ppm)
