"""`cacheon bench`: a whole attempt on a local bundle, graded as a validator grades it."""

from __future__ import annotations

import math
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from config.errors import HostError
from node.cli.actions.regrade import EXIT, bound_text
from node.cli.bench_stand import NOTICE, Candidate, Choice, open_stand, warming_arms
from node.cli.output import Output, facts
from node.cli.plot import strip_plot
from node.cli.progress import ScreenProgress
from node.cli.screen_table import exit_code_of, show_screens
from qualify.screens.base import ScreenReceipt

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from qualify.docket import Docket
    from qualify.sandbox.client import Zygote
    from scoring.grade import Verdict


class Sample(msgspec.Struct, frozen=True):
    """One launch: the incumbent's time over the candidate's, in ppm (equal = 1_000_000)."""

    launch: int
    candidate_slot: int
    ratio_ppm: int


class Benched(msgspec.Struct, frozen=True):
    """The result as `--json` shows it; bounds are ppm, and what is empty was not reached."""

    content_hash: str
    target_id: str
    arena_id: str
    arena_digest: str
    incumbent_digest: str
    screens: tuple[ScreenReceipt, ...]
    outcome: str
    code: str
    blame: str
    reason: str
    lower_ppm: int
    upper_ppm: int
    needed_ppm: int
    samples: tuple[Sample, ...]
    attempt_path: str
    attempt_digest: str
    notice: str
    warnings: tuple[str, ...] = ()  # about the arena on this machine; no part of the verdict


def run(bundle: str, choice: Choice, out: str | None, *, as_json: bool) -> int:
    """Measure `bundle`. Returns 0 for PASS, 3 for FAIL and for a refused bundle, 7 for RETRY.

    Raises `HostError` for a machine that is not ready, and ATTEMPT_NOT_WRITTEN for an `out` that cannot be written.
    """
    folder = _writable(out) if out is not None else None
    output, progress = Output("bench", as_json=as_json), ScreenProgress(silent=as_json)
    with open_stand(choice) as stand, warming_arms() as arms:
        candidate = stand.admit(bundle, f"bench-{uuid.uuid4().hex}", progress)
        benched = _measure(arms, candidate, folder, progress)
    progress.clear()
    output.result(benched, lambda console: _show(console, benched))
    for warning in benched.warnings:
        output.note(f"warning: {warning}")
    output.note(f"note: {NOTICE}")
    if benched.attempt_path:
        output.note(f"next: cacheon regrade {benched.attempt_path}")
    return int(EXIT[benched.outcome]) if benched.outcome else exit_code_of(benched.screens)


def _writable(out: str) -> Path:
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HostError("ATTEMPT_NOT_WRITTEN", f"{out} cannot be made: {error.strerror}") from error
    return folder


def _measure(
    arms: Callable[[], Zygote], candidate: Candidate, folder: Path | None, progress: ScreenProgress
) -> Benched:
    if candidate.request is None:
        return Benched("", "", "", "", "", candidate.receipts, "", "", "", "", 0, 0, 0, (), "", "", NOTICE)
    from qualify.attempt_main import write_attempt
    from qualify.docket import open_docket
    from qualify.referee import measure_docket
    from scoring.attempt import attempt_digest, encode_attempt
    from scoring.call_length import short_call_notes
    from scoring.grade import grade
    from scoring.speed import launch_value

    docket = open_docket(candidate.request)
    progress({"event": "waiting"})
    measured = measure_docket(docket, progress, arms())
    data = encode_attempt(measured.attempt)
    digest = attempt_digest(data)
    path = write_attempt(folder, digest, data) if folder is not None else ""
    gaps = len(measured.attempt.identity.gaps)
    samples = tuple(
        Sample(launch.index, launch.candidate_slot, round(math.exp(launch_value(launch, gaps)) * 1e6))
        for launch in measured.attempt.launches
    )
    verdict = grade(measured.attempt, docket.arena)
    benched = _benched(docket, verdict, candidate.receipts + measured.receipts, samples, (str(path), digest))
    warnings = tuple(short_call_notes(measured.attempt, docket.arena))
    return msgspec.structs.replace(benched, warnings=warnings)


def _benched(
    docket: Docket,
    verdict: Verdict,
    receipts: tuple[ScreenReceipt, ...],
    samples: tuple[Sample, ...],
    file: tuple[str, str],
) -> Benched:
    return Benched(
        content_hash=docket.candidate.content_hash,
        target_id=docket.target.id,
        arena_id=docket.arena.id,
        arena_digest=docket.arena.digest,
        incumbent_digest=docket.incumbent_digest,
        screens=receipts,
        outcome=verdict.outcome,
        code=verdict.code,
        blame=verdict.blame,
        reason=verdict.reason,
        lower_ppm=verdict.lower_ppm,
        upper_ppm=verdict.upper_ppm,
        needed_ppm=1_000_000 + docket.arena.margin_ppm,
        samples=samples,
        attempt_path=file[0],
        attempt_digest=file[1],
        notice=NOTICE,
    )


def _show(console: Console, benched: Benched) -> None:
    show_screens(console, benched.screens)
    if benched.samples:
        marks = {"1": 1.0, "|": benched.needed_ppm / 1e6}
        if benched.lower_ppm > 0:
            marks["["] = benched.lower_ppm / 1e6
        lines = strip_plot([(str(one.launch), one.ratio_ppm / 1e6) for one in benched.samples], marks)
        console.print("speed of each launch, as a multiple of the incumbent's", markup=False)
        console.print("1 equal, | needed, [ proved", markup=False)
        for line in lines:
            console.print(line, markup=False, soft_wrap=True)
    if benched.outcome:
        facts(
            console,
            [
                ("verdict", benched.outcome + ("" if benched.code == benched.outcome else f" {benched.code}")),
                ("reason", benched.reason),
                ("speed bound", bound_text(benched.lower_ppm, benched.upper_ppm)),
                ("arena", benched.arena_id),
                ("content hash", benched.content_hash),
                ("attempt", benched.attempt_path or "not kept; --out DIR keeps it"),
            ],
        )
