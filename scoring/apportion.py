"""Largest-remainder apportionment of a pool among integer credits.

Invariants
1. The shares are non-negative integers that sum to the pool exactly; only integer arithmetic is used.
2. Remainders are served from the largest down; ties go to the smaller key.
3. A key whose share is zero is not in the result, so no row of a weight vector is ever zero.
"""

from __future__ import annotations

from collections.abc import Mapping

from config.errors import InternalError

PPM = 1_000_000


def apportion(credit_of: Mapping[str, int], pool: int = PPM) -> dict[str, int]:
    """Return `pool` split in proportion to the positive `credit_of`, keys ascending; empty when no credit is positive.

    Raises `InternalError` (APPORTION_INPUT) for a negative credit or pool.
    """
    if pool < 0 or any(credit < 0 for credit in credit_of.values()):
        raise InternalError("APPORTION_INPUT", "credits and pool must not be negative")
    positive = sorted((key, credit) for key, credit in credit_of.items() if credit > 0)
    total = sum(credit for _, credit in positive)
    if total == 0:
        return {}
    shares = {key: credit * pool // total for key, credit in positive}
    by_remainder = sorted(positive, key=lambda item: (-(item[1] * pool % total), item[0]))
    for key, _ in by_remainder[: pool - sum(shares.values())]:
        shares[key] += 1
    return {key: share for key, share in shares.items() if share > 0}
