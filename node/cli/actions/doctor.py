"""`cacheon doctor`: can a node work on this machine, and if not, what has to be done?"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from config.errors import ConfigurationError, ExitCode
from node.cli.output import Output
from node.cli.resolve import resolve
from node.doctor.check import State, Subject
from node.doctor.checks import CHECKS
from node.doctor.run import Line, Report, run_checks

if TYPE_CHECKING:
    from rich.console import Console

_STYLES = {State.PASS: "green", State.WARN: "yellow", State.FAIL: "bold red", State.SKIP: "dim"}


class FindingRow(msgspec.Struct, frozen=True):
    """One line as `--json` shows it; `milliseconds` is how long its whole check took."""

    name: str
    state: str
    seen: str
    fix: str
    code: str
    blocks_qualification: bool
    milliseconds: int


class Diagnosis(msgspec.Struct, frozen=True):
    """The whole report. `ready` is false exactly when a node would refuse; `machine_only`: without settings."""

    ready: bool
    machine_only: bool
    blocking: tuple[str, ...]
    waived: tuple[str, ...]
    counts: dict[str, int]
    findings: tuple[FindingRow, ...]


def run(config: str | None, *, as_json: bool, patience: float = 1.0) -> int:
    """Look at everything and return 0, or 6 when a node would refuse to qualify here.

    Every check has `patience` times its deadline.
    """
    output = Output("doctor", as_json=as_json)
    subject = _subject(config)
    told: tuple[str, ...] = ()

    def waiting(names: tuple[str, ...]) -> None:
        nonlocal told
        if names != told and (not told or len(names) < 4):
            output.note(f"still looking: {', '.join(names)}")
            told = names

    report = asyncio.run(run_checks(CHECKS, subject, waiting, patience=patience))
    diagnosis = diagnose(report, subject)
    output.result(diagnosis, lambda console: _show(console, diagnosis))
    if not report.ready:
        output.note("a node would not start here; mend what says FAIL, `cacheon explain CODE` tells more")
        return ExitCode.HOST
    return ExitCode.OK


def diagnose(report: Report, subject: Subject) -> Diagnosis:
    """Return the report as it is shown."""
    rows = tuple(_row(line) for line in report.lines)
    return Diagnosis(
        ready=report.ready,
        machine_only=subject.settings is None,
        blocking=tuple(row.name for row in rows if row.blocks_qualification),
        waived=subject.waived,
        counts={state.value: sum(row.state == state for row in rows) for state in State},
        findings=rows,
    )


def _subject(config: str | None) -> Subject:
    if config is None:
        return Subject()
    try:
        return Subject(resolve(config).settings)
    except ConfigurationError as error:
        return Subject(settings_error=error)


def _row(line: Line) -> FindingRow:
    finding = line.finding
    code = finding.error.code if finding.error is not None else ""
    return FindingRow(
        finding.name, finding.state.value, finding.seen, finding.fix, code, line.blocks_qualification, line.milliseconds
    )


def _show(console: Console, diagnosis: Diagnosis) -> None:
    from rich.text import Text

    width = max(len(row.name) for row in diagnosis.findings)
    for row in diagnosis.findings:
        text = Text().append(row.state, style=_STYLES[State(row.state)])
        text.append(f"  {row.name:{width}s}  {row.seen}" + (f" [{row.code}]" if row.code else ""))
        if row.fix:
            text.append(f"\n      {'':{width}s}  fix: {row.fix}", style="cyan")
        console.print(text, soft_wrap=True)
    counts = ", ".join(f"{count} {state}" for state, count in diagnosis.counts.items() if count)
    verdict = "ready" if diagnosis.ready else f"not ready: {', '.join(diagnosis.blocking)}"
    unread = any(row.name == "settings.file" and row.blocks_qualification for row in diagnosis.findings)
    scope = " (the machine only; `-c FILE` looks at a node)" if diagnosis.machine_only and not unread else ""
    console.print(f"\n{verdict}{scope}; {counts}", markup=False, soft_wrap=True)
