"""What a call is charged beyond its own time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from qualify.checked_call import overtime_ns

MIB = 1 << 20


def test_placing_is_free_up_to_a_wake_up_and_a_look_at_every_page() -> None:
    """What takes longer is part of the call: nothing is gained by working before the clock runs."""
    tensor = torch.empty(MIB, dtype=torch.float32)
    question: Any = SimpleNamespace(inputs={"x": tensor}, answers={"out": tensor})
    pages = 2 * 4 * MIB // 4096
    free = 1_000_000 + 1_000 * pages
    assert overtime_ns(300_000, question) == 0
    assert overtime_ns(free, question) == 0
    assert overtime_ns(free + 5, question) == 5


def test_ranks_that_place_in_turn_have_time_for_each() -> None:
    """A group shares one core, so placing its calls may take as many times as long."""
    question: Any = SimpleNamespace(inputs={}, answers={"out": torch.empty(MIB)})
    free = 1_000_000 + 1_000 * 4 * MIB // 4096
    assert overtime_ns(4 * free, question, 4) == 0
    assert overtime_ns(4 * free + 5, question, 4) == 5
