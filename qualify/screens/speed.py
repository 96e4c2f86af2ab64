"""speed: interleaved launches against the incumbent, stopped by the sequential test.

Invariants
1. A short run and an attempt make the same launches in the same sealed order; the short one only makes fewer.
2. The screen fails only when the test has decided NOT_FASTER. Too few launches prove nothing either way: that is
   `passed`, with `undecided` among the facts. The verdict of an attempt is `scoring.grade`'s, not this screen's.
"""

from __future__ import annotations

import functools
import math
import statistics
from dataclasses import dataclass

from qualify.arm_handle import ArmError
from qualify.measure import run_launch
from qualify.screens.base import Examined, ScreenReceipt
from qualify.screens.bench import Bench
from qualify.screens.hints import hint_for
from scoring import sealing
from scoring.attempt import Launch
from scoring.policy import POLICY, find_policy
from scoring.speed import EQUAL_PPM, Decision, SequentialTest, launch_value

_DECISIONS = {
    Decision.PASS: "faster",
    Decision.NOT_FASTER: "not_faster",
    Decision.EXHAUSTED: "undecided",
    Decision.CONTINUE: "undecided",
}


@dataclass(frozen=True, slots=True)
class Speed:
    """The speed screen: as many launches as the arena allows, or, when `short`, as few as can decide."""

    short: bool = False
    name: str = "speed"

    def run(self, bench: Bench, /) -> ScreenReceipt:
        """Measure until the test decides, launches or time run out."""
        return bench.receipt(self.name, self._examine)

    def _examine(self, bench: Bench) -> Examined:
        arena = bench.docket.arena
        test = SequentialTest.for_arena(arena)
        _measure(bench, test, arena.launches_min if self.short else arena.launches_max)
        facts: dict[str, int | str] = {
            "decision": _DECISIONS[test.decision],
            "launches": test.launches,
            "lower_ppm": test.lower_ppm,
            "upper_ppm": test.upper_ppm,
            "needed_ppm": EQUAL_PPM + arena.margin_ppm,
            "estimate_ppm": estimate_ppm(bench.findings.launches, len(bench.docket.gaps)),
        }
        message = _sentence(facts)
        if test.decision is Decision.NOT_FASTER:
            code = Decision.NOT_FASTER.value
            return Examined("failed", message, facts, code=code, blame="miner", hint=hint_for(code))
        return Examined("passed", message, facts)


def estimate_ppm(launches: list[Launch], gaps: int = 0) -> int:
    """Return the median speed ratio of `launches` in ppm (equal = 1_000_000); 0 without launches. Proves nothing."""
    if not launches:
        return 0
    return round(math.exp(statistics.median(launch_value(launch, gaps) for launch in launches)) * EQUAL_PPM)


def _measure(bench: Bench, test: SequentialTest, launches: int) -> None:
    seed, attempt_id = bench.opening.seed, bench.docket.request.attempt_id
    arena, findings, bouts, gaps = bench.docket.arena, bench.findings, bench.bouts(), len(bench.docket.gaps)
    coins = find_policy(arena.speed_policy).betting.open_launches
    for index in range(launches):
        spent_ns = findings.launches[-1].end_ns if findings.launches else bench.rig.now_ns()  # as the grader sees it
        if spent_ns > arena.attempt_budget_seconds * 1_000_000_000:
            if not findings.launches:
                _require_haste(bench)
            findings.ending = "time"
            return
        slot = sealing.candidate_slot(seed, attempt_id, index, open_launches=coins)
        first = functools.partial(sealing.candidate_first, seed, attempt_id, index)
        launch = run_launch(bouts, index, slot, [first(block) for block in range(arena.blocks_per_launch)])
        findings.launches.append(launch)
        decision = test.add_launch(launch_value(launch, gaps), launch.candidate_slot)
        bench.emit(
            {
                "event": "launch",
                "index": index,
                "launches_max": launches,
                "lower_ppm": test.lower_ppm,
                "upper_ppm": test.upper_ppm,
            }
        )
        if decision is not Decision.CONTINUE:
            findings.ending = "launches" if decision is Decision.EXHAUSTED else "decided"
            return


def _require_haste(bench: Bench) -> None:
    """Raise `ArmError` (dawdled) when time ran out before any launch and the candidate's arms took most of it.

    Until then only arms of the candidate have run. Without this it could keep itself from ever being measured.
    """
    budget = bench.docket.arena.attempt_budget_seconds * 1_000_000_000
    calls = sum(sum(record.call_ns) for record in bench.findings.stages)
    starts = sum(view.rig.starting_ns for view in bench.views())
    if 2 * (calls + starts) > budget:
        detail = f"{starts // 1_000_000} ms of starts and {calls // 1_000_000} ms of calls before the first launch"
        raise ArmError("dawdled", detail)


def _sentence(facts: dict[str, int | str]) -> str:
    lower, upper = int(facts["lower_ppm"]), int(facts["upper_ppm"])
    known = [f"at least {_ratio(lower)}"] if lower > 0 else []
    known += [f"at most {_ratio(upper)}"] if upper < POLICY.betting.ratio_ppm_max else []
    bounds = f"proved: {' and '.join(known)}" if known else "nothing is proved yet"
    needed = f"more than {_ratio(int(facts['needed_ppm']))} is needed"
    return f"about {_ratio(int(facts['estimate_ppm']))} of the incumbent's speed ({bounds}; {needed})"


def _ratio(ppm: int) -> str:
    return f"{ppm / EQUAL_PPM:.3f}x"
