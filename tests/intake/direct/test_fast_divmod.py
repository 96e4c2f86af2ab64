"""Division constants: recorded bytes, and exact quotients."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.errors import IntakeError
from intake.direct.fast_divmod import PACKERS, pack_cute, pack_cutlass, pack_fast_divmod
from intake.direct.where import Where

VECTORS = [
    (1, "010000000000000000000000", "010000000100000000000000"),
    (3, "03000000abaaaaaa01000000", "030000005655555501010000"),
    (7, "070000009324499202000000", "070000002549922401020000"),
    (128, "800000000000008006000000", "800000000100000001060000"),
    (1000, "e8030000986e128309000000", "e803000030dd240601090000"),
    (2147483647, "ffffff7f020000801e000000", "ffffff7f03000000011e0000"),
]
MOST = (1 << 31) - 1
NUMBERS = st.integers(0, MOST) | st.integers(0, 64)


@pytest.mark.parametrize(("divisor", "cutlass", "cute"), VECTORS)
def test_recorded_bytes(divisor: int, cutlass: str, cute: str) -> None:
    """Both forms equal the recorded constants."""
    assert pack_cutlass(divisor).hex() == cutlass
    assert pack_cute(divisor).hex() == cute


def quotient_cutlass(packed: bytes, number: int) -> int:
    """Divide as the device does."""
    divisor, multiplier, shift = struct.unpack("<iII", packed)
    return number if divisor == 1 else ((number * multiplier) >> 32) >> shift


def quotient_cute(packed: bytes, number: int) -> int:
    """Divide as the device does, in 32-bit registers."""
    _, multiplier, first, second = struct.unpack("<iIBB2x", packed)
    high = (number * multiplier) >> 32
    return (high + ((number - high) >> first)) >> second


@given(st.integers(1, MOST) | st.integers(1, 64), NUMBERS)
def test_quotients_are_exact(divisor: int, number: int) -> None:
    """Multiplying and shifting by the constants is floor division."""
    assert quotient_cutlass(pack_cutlass(divisor), number) == number // divisor
    assert quotient_cute(pack_cute(divisor), number) == number // divisor


@pytest.mark.parametrize("divisor", [1, 2, 3, 5, 7, 127, 128, 129, 1000, 65535, 65537, (1 << 30) + 1, MOST - 1, MOST])
def test_quotients_at_every_edge(divisor: int) -> None:
    """Around every multiple that matters the quotient steps exactly where it should."""
    multiples = {0, divisor, MOST // divisor * divisor, *(divisor * (MOST // divisor // part) for part in range(1, 50))}
    for multiple in multiples:
        for number in (multiple - 1, multiple, multiple + 1):
            if 0 <= number <= MOST:
                assert quotient_cutlass(pack_cutlass(divisor), number) == number // divisor
                assert quotient_cute(pack_cute(divisor), number) == number // divisor


@pytest.mark.parametrize("kind", sorted(PACKERS))
@pytest.mark.parametrize("divisor", [0, -1, 1 << 31, True, 2.0])
def test_other_divisors_are_refused(kind: str, divisor: object) -> None:
    """A divisor is an integer in 1..2^31-1."""
    with pytest.raises(IntakeError) as caught:
        pack_fast_divmod(kind, divisor, Where(("p",)))
    assert caught.value.code == "DIRECT_EVALUATION"
