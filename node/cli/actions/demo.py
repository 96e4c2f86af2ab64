"""`cacheon demo`: runs the demo, shows its progress and its outcome."""

from __future__ import annotations

import asyncio
import shlex
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from config.errors import ConfigurationError, ExitCode, HostError, InternalError
from node.cli.actions.regrade import bound_text
from node.cli.output import Output, table, talk_console
from node.demo.place import remove
from node.demo.prepare import require_examples
from node.demo.reporter import Progress, Reporter, Silent
from node.demo.result import DemoResult, PlayerResult
from node.demo.run import run_demo

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live

TABLE_COLUMNS = 72  # on a narrower terminal a table would break the codes


def run(state: str | None, *, keep: bool, as_json: bool) -> int:
    """Run the demo. Raises `InternalError` (DEMO_DIFFERS) when it ended otherwise than it must."""
    output = Output("demo", as_json=as_json)
    require_examples()
    root = _folder(state)
    again = f"`cacheon demo --state {shlex.quote(str(root))}`"
    output.note(f"working in {root}" + ("" if state or keep else " (removed when all goes well; --keep keeps it)"))
    try:
        result = _run(root, as_json=as_json)
    except KeyboardInterrupt:
        output.note(f"stopped; {again} goes on from here")
        raise
    if result.differences:
        if not as_json:
            output.result(result, lambda console: show(console, result))
        raise InternalError("DEMO_DIFFERS", "; ".join(result.differences), hint=f"everything is in {root}")
    output.result(result, lambda console: show(console, result))
    if state is None and not keep:
        if not remove(root):
            output.note(f"{root} could not be removed altogether")
    else:
        output.note(f"look around: `cacheon node status --state {shlex.quote(str(root / 'node'))}`; again: {again}")
    return int(ExitCode.OK)


def _folder(state: str | None) -> Path:
    if state == "":
        raise ConfigurationError("STATE_NOT_GIVEN", "--state names no folder", hint="give --state DIR, or leave it out")
    if state is not None:
        return Path(state)
    try:
        return Path(tempfile.mkdtemp(prefix="cacheon-demo-"))
    except OSError as error:
        raise HostError(
            "STATE_UNWRITABLE",
            f"no temporary folder can be made: {error.strerror or error}",
            hint="name a folder of your own with --state",
        ) from error


def _run(root: Path, *, as_json: bool) -> DemoResult:
    if as_json:
        return asyncio.run(run_demo(root, Silent()))
    console = talk_console()
    if not console.is_terminal or console.is_dumb_terminal or not sys.stderr.isatty():
        return asyncio.run(run_demo(root, PlainReporter()))
    from rich.live import Live

    with Live(console=console, refresh_per_second=4, transient=True) as live:
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
    weights = f"Weights of the validator, read back from the chain at block {result.weights_block}"
    if console.width < TABLE_COLUMNS:
        _show_narrow(console, result, weights)
    else:
        columns = ("who", "what it is", "verdict", "blame", "speed bound", "weight")
        rows = [_row(player) for player in result.players]
        console.print(table(columns, rows, title="What happened", whole=("who", "verdict", "weight")))
        shares = [(str(entry.uid), _name(entry.hotkey, result), _percent(entry.share_ppm)) for entry in result.weights]
        console.print(table(("uid", "hotkey", "share"), shares, title=weights))
    console.print(f"done in {result.seconds} s", markup=False)


def _show_narrow(console: Console, result: DemoResult, weights: str) -> None:
    for player in result.players:
        who, what, verdict, blame, speed, weight = _row(player)
        console.print(f"{who}  {verdict}", markup=False)
        console.print(f"  {what}", markup=False)
        console.print(f"  blame {blame}; speed {speed}; weight {weight}", markup=False)
    console.print(weights, markup=False)
    for entry in result.weights:
        console.print(f"  {_percent(entry.share_ppm)}  {_name(entry.hotkey, result)}", markup=False)


def _row(player: PlayerResult) -> tuple[str, str, str, str, str, str]:
    speed = "-" if player.code not in ("PASS", "NOT_FASTER") else bound_text(player.lower_ppm, player.upper_ppm)
    weight = _percent(player.weight_ppm)
    return player.miner, player.what, player.code or "(none)", player.blame or "-", speed, weight


def _percent(ppm: int) -> str:
    return f"{ppm / 10_000:g} %"


def _name(hotkey: str, result: DemoResult) -> str:
    names = {player.hotkey: player.miner for player in result.players}
    return f"{names[hotkey]} ({hotkey})" if hotkey in names else hotkey
