"""`cacheon verify`: the validator's screens on a local bundle, with every case a kernel author can act on."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from config.errors import ConfigurationError, ExitCode, HostError
from node.cli.bench_stand import NOTICE, Candidate, Choice, Stand, open_stand
from node.cli.output import Output, facts
from node.cli.progress import ScreenProgress
from node.cli.screen_table import exit_code_of, show_screens
from qualify.screens.base import ScreenReceipt
from scoring.attempt import Incident
from scoring.incidents import consequence

if TYPE_CHECKING:
    from rich.console import Console

    from qualify.content import Content
    from qualify.correctness import CorrectnessCase
    from qualify.docket import Docket

ATTEMPT_ID = "verify"  # the same for every run, so that a seed alone repeats one
_EXTENT = re.compile("[0-9]{1,9}")
_SHOWN = 60  # characters of a wrong word that a message repeats
ELEMENTS_MAX = 1 << 26  # tensor elements of one call that `--shapes` may ask for


@dataclass(frozen=True)
class Cases:
    """What the command line says about the calls to make; None means: as the arena and the bundle have it."""

    slot: str | None = None
    dtype: str | None = None
    device: str = "cpu"
    seed: str | None = None
    shapes: str | None = None
    speed: bool = False


class CaseRow(msgspec.Struct, frozen=True):
    """One correctness case; `code` is empty for a right answer, `worst_ppm` the worst error in ppm of its bound."""

    shape: dict[str, int]
    inputs: str
    worst_ppm: int
    code: str
    detail: str


class Verified(msgspec.Struct, frozen=True):
    """The result as `--json` shows it; what is empty was not reached."""

    passed: bool
    content_hash: str
    target_id: str
    slot: str
    dtype: str
    arena_id: str
    arena_digest: str
    incumbent_digest: str
    seed: str
    screens: tuple[ScreenReceipt, ...]
    cases: tuple[CaseRow, ...]
    notice: str


def run(bundle: str, choice: Choice, cases: Cases, *, as_json: bool) -> int:
    """Verify `bundle`. Returns 0, 3 when it is rejected, 7 when this machine could not tell.

    Raises `ConfigurationError` for options that do not fit and `HostError` for a machine that is not ready.
    """
    if cases.device != "cpu":
        raise HostError("DEVICE_UNAVAILABLE", f"there is no {cases.device!r} to measure on", hint="use --device cpu")
    output, seed = Output("verify", as_json=as_json), cases.seed or secrets.token_hex(8)
    shapes = parse_shapes(cases.shapes) if cases.shapes else ()
    progress = ScreenProgress(silent=as_json)
    with open_stand(choice) as stand:
        candidate = stand.admit(bundle, ATTEMPT_ID, progress)
        verified = _examine(stand, candidate, cases, seed, shapes, progress)
    progress.clear()
    output.result(verified, lambda console: _show(console, verified))
    output.note(f"note: {NOTICE}")
    if verified.seed:
        output.note(f"the same shapes and inputs again: --seed {verified.seed}")
    return exit_code_of(verified.screens)


def parse_shapes(text: str) -> tuple[dict[str, int], ...]:
    """Read `name=extent,name=extent;...`. Raises `ConfigurationError` (VERIFY_CHOICE_INVALID)."""
    shapes: list[dict[str, int]] = []
    for part in filter(None, (part.strip() for part in text.split(";"))):
        shape: dict[str, int] = {}
        for pair in part.split(","):
            name, _, extent = (word.strip() for word in pair.partition("="))
            if _EXTENT.fullmatch(extent) is None or name in shape:
                raise _misfit(f"{_shortened(pair.strip())!r} is no dimension with a whole number")
            shape[name] = int(extent)
        shapes.append(shape)
    if not shapes:
        raise _misfit("--shapes names no shape")
    return tuple(shapes)


def _examine(
    stand: Stand,
    candidate: Candidate,
    cases: Cases,
    seed: str,
    shapes: Sequence[dict[str, int]],
    progress: ScreenProgress,
) -> Verified:
    if candidate.request is None:
        return Verified(False, "", "", "", "", "", "", "", "", candidate.receipts, (), NOTICE)
    from qualify.docket import open_docket
    from qualify.screens.abi import Abi
    from qualify.screens.bench import occupy_bench
    from qualify.screens.build import Build
    from qualify.screens.correctness import Correctness
    from qualify.screens.graph import Graph
    from qualify.screens.pipeline import run_screens
    from qualify.screens.speed import Speed

    docket, rows = _fit(open_docket(candidate.request), cases, shapes), []

    def heard(event: dict[str, object]) -> None:
        progress(event)
        if event.get("event") == "stage":
            rows.append(_case_row(event))

    speed = (Speed(short=True),) if cases.speed else ()
    screens = (Build(), Abi(), Correctness(every_case=True), Graph(), *speed)
    progress({"event": "waiting"})
    key = hashlib.sha256(f"cacheon.verify-seed:{seed}".encode()).digest()
    with occupy_bench(docket, heard, stand.fork_server(), seed=key, plan=_only if shapes else None) as bench:
        receipts = candidate.receipts + run_screens(screens, bench, heard)
    return Verified(
        passed=exit_code_of(receipts) == ExitCode.OK,
        content_hash=docket.candidate.content_hash,
        target_id=docket.target.id,
        slot=" ".join(view.slot.id for view in docket.views()),
        dtype=docket.dtype,
        arena_id=docket.arena.id,
        arena_digest=docket.arena.digest,
        incumbent_digest=docket.incumbent_digest,
        seed=seed,
        screens=receipts,
        cases=tuple(rows),
        notice=NOTICE,
    )


def _fit(docket: Docket, cases: Cases, shapes: Sequence[dict[str, int]]) -> Docket:
    """Return the docket with the calls that the command line asks for, under an arena document of its own."""
    from qualify.correctness import elements
    from qualify.dtypes import DTYPES

    views = {view.slot.id: view for view in docket.views()}
    if cases.slot not in (None, *views):
        raise _misfit(f"the bundle's target {docket.target.id} has the slot {' and '.join(views)}, not {cases.slot}")
    if cases.slot is not None:
        docket = views[cases.slot]
    elif docket.members and (shapes or cases.dtype):
        raise _misfit(f"say with --slot which of {' and '.join(views)} is meant")
    slot = docket.slot
    if cases.dtype not in (None, *DTYPES):
        raise _misfit(f"calls are judged in {', '.join(DTYPES)}, not in {cases.dtype}")
    for shape in shapes:
        if set(shape) != set(slot.dimensions):
            raise _misfit(f"a shape of {slot.id} gives {', '.join(slot.dimensions)}")
        if slot.legal(shape) != shape:
            raise _misfit(f"{slot.id} takes no such shape; the nearest is {_spell(slot.legal(shape))}")
        if elements(slot, shape) > ELEMENTS_MAX:
            raise _misfit(f"a shape has more than {ELEMENTS_MAX} elements")
    if not shapes and cases.dtype in (None, docket.dtype):
        return docket
    load = msgspec.structs.replace(
        docket.workload, dtype=cases.dtype or docket.dtype, shapes=tuple(shapes) or docket.shapes
    )
    return replace(docket, workload=load, arena=msgspec.structs.replace(docket.arena, workloads=(load,)))


def _only(docket: Docket, content: Content) -> list[CorrectnessCase]:
    """Plan exactly the shapes asked for, each with every distribution of inputs."""
    from qualify.content import ALL_STYLES
    from qualify.correctness import CorrectnessCase

    del content
    reached = [shape for shape in docket.shapes if docket.reaches(shape)]
    return [CorrectnessCase(shape, style) for shape in reached for style in (*ALL_STYLES, *docket.slot.edges)]


def _case_row(event: dict[str, object]) -> CaseRow:
    shape, style, worst, kind, detail = (event[name] for name in ("shape", "style", "worst_ppm", "kind", "detail"))
    code = consequence(Incident("correctness", -1, "candidate", str(kind), "")).code if kind else ""
    return msgspec.convert(
        {"shape": shape, "inputs": style, "worst_ppm": worst, "code": code, "detail": detail}, CaseRow
    )


def _spell(shape: Mapping[str, int]) -> str:
    return " ".join(f"{name}={extent}" for name, extent in shape.items())


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def _misfit(complaint: str) -> ConfigurationError:
    return ConfigurationError("VERIFY_CHOICE_INVALID", complaint, hint="`cacheon slots SLOT` shows what a call has")


def _show(console: Console, verified: Verified) -> None:
    from node.cli.output import table

    if verified.slot:
        arena = f"{verified.arena_id} ({verified.dtype})"
        facts(console, [("bundle", verified.content_hash), ("slot", verified.slot), ("arena", arena)])
    if verified.cases:
        rows = [
            (_spell(case.shape), case.inputs, case.code or f"{case.worst_ppm / 10_000:.0f} % of its bound")
            for case in verified.cases
        ]
        console.print(table(("shape", "inputs", "worst error"), rows))
        for case in verified.cases:
            if case.detail:
                console.print(f"{case.code}: {case.detail}", markup=False, soft_wrap=True)
    show_screens(console, verified.screens)
