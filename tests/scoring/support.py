"""Made-up arenas and attempts: what a faithful referee would record of a machine with known noise."""

from __future__ import annotations

import hashlib
import math
import random
from typing import Any

import msgspec

from config.arena import CPU_TIMING_METHOD, Arena, Workload
from scoring import sealing
from scoring.attempt import (
    ATTEMPT_SCHEMA,
    ArmProcess,
    ArmRecord,
    Attempt,
    Block,
    CallCheck,
    CaseWork,
    ChildOutcome,
    Environment,
    Identity,
    Launch,
    LimitsInForce,
    Reservation,
    RoleBlock,
    Seed,
    StageRecord,
)
from scoring.policy import find_policy
from scoring.speed import Decision, SequentialTest, launch_value

TARGET = "norm.rmsnorm"
DONE = ChildOutcome("exited", 0, 0, "")


def make_arena(**changes: Any) -> Arena:
    """Return a small arena; `changes` replaces fields."""
    arena = Arena(
        schema="cacheon.arena.v1", id="test", kind="cpu", timing_method=CPU_TIMING_METHOD, alpha_ppm=5000,
        margin_ppm=50_000, launches_min=10, launches_max=24, blocks_per_launch=4, calls_per_block=2, warmup_calls=2,
        call_deadline_ms=1000, attempt_budget_seconds=60, arm_memory_bytes=1 << 30, arm_threads=1,
        implausible_speedup_ppm=20_000_000,
        workloads=(Workload(TARGET, "bfloat16", ({"num_tokens": 8, "d": 64}, {"num_tokens": 16, "d": 64})),),
    )  # fmt: skip
    return msgspec.structs.replace(arena, **changes)


def short(*parts: object) -> str:
    """Return a 16-character fingerprint of `parts`."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def digest(*parts: object) -> str:
    """Return a 64-character digest of `parts`."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()


class FakeReferee:
    """Records launches of a machine where the candidate is `gain` (log-ratio) faster, with noise of size `noise`."""

    scatter = 0.0  # size of the noise that both roles of a launch share

    def __init__(self, arena: Arena, *, gain: float = 0.4, noise: float = 0.01, number: int = 1, drift: float = 0.0):
        self.arena, self.gain, self.noise, self.drift = arena, gain, noise, drift
        self.number = number
        self.attempt_id = f"attempt-{number}"
        self.seed = hashlib.sha256(b"seed%d" % number).digest()
        self.random = random.Random(number)
        self.clock = 1000
        self.start_ns = {"baseline": 100, "candidate": 100}  # from the fork to being ready
        self.warmup_ns = 50_000  # of every warm-up call
        self.pause_ns = 50  # of the referee's own, after every launch

    @property
    def warmup_calls(self) -> int:
        """As many as the arena asks for, and one for every case at least."""
        return max(self.arena.warmup_calls, len(self.arena.workloads[0].shapes))

    def check(self, *where: object) -> CallCheck:
        """Return a passing check with fingerprints of its own."""
        return CallCheck(short("in", self.number, *where), short("out", self.number, *where), "", 200_000)

    def role_block(self, where: tuple[object, ...], mean_ns: float) -> RoleBlock:
        """Return one role's calls and move the clock past them."""
        calls = tuple(max(1, round(mean_ns)) for _ in range(self.arena.calls_per_block))
        checks = tuple(self.check(*where[1:], call) for call in range(len(calls)))
        block = RoleBlock(self.clock, calls, checks)
        self.clock += sum(calls) + 10
        return block

    def arm(self, role: str, launch: int, slot: int, start: int) -> ArmRecord:
        """Return the record of one arm."""
        warmup = tuple(self.check("warm-up", launch, call) for call in range(self.warmup_calls))
        arm = ArmProcess((f"{self.number}:{launch}:{role}",), start, start + self.start_ns[role], 0, DONE)
        return ArmRecord(slot, slot, (arm,), (self.warmup_ns,) * len(warmup), warmup)

    def launch(self, index: int) -> Launch:
        """Return one complete launch."""
        coins = find_policy(self.arena.speed_policy).betting.open_launches
        slot = sealing.candidate_slot(self.seed, self.attempt_id, index, open_launches=coins)
        start, arms = self.clock, {}
        for at, role in enumerate(("candidate", "baseline") if slot == 0 else ("baseline", "candidate")):
            arms[role] = self.arm(role, index, at, self.clock)
            self.clock = arms[role].ready_ns
        self.clock += sum(arm.first_call_ns for arm in arms.values()) + 100
        luck = self.random.gauss(0, self.noise)
        blocks = tuple(self.block(index, number, luck) for number in range(self.arena.blocks_per_launch))
        end, self.clock = self.clock + self.pause_ns, self.clock + self.pause_ns + 50
        return Launch(
            index, slot, self.arena.timing_method, start, end, arms["baseline"], arms["candidate"], blocks
        )

    def block(self, launch: int, number: int, luck: float) -> Block:
        """Return one block in sealed order."""
        shared = random.Random(launch).gauss(0, self.scatter)
        base = 100_000 * math.exp(self.drift * launch + shared)
        durations = {"baseline": base, "candidate": base * math.exp(-self.gain - luck)}
        first = sealing.candidate_first(self.seed, self.attempt_id, launch, number)
        order = ("candidate", "baseline") if first else ("baseline", "candidate")
        parts = {role: self.role_block((role, launch, number), durations[role]) for role in order}
        case = number % len(self.arena.workloads[0].shapes)
        return Block(case, "candidate" if first else "baseline", parts["baseline"], parts["candidate"])

    def measure(self, **changes: Any) -> Attempt:
        """Return a whole attempt; `changes` replaces fields of the document."""
        test = SequentialTest.for_arena(self.arena)
        launches = []
        while test.decision is Decision.CONTINUE:
            launches.append(self.launch(len(launches)))
            test.add_launch(launch_value(launches[-1]), launches[-1].candidate_slot)
        ending = "launches" if test.decision is Decision.EXHAUSTED else "decided"
        return msgspec.structs.replace(self.document(tuple(launches)), **{"ending": ending, **changes})

    def document(self, launches: tuple[Launch, ...]) -> Attempt:
        """Return the document around `launches`."""
        arena = self.arena
        return Attempt(
            schema=ATTEMPT_SCHEMA, attempt_id=self.attempt_id, role="primary", previous_attempt="",
            started_unix_ns=10**10 * self.number, ended_unix_ns=10**10 * self.number + 10**9,
            identity=Identity(
                digest("bundle"), TARGET, digest("target"), ("norm.rmsnorm/fast",), arena.id, arena.digest,
                digest("stock"), digest("tree"), "host", Reservation(5, 1, "5Miner"),
            ),
            speed_policy=arena.speed_policy,
            seed=Seed(sealing.commitment(self.seed, self.attempt_id), self.seed.hex()),
            environment=Environment(
                "machine", "cpu", "6.1", "3.11.9", "2.13.0", (0, 1), "0.10", "0.20", ("netns",), (),
                arena.timing_method,
            ),
            limits=LimitsInForce(
                arena.arm_memory_bytes, arena.arm_threads, arena.call_deadline_ms, arena.attempt_budget_seconds
            ),
            stages=(StageRecord("hidden", {"num_tokens": 9, "d": 64}, "bfloat16", (self.check("stage"),), (1000,)),),
            launches=launches, incidents=(), ending="decided",
            work=tuple(CaseWork(case, 1000, 1000) for case in range(len(arena.workloads[0].shapes))),
        )  # fmt: skip


