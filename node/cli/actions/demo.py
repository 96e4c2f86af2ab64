"""`cacheon demo`: runs the demo, shows its progress and its outcome."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from config.errors import ExitCode, InternalError
from node.cli.actions.regrade import bound_text
from node.cli.output import Output, table, talk_console
from node.demo.reporter import Progress, Reporter, Silent
from node.demo.result import DemoResult, PlayerResult
from node.demo.run import run_demo

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live


def run(state: str | None, *, keep: bool, as_json: bool) -> int:
    """Run the demo. Raises `InternalError` (DEMO_DIFFERS) when it ended otherwise than it must."""
    output = Output("demo", as_json=as_json)
    root = Path(state) if state else Path(tempfile.mkdtemp(prefix="cacheon-demo-"))
    output.note(f"working in {root}" + ("" if state or keep else " (removed when all goes well; --keep keeps it)"))
    result = _run(root, as_json=as_json)
    if result.differences:
        if not as_json:
            output.result(result, lambda console: show(console, result))
        raise InternalError("DEMO_DIFFERS", "; ".join(result.differences), hint=f"everything is in {root}")
    output.result(result, lambda console: show(console, result))
    if state is None and not keep:
        shutil.rmtree(root, ignore_errors=True)
    else:
        node_state = root / "node"
        output.note(f"look around: `cacheon node status --state {node_state}`; again: `cacheon demo --state {root}`")
    return int(ExitCode.OK)


def _run(root: Path, *, as_json: bool) -> DemoResult:
    if as_json:
        return asyncio.run(run_demo(root, Silent()))
    if not sys.stderr.isatty():
        return asyncio.run(run_demo(root, PlainReporter()))
    from rich.live import Live

    with Live(console=talk_console(), refresh_per_second=4, transient=True) as live:
        return asyncio.run(run_demo(root, LiveReporter(live)))


class PlainReporter(Reporter):
    """One line per change, for logs and pipes."""

    def __init__(self) -> None:
        self._console = talk_console()
        self._started = time.monotonic()
        self._last: dict[str, str] = {}
        self._note = ""

    def step(self, text: str) -> None:
        """Print the text with the seconds since the start."""
        seconds = time.monotonic() - self._started
        self._console.print(f"[{seconds:5.1f} s] {text}", markup=False, soft_wrap=True)

    def progress(self, rows: Sequence[Progress], note: str) -> None:
        """Print what changed."""
        for row in rows:
            if self._last.get(row.miner) != row.now:
                self._last[row.miner] = row.now
                self.step(f"{row.miner} ({row.what}): {row.now}")
        if note != self._note:
            self._note = note
            self.step(note)


class LiveReporter(Reporter):
    """A table that is redrawn in place, for terminals."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._step = ""
        self._rows: Sequence[Progress] = ()

    def step(self, text: str) -> None:
        """Print the step above the table."""
        self._live.console.print(text, markup=False)

    def progress(self, rows: Sequence[Progress], note: str) -> None:
        """Redraw the table."""
        cells = [(row.miner, row.what, row.now) for row in rows]
        self._live.update(table(("who", "what it is", "now"), cells, title=note))


def show(console: Console, result: DemoResult) -> None:
    """Print the outcome for a newcomer."""
    columns = ("who", "what it is", "verdict", "blame", "speed bound", "weight")
    console.print(table(columns, [_row(player) for player in result.players], title="What happened"))
    rows = [
        (str(entry.uid), _name(entry.hotkey, result), f"{entry.share_ppm / 10_000:g} %") for entry in result.weights
    ]
    title = f"Weights of the validator, read back from the chain at block {result.weights_block}"
    console.print(table(("uid", "hotkey", "share"), rows, title=title))
    console.print(f"done in {result.seconds} s", markup=False)


def _row(player: PlayerResult) -> tuple[str, ...]:
    speed = "-" if player.code not in ("PASS", "NOT_FASTER") else bound_text(player.lower_ppm, player.upper_ppm)
    weight = f"{player.weight_ppm / 10_000:g} %"
    return player.miner, player.what, player.code or "(none)", player.blame or "-", speed, weight


def _name(hotkey: str, result: DemoResult) -> str:
    names = {player.hotkey: player.miner for player in result.players}
    return f"{names[hotkey]} ({hotkey})" if hotkey in names else hotkey
