"""What a real attempt records beyond times and checks: who ran, what it used, what the work was, which software."""

from __future__ import annotations

from pathlib import Path

import msgspec

from config.arena import load_arena
from qualify.referee import run_attempt
from qualify.sandbox.client import Zygote
from scoring.attempt import ATTEMPT_SCHEMA, encode_attempt, read_attempt
from scoring.grade import grade
from tests.qualify.support import EXAMPLES, describe_bundle, make_request, write_arena


def test_a_real_attempt_fills_what_the_second_schema_added(tmp_path: Path, fork_server: Zygote) -> None:
    """Every arm by itself with processor time and memory, every call of warm-up and stages, work, policy, software."""
    path = Path(write_arena(tmp_path))
    text = path.read_text().replace(
        "[[workloads]]",
        'speed_policy = "cacheon.speed.v2"\npeak_bytes_per_second = 400_000_000_000\n'
        "peak_operations_per_second = 12_500_000_000_000\n\n[[workloads]]",
        1,
    )
    path.write_text(text)
    arena = load_arena(str(path))
    reference = describe_bundle(EXAMPLES / "silu_fast", tmp_path / "report.json")
    attempt = run_attempt(make_request(reference, str(path)), lambda event: None, fork_server)
    assert (attempt.schema, attempt.speed_policy) == (ATTEMPT_SCHEMA, "cacheon.speed.v2")
    assert attempt.stages
    assert all(len(stage.call_ns) == len(stage.checks) and min(stage.call_ns) > 0 for stage in attempt.stages)
    for launch in attempt.launches:
        for role in (launch.baseline, launch.candidate):
            assert len(role.warmup_ns) == len(role.warmup) == 1
            assert min(role.warmup_ns) > 0
            for arm in role.arms:
                assert launch.start_ns <= arm.start_ns < arm.ready_ns <= launch.end_ns
                assert arm.outcome.cpu_ns > 0
                assert 1 << 20 < arm.outcome.peak_rss_bytes <= 2 * arena.arm_memory_bytes
                assert all(process.partition(":")[2].isdigit() for process in arm.processes)
    assert [work.case for work in attempt.work] == [0]
    assert attempt.work[0].least_bytes == 3 * 64 * 1024 * 2
    names = [package.name for package in attempt.environment.packages]
    assert {"numpy", "torch"} <= set(names)
    assert names == sorted(names)
    assert all(len(package.digest) == 64 for package in attempt.environment.packages)
    data = encode_attempt(attempt)
    assert read_attempt(data) == attempt
    assert grade(data, arena) == grade(attempt, arena)
    assert msgspec.to_builtins(attempt)["artifacts"] == ()
