"""A node status in which the demo went as it must."""

from __future__ import annotations

import msgspec
import pytest

from node.demo.cast import CAST
from node.status import AttemptStatus, CrownStatus, NodeStatus, PublicationStatus, SubmissionStatus

HOTKEYS = {player.wallet: f"hotkey-of-{player.wallet}" for player in CAST}


def attempt(role: str, lower: int, upper: int, *, state: str = "graded") -> AttemptStatus:
    """One attempt."""
    return AttemptStatus("id", role, state, "", "", lower, upper, 10, "", "", "")


def submission(wallet: str, state: str, code: str, *attempts: AttemptStatus, final: bool = True) -> SubmissionStatus:
    """One submission."""
    return SubmissionStatus(
        id=wallet,
        hotkey=HOTKEYS[wallet],
        block=5,
        event_index=0,
        content_hash=f"hash-of-{wallet}",
        url="",
        state=state,
        code=code,
        blame="miner" if code else "",
        detail="",
        seen_hash="",
        earlier_id="",
        target_id="t",
        fetches=1,
        not_before_ms=0,
        attempts=attempts,
        speedup_ppm=0,
        weight_ppm=0,
        final=final,
    )


@pytest.fixture
def good_status() -> NodeStatus:
    """Every submission decided as the cast says, one crown, one confirmed publication."""
    winner = next(player.wallet for player in CAST if player.wins)
    submissions = [
        submission(player.wallet, "failed", player.expected[0], attempt("primary", 900_000, 1_010_000))
        for player in CAST
        if not player.wins
    ]
    won = submission(winner, "settled", "", attempt("primary", 1_400_000, 0), attempt("reproduction", 1_300_000, 0))
    won = msgspec.structs.replace(won, speedup_ppm=1_300_000)
    publication = PublicationStatus("p", 3, "confirmed", "d", ((HOTKEYS[winner], 1_000_000),), 10, 11, 80, "0x", "", "")
    return NodeStatus(
        schema="cacheon.node-status.v1",
        state_dir="/s",
        running_pid=0,
        genesis_hash="",
        netuid=2,
        cursor_block=9,
        cursor_hash="",
        epoch=3,
        counts={},
        submissions=(won, *submissions),
        crowns=(CrownStatus("t", winner, HOTKEYS[winner], "h", 1_300_000, 5, True, ""),),
        publication=publication,
        publications=(publication,),
        weights=publication.entries,
        arena="",
        arena_digest="",
        waived=(),
        events=1,
        events_head="",
    )
