"""Calls that are too short to be timed from outside are told, and change no verdict."""

from __future__ import annotations

import msgspec

from scoring.attempt import Attempt
from scoring.call_length import CALL_FLOOR_NS, short_call_notes, short_calls
from scoring.grade import grade
from tests.scoring.support import TARGET, FakeReferee, make_arena

ARENA = make_arena()


def timed(factor: int) -> Attempt:
    """Return an attempt whose calls take `factor` times 0.1 ms in the baseline."""
    attempt = FakeReferee(ARENA).measure()
    launches = []
    for launch in attempt.launches:
        blocks = []
        for block in launch.blocks:
            longer = msgspec.structs.replace(
                block.baseline, call_ns=tuple(factor * ns for ns in block.baseline.call_ns)
            )
            blocks.append(msgspec.structs.replace(block, baseline=longer))
        launches.append(msgspec.structs.replace(launch, blocks=tuple(blocks)))
    return msgspec.structs.replace(attempt, launches=tuple(launches))


def test_short_calls_are_named_with_slot_shape_and_time() -> None:
    """Each shape of the workload has its own sentence, and the verdict does not know of it."""
    attempt = timed(1)
    assert set(short_calls(attempt)) == {0, 1}
    assert all(median < CALL_FLOOR_NS for median in short_calls(attempt).values())
    first, second = short_call_notes(attempt, ARENA)
    assert f"{TARGET} at num_tokens=8 d=64 take 0.10 ms" in first
    assert "num_tokens=16" in second
    assert grade(attempt, ARENA).outcome == "PASS"


def test_long_calls_are_not_worth_a_word() -> None:
    """Half a millisecond and more is what arenas should have."""
    assert short_calls(timed(6)) == {}
    assert short_call_notes(timed(6), ARENA) == []
