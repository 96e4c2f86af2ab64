"""Public addresses and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intake.addresses import address_problem
from tests.intake.differences import ADDRESSES
from tests.intake.support import golden


@pytest.mark.parametrize("vector", golden("ip_vectors")["vectors"], ids=lambda vector: vector["address"])
def test_golden_addresses(vector: dict[str, Any]) -> None:
    """Recorded addresses are judged as recorded, less those that only look public."""
    expected = vector["accept"] and vector["address"] not in ADDRESSES
    assert (address_problem(vector["address"]) == "") is expected


@pytest.mark.parametrize(
    "address",
    [
        "224.0.0.1",
        "ff02::1",
        "169.254.169.254",
        "fd00:ec2::254",
        "100.100.100.200",
        "64:ff9b::7f00:1",
        "64:ff9b:1::a00:1",
        "2001:0:4136:e378::",
        "2600:1f00::5efe:a00:1",
        "::ffff:10.0.0.1",
        "::10.0.0.1",
        "255.255.255.255",
        "192.0.0.170",
        "2001:db8::1",
    ],
)
def test_ranges_that_lead_inside_are_refused(address: str) -> None:
    """Multicast, metadata services and carriers of IPv4 addresses are not public hosts."""
    assert address_problem(address)


@pytest.mark.parametrize(
    ("address", "good"), [("127.0.0.1", True), ("::1", True), ("10.0.0.1", False), ("8.8.8.8", False)]
)
def test_the_loopback_profile_admits_loopback_only(address: str, good: bool) -> None:
    """Loopback http reaches this machine and nothing else."""
    assert (address_problem(address, allow_loopback=True) == "") is good


@given(st.ip_addresses() | st.text(max_size=20))
def test_any_text_is_judged(address: object) -> None:
    """No input makes the review raise."""
    assert isinstance(address_problem(str(address)), str)
