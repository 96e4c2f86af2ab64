"""The two 12-byte division constants that CUTLASS and CuTe kernels take in place of a divisor.

Invariants
1. For every divisor in 1..2^31-1 and numerator in 0..2^31-1 the packed constants reproduce floor division.
2. Both are little-endian; the unused bytes of the CuTe form are zero.
"""

from __future__ import annotations

import struct

from config.limits import DIRECT
from intake.direct.where import Where

SIZE = 12  # bytes


def pack_cutlass(divisor: int) -> bytes:
    """Return divisor, multiplier, right shift (`i32 u32 u32`): q = umulhi(n, m) >> s; q = n when the divisor is 1."""
    if divisor == 1:
        return struct.pack("<iII", 1, 0, 0)
    power = 31 + (divisor - 1).bit_length()
    return struct.pack("<iII", divisor, -(-(1 << power) // divisor), power - 32)


def pack_cute(divisor: int) -> bytes:
    """Return divisor, multiplier, two shifts (`i32 u32 u8 u8`): t = umulhi(n, m); q = (t + ((n - t) >> s1)) >> s2."""
    bits = (divisor - 1).bit_length()
    multiplier = (1 << 32) * ((1 << bits) - divisor) // divisor + 1
    return struct.pack("<iIBB2x", divisor, multiplier, min(bits, 1), max(bits - 1, 0))


PACKERS = {"cutlass_fast_divmod_i32_v1": pack_cutlass, "cute_fast_divmod_i32_v1": pack_cute}


def pack_fast_divmod(kind: str, divisor: object, where: Where) -> bytes:
    """Return the 12 bytes of a parameter of `kind`. Raises DIRECT_EVALUATION for a divisor outside 1..2^31-1."""
    if type(divisor) is not int or not 1 <= divisor <= DIRECT.divisor:
        raise where.refusal("DIRECT_EVALUATION", f"the divisor is not in 1..{DIRECT.divisor} for this call.")
    return PACKERS[kind](divisor)
