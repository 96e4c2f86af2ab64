"""The fixed-beacon convention."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chain.devnet import beacon
from chain.devnet.scale import compact


@settings(max_examples=20, deadline=None)
@given(st.binary(max_size=2_000))
def test_sealed_bytes_open(data: bytes) -> None:
    """What was sealed opens to the same bytes under the fixed signature."""
    assert beacon.unseal(beacon.seal(data)) == data


def test_other_signature_does_not_open() -> None:
    """The signature of another round does not open what was sealed, so the decryption is real."""
    other = bytes.fromhex(
        "b6cb8f482a0b15d45936a4c4ea08e98a087e71787caee3f4d07a8a9843b1bc5423c6b3c22f446488b3137eaca799c77e"
    )
    with pytest.raises(beacon.BeaconError):
        beacon.unseal(beacon.seal(b"secret"), other)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=400), st.integers(0, 250))
def test_hostile_bytes_only_raise(data: bytes, cut: int) -> None:
    """Arbitrary and truncated ciphertexts raise `BeaconError` and nothing else."""
    for ciphertext in (data, beacon.seal(b"x")[:cut] + data[:3]):
        try:
            beacon.unseal(ciphertext)
        except beacon.BeaconError:
            continue


def test_rounds_follow_blocks() -> None:
    """One round per block, starting at the round that ciphertexts are really sealed to."""
    assert [beacon.round_of_block(block) for block in (0, 1, 2)] == [1000, 1001, 1002]
    assert beacon.reveal_round_after(10, 2) == beacon.round_of_block(11)


@settings(deadline=None)
@given(st.integers(0, 2**30 - 1))
def test_compact_lengths_agree(value: int) -> None:
    """The module's own compact encoding, kept to stay free of imports, is the node's."""
    assert beacon._compact(value) == compact(value)


def test_import_is_light() -> None:
    """Importing the convention starts neither the codec nor the server."""
    code = (
        "import sys, chain.devnet.beacon; "
        "print([m for m in ('bittensor', 'bittensor_core', 'websockets', 'msgspec', 'asyncio') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
