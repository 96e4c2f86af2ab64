"""The runtime's bounds of call arguments, which its decoder enforces and its metadata does not carry.

Invariants
1. A call with an argument beyond its bound is no call of this runtime: the pool refuses it as undecodable, it is never
   included, costs nothing and leaves no event.
2. The numbers are those of the public runtime's source: `MAX_TIMELOCK_COMMITMENT_SIZE_BYTES`,
   `MAX_BIGRAW_COMMITMENT_SIZE_BYTES`, `MAX_CRV3_COMMIT_SIZE_BYTES`, and the constant `Commitments.MaxFields`.
"""

from __future__ import annotations

from collections.abc import Callable

from chain.scale import ScaleError, ScaleReader

TIMELOCK_BYTES = 1_024
BIG_RAW_BYTES = 512
WEIGHT_COMMIT_BYTES = 5_000
COMMITMENT_FIELDS = 3


def bounded(name: str, length: int, most: int) -> None:
    """Raise `ScaleError` when a bounded vector is too long."""
    if length > most:
        raise ScaleError(f"{name} has {length} entries; at most {most} are decoded")


Check = Callable[[ScaleReader], None]
_CHECKS: dict[tuple[str, str], Check] = {}


def argument_check(pallet: str, function: str) -> Callable[[Check], Check]:
    """Register the decorated function, which reads a call's arguments and raises `ScaleError`."""

    def register(check: Check) -> Check:
        _CHECKS[pallet, function] = check
        return check

    return register


def check_arguments(pallet: str, function: str, arguments: ScaleReader) -> None:
    """Raise `ScaleError` for arguments the runtime would not decode."""
    check = _CHECKS.get((pallet, function))
    if check is not None:
        check(arguments)