def change(value: Any, path: str, new: Any) -> Any:
    """Return a copy of nested frozen structs and tuples with the field at dotted `path` replaced."""
    head, _, rest = path.partition(".")
    if isinstance(value, tuple):
        index = int(head)
        inner = change(value[index], rest, new) if rest else new
        return (*value[:index], inner, *value[index + 1 :])
    inner = change(getattr(value, head), rest, new) if rest else new
    return msgspec.structs.replace(value, **{head: inner})


def relaid(attempt: Attempt) -> Attempt:
    """Return `attempt` with its durations kept, and laid out one after the other on the clock."""
    clock = max(1000, sum(sum(stage.call_ns) for stage in attempt.stages))
    launches = []
    for launch in attempt.launches:
        begin = clock
        arms: dict[str, ArmRecord] = {}
        for role in sorted(("baseline", "candidate"), key=lambda role: getattr(launch, role).slot):
            record = getattr(launch, role)
            moved = []
            for arm in record.arms:
                took = max(arm.ready_ns - arm.start_ns, arm.prepare_ns)
                moved.append(msgspec.structs.replace(arm, start_ns=clock, ready_ns=clock + took))
                clock += took
            arms[role] = msgspec.structs.replace(record, arms=tuple(moved))
        clock += sum(record.first_call_ns for record in arms.values()) + 100
        blocks = []
        for block in launch.blocks:
            parts = {}
            for role in ("candidate", "baseline") if block.first == "candidate" else ("baseline", "candidate"):
                parts[role] = msgspec.structs.replace(getattr(block, role), start_ns=clock)
                clock += sum(parts[role].call_ns) + 10
            blocks.append(msgspec.structs.replace(block, **parts))
        changed = {"blocks": tuple(blocks), "start_ns": begin, "end_ns": clock + 50, **arms}
        launches.append(msgspec.structs.replace(launch, **changed))
        clock += 100
    return msgspec.structs.replace(attempt, launches=tuple(launches))


def out_of_time(attempt: Attempt, arena: Arena) -> Attempt:
    """Return `attempt` as it ends when its last launch ends just beyond the budget of `arena`."""
    last = attempt.launches[-1]
    late = msgspec.structs.replace(last, end_ns=arena.attempt_budget_seconds * 1_000_000_000 + 1)
    return msgspec.structs.replace(attempt, launches=(*attempt.launches[:-1], late), ending="time")
