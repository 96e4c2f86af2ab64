"""When to fetch again. Pure: the caller owns the clock and the dice."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class RetryPolicy:
    """How often, and how far apart. Delays double from `base_seconds` up to `cap_seconds`."""

    attempts: int
    base_seconds: float
    cap_seconds: float


def retry_delay(attempt: int, policy: RetryPolicy, dice: random.Random) -> float | None:
    """Return the seconds to wait after failed attempt number `attempt` (from 0); None when the budget is used up.

    The delay is drawn from the upper half of its interval, so that many nodes do not return to a host together.
    """
    if attempt + 1 >= policy.attempts:
        return None
    ceiling = min(policy.cap_seconds, policy.base_seconds * 2.0 ** min(attempt, 62))
    return ceiling * dice.uniform(0.5, 1.0)
