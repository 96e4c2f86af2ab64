"""`cacheon node status`: what the node knows, read from its store."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from node.cli.actions.regrade import bound_text
from node.cli.output import Output, facts, table
from node.cli.resolve import resolve_state
from node.readiness import Reason, ReasonName
from node.status import CheckStatus, CrownStatus, NodeStatus, SubmissionStatus, read_status

if TYPE_CHECKING:
    from rich.console import Console

_OCCASIONS = {"failed_as_baseline": "which failed beside", "outpaced": "which was outpaced by"}
_STATES = {
    "proved": "about to be revoked", "revoked": "revoked", "cleared": "stands",
    "void": "over, because the crown ended meanwhile",
    "undecided": "stands, because it could not be measured",
}


def run(config: str | None, state: str | None, *, as_json: bool) -> None:
    """Show the status. Raises `NotFoundError` (STATE_NOT_FOUND) when no node ever ran there."""
    status = read_status(resolve_state(config, state).state_dir)
    Output("node status", as_json=as_json).result(status, lambda console: _show(console, status))


def _show(console: Console, status: NodeStatus) -> None:
    running = f"running, pid {status.running_pid}" if status.running_pid else "not running"
    counts = ", ".join(f"{count} {state}" for state, count in sorted(status.counts.items()) if count) or "none yet"
    rows = [
        ("node", f"{running}; state in {status.state_dir}"),
        ("chain", f"subnet {status.netuid}, read to block {status.cursor_block}{_head_text(status)}"),
        ("submissions", counts),
        ("weights", _publication_text(status)),
    ]
    reasons = [("because" if reason.blocks else "mind", reason.sentence) for reason in _told(status)]
    rows[1:1] = [("ready", "yes" if status.ready else "no"), *reasons] if status.running_pid else reasons
    rows += [(f"crown of {crown.target_id}", _crown_text(crown)) for crown in status.crowns if crown.live]
    rows += [(f"check of {check.target_id}", _check_text(check)) for check in _told_checks(status)]
    facts(console, rows)
    if status.submissions:
        columns = ("block", "hotkey", "target", "state", "code", "blame", "bound")
        console.print(table(columns, _rows(status), whole=("hotkey", "state", "code")))


def _head_text(status: NodeStatus) -> str:
    if status.block_age_seconds is None:
        return ""
    return f"; newest final block {status.head_block}, {status.block_age_seconds:.0f} s old"


def _told(status: NodeStatus) -> list[Reason]:
    """Return the reasons that the first row does not say already."""
    return [reason for reason in status.reasons if reason.name is not ReasonName.STOPPED]


def _crown_text(crown: CrownStatus) -> str:
    return f"{crown.hotkey}, {bound_text(crown.speedup_ppm, 0)}"


def _told_checks(status: NodeStatus) -> list[CheckStatus]:
    """Return the checks of crowns that are under way, and the newest that is over."""
    over = [check for check in status.checks if check.closed_ms]
    return over[-1:] + [check for check in status.checks if not check.closed_ms]


def _check_text(check: CheckStatus) -> str:
    why = _OCCASIONS.get(check.occasion, check.occasion)
    what = f"crown of submission {check.submission_id[:12]}, {why} submission {check.cause[:12]}"
    if check.state == "open":
        found = f"{check.shown} of {check.needed} attempts show a fault" + (f" [{check.code}]" if check.code else "")
        wait = ms_until(check.not_before_ms)
        return f"{what}: {found}" + (f"; goes on in {wait // 60_000 + 1} min" if wait else "")
    return f"{what}: {_STATES.get(check.state, check.state)}" + (f" [{check.code}]" if check.code else "")


def ms_until(moment_ms: int) -> int:
    """Return the milliseconds until a moment of the wall clock, 0 when it is over."""
    return max(0, moment_ms - time.time_ns() // 1_000_000)


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
    lower, upper = (graded[-1].lower_ppm, graded[-1].upper_ppm) if graded else (0, 0)
    words = bound_text(submission.speedup_ppm or lower, upper)
    return words.replace("at least ", ">= ").replace("at most ", "<= ")
