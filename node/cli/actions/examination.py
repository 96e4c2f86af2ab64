"""The part of `cacheon verify` that judges: the validator's screens on one admitted bundle, at the calls asked for.

It runs in a process of its own (`node.cli.warm_referee`), and inside this one in tests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from config.errors import ConfigurationError
from qualify.request import AttemptRequest
from qualify.screens.base import Emit, ScreenReceipt
from scoring.attempt import Incident
from scoring.incidents import consequence

if TYPE_CHECKING:
    from qualify.content import Content
    from qualify.correctness import CorrectnessCase
    from qualify.docket import Docket
    from qualify.sandbox.client import Zygote

ELEMENTS_MAX = 1 << 26  # tensor elements of one call that `--shapes` may ask for


class Asked(msgspec.Struct, frozen=True):
    """The bundle and the calls to make; what is None or empty is as the arena and the bundle have it."""

    request: AttemptRequest
    store: str  # a folder for engine trees
    seed: str
    slot: str | None = None
    dtype: str | None = None
    shapes: tuple[dict[str, int], ...] = ()
    speed: bool = False


class CaseRow(msgspec.Struct, frozen=True):
    """One correctness case; `code` is empty for a right answer, `worst_ppm` the worst error in ppm of its bound."""

    shape: dict[str, int]
    inputs: str
    worst_ppm: int
    code: str
    detail: str


class Examination(msgspec.Struct, frozen=True):
    """What the screens found out, and what they were run against."""

    content_hash: str
    target_id: str
    slot: str
    dtype: str
    arena_id: str
    arena_digest: str
    incumbent_digest: str
    screens: tuple[ScreenReceipt, ...]
    cases: tuple[CaseRow, ...]


def examine(asked: Asked, fork_server: Zygote, progress: Emit) -> Examination:
    """Run the screens. Raises `ConfigurationError` for what does not fit the bundle and `HostError`."""
    from qualify.docket import open_docket
    from qualify.screens.abi import Abi
    from qualify.screens.bench import occupy_bench
    from qualify.screens.build import Build
    from qualify.screens.correctness import Correctness
    from qualify.screens.graph import Graph
    from qualify.screens.pipeline import run_screens
    from qualify.screens.speed import Speed

    docket, rows = _fit(open_docket(asked.request), asked), []

    def heard(event: dict[str, object]) -> None:
        progress(event)
        if event.get("event") == "stage":
            rows.append(_case_row(event))

    speed = (Speed(short=True),) if asked.speed else ()
    screens = (Build(), Abi(), Correctness(every_case=True), Graph(), *speed)
    progress({"event": "waiting"})
    key = hashlib.sha256(f"cacheon.verify-seed:{asked.seed}".encode()).digest()
    plan, place = (_only if asked.shapes else None), Path(asked.store)
    with occupy_bench(docket, heard, fork_server, seed=key, plan=plan, workplace=place) as bench:
        receipts = run_screens(screens, bench, heard)
    return Examination(
        content_hash=docket.candidate.content_hash,
        target_id=docket.target.id,
        slot=" ".join(view.slot.id for view in docket.views()),
        dtype=docket.dtype,
        arena_id=docket.arena.id,
        arena_digest=docket.arena.digest,
        incumbent_digest=docket.incumbent_digest,
        screens=receipts,
        cases=tuple(rows),
    )


def misfit(complaint: str) -> ConfigurationError:
    """Return the error of an option that does not fit."""
    return ConfigurationError("VERIFY_CHOICE_INVALID", complaint, hint="`cacheon slots SLOT` shows what a call has")


def spell(shape: Mapping[str, int]) -> str:
    """Return a shape as text."""
    return " ".join(f"{name}={extent}" for name, extent in shape.items())


def _fit(docket: Docket, asked: Asked) -> Docket:
    """Return the docket with the calls that the command line asks for, under an arena document of its own."""
    from qualify.dtypes import DTYPES

    views = {view.slot.id: view for view in docket.views()}
    if asked.slot not in (None, *views):
        raise misfit(f"the bundle's target {docket.target.id} has the slot {' and '.join(views)}, not {asked.slot}")
    if asked.slot is not None:
        docket = views[asked.slot]
    elif docket.members and (asked.shapes or asked.dtype):
        raise misfit(f"say with --slot which of {' and '.join(views)} is meant")
    if asked.dtype not in (None, *DTYPES):
        raise misfit(f"calls are judged in {', '.join(DTYPES)}, not in {asked.dtype}")
    _require_shapes(docket, asked.shapes)
    if not asked.shapes and asked.dtype in (None, docket.dtype):
        return docket
    load = msgspec.structs.replace(
        docket.workload, dtype=asked.dtype or docket.dtype, shapes=asked.shapes or docket.shapes
    )
    return replace(docket, workload=load, arena=msgspec.structs.replace(docket.arena, workloads=(load,)))


def _require_shapes(docket: Docket, shapes: Sequence[dict[str, int]]) -> None:
    from qualify.correctness import elements

    slot = docket.slot
    for shape in shapes:
        if set(shape) != set(slot.dimensions):
            raise misfit(f"a shape of {slot.id} gives {', '.join(slot.dimensions)}")
        if slot.legal(shape) != shape:
            raise misfit(f"{slot.id} takes no such shape; the nearest is {spell(slot.legal(shape))}")
        if elements(slot, shape) > ELEMENTS_MAX:
            raise misfit(f"a shape has more than {ELEMENTS_MAX} elements")


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
