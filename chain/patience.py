"""Asking the chain again before giving up, for reads that may be repeated.

Invariants
1. Only reads are asked again, never anything that is signed.
2. Only faults of an endpoint are: a refusal that another answer cannot change is raised at once.
3. The number of attempts and the pauses are bounded; the last error is raised as it came.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from config.errors import ChainError, NetworkError

T = TypeVar("T")
ATTEMPTS = 5
FIRST_PAUSE_SECONDS = 0.1  # doubled after every attempt: 1.5 s in all
_OTHERS_MAY_KNOW = frozenset({"CHAIN_STATE_PRUNED", "CHAIN_DECODE_FAILED", "CHAIN_REQUEST_FAILED"})


async def patiently(
    ask: Callable[[], Awaitable[T]], *, attempts: int = ATTEMPTS, pause: float | None = None
) -> T:
    """Return what `ask` returns, asking at most `attempts` times. Raises its last error."""
    first_pause = FIRST_PAUSE_SECONDS if pause is None else pause
    for attempt in range(1, attempts + 1):
        try:
            return await ask()
        except (NetworkError, ChainError) as error:
            if attempt == attempts or not is_passing(error):
                raise
        await asyncio.sleep(first_pause * 2 ** (attempt - 1))
    raise AssertionError("the last attempt returns or raises")


def is_passing(error: Exception) -> bool:
    """Say whether asking again, perhaps another endpoint, may give an answer."""
    return isinstance(error, NetworkError) or (isinstance(error, ChainError) and error.code in _OTHERS_MAY_KNOW)
