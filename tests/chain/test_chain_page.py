"""docs/chain.md names every code a reveal can have, and the numbers the code has."""

from __future__ import annotations

import re
from pathlib import Path

from chain.payload import SEAL_OVERHEAD_BYTES, SEALABLE_BYTES, Payload, longest_url
from chain.reveal_rows import RING
from config.codes import load_codes
from config.limits import CHAIN

PAGE = (Path(__file__).parents[2] / "docs" / "chain.md").read_text("utf-8")
NOT_OF_REVEALS = {"PAYLOAD_INVALID", "PAYLOAD_NOT_BYTES", "PAYLOAD_UNSEALABLE", "REVEAL_SOURCES_DISAGREE"}
OF_PUBLICATION = {"REVEAL_PENDING"}


def test_every_code_of_a_reveal_has_a_row() -> None:
    """The table has a row for each code that a recorded reveal can carry, and no other."""
    rows = set(re.findall(r"^\| `((?:PAYLOAD|REVEAL)_[A-Z_]+)` \|", PAGE, re.MULTILINE))
    codes = {code for code in load_codes() if code.startswith(("PAYLOAD_", "REVEAL_"))}
    assert rows == codes - NOT_OF_REVEALS - OF_PUBLICATION


def test_the_numbers_are_those_of_the_code() -> None:
    """Lengths, rings and passes on the page are computed here."""
    digest = "0" * 64
    largest = Payload(digest, "", 2**32 - 1, 2**32 - 1)
    assert f"URL of **{longest_url(Payload(digest, ''))} characters** without" in PAGE
    assert f"between {longest_url(largest)} and {longest_url(Payload(digest, '', 1, 1))} with one" in PAGE
    assert f"sealing adds {SEAL_OVERHEAD_BYTES}" in PAGE
    assert f"So {SEALABLE_BYTES} bytes" in PAGE
    assert f"up to {CHAIN.scan_blocks} blocks in a pass" in PAGE
    assert f"{CHAIN.dispute_passes} passes with growing pauses" in PAGE
    assert RING == 10
