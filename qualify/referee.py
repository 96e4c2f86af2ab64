"""The referee: one attempt from sealed seed to evidence.

Invariants
1. The seed is drawn and its commitment announced before the first launch; everything random follows from it.
2. A fault of the candidate or of the baseline ends the attempt and is recorded; a fault of this machine or of ours
   raises, leaves no evidence and is never blamed on a bundle.
3. The stages of an attempt are the screens that a miner can run as well. The referee records what they observed; the
   verdict is `scoring.grade`'s.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from qualify.arm_server import PRELOAD
from qualify.docket import Docket, open_docket
from qualify.request import AttemptRequest
from qualify.sandbox.client import Zygote
from qualify.screens.abi import Abi
from qualify.screens.base import Emit, Screen, ScreenReceipt
from qualify.screens.bench import Bench, occupy_bench
from qualify.screens.build import Build
from qualify.screens.correctness import Correctness
from qualify.screens.graph import Graph
from qualify.screens.pipeline import run_screens
from qualify.screens.speed import Speed
from qualify.slots.work import least_work
from scoring.attempt import ATTEMPT_SCHEMA, Attempt, CaseWork, Identity, LimitsInForce, Seed

__all__ = ["ATTEMPT_SCREENS", "PRELOAD", "Measured", "measure_docket", "run_attempt"]

ATTEMPT_SCREENS: tuple[Screen[Bench], ...] = (Build(), Abi(), Correctness(), Graph(), Speed())


@dataclass(frozen=True, slots=True)
class Measured:
    """What one attempt left: its evidence, and a receipt of each screen that ran."""

    attempt: Attempt
    receipts: tuple[ScreenReceipt, ...]


def run_attempt(
    request: AttemptRequest, emit: Emit, fork_server: Zygote | None = None, workplace: Path | None = None
) -> Attempt:
    """Measure one comparison and return its evidence.

    Raises `ConfigurationError` for a request this build cannot serve, and what `measure_docket` raises.
    """
    return measure_docket(open_docket(request), emit, fork_server, workplace).attempt


def measure_docket(
    docket: Docket, emit: Emit, fork_server: Zygote | None = None, workplace: Path | None = None
) -> Measured:
    """Measure one comparison.

    `fork_server` is a running one of `qualify.arm_server`, when the caller has it; else one is started. Engine trees
    are built below the folder `workplace` (default: that for temporary files) and removed in the end.
    Raises `HostError` for a machine that is not fit.
    """
    with occupy_bench(docket, emit, fork_server, workplace=workplace) as bench:
        receipts = run_screens(ATTEMPT_SCREENS, bench, emit)
        return Measured(_evidence(bench), receipts)


def _evidence(bench: Bench) -> Attempt:
    request, arena = bench.docket.request, bench.docket.arena
    opening, findings = bench.opening, bench.findings
    return Attempt(
        schema=ATTEMPT_SCHEMA,
        attempt_id=request.attempt_id,
        role=request.role,
        previous_attempt=request.previous_attempt,
        started_unix_ns=opening.started_unix_ns,
        ended_unix_ns=time.time_ns(),
        identity=_identity(bench),
        speed_policy=arena.speed_policy,
        seed=Seed(opening.commitment, opening.seed.hex()),
        environment=bench.environment(),
        limits=LimitsInForce(
            arena.arm_memory_bytes, arena.arm_threads, arena.call_deadline_ms, arena.attempt_budget_seconds
        ),
        stages=tuple(findings.stages),
        launches=tuple(findings.launches),
        incidents=tuple(findings.incidents),
        ending=findings.ending,
        work=_work(bench),
    )


def _work(bench: Bench) -> tuple[CaseWork, ...]:
    """Return the least work of every case that is measured, numbered through all views."""
    found: list[CaseWork] = []
    start = 0
    for view in (one.docket for one in bench.views()):
        for number in view.contested():
            work = least_work(view.slot, view.shapes[number], view.dtype, view.world_size)
            found.append(CaseWork(start + number, work.least_bytes, work.least_operations))
        start += len(view.shapes)
    return tuple(found)


def _identity(bench: Bench) -> Identity:
    docket = bench.docket
    return Identity(
        content_hash=docket.candidate.content_hash,
        target_id=docket.target.id,
        target_digest=docket.target.digest,
        variants=bench.variants,
        arena_id=docket.arena.id,
        arena_digest=docket.arena.digest,
        incumbent_digest=docket.incumbent_digest,
        candidate_tree_digest=docket.tree.digest,
        tier="host",
        reservation=docket.request.reservation,
        slots=docket.slots,
        gaps=docket.gaps,
    )
