"""What chain-status makes of the chain's and a node's view."""

from __future__ import annotations

import msgspec
import pytest

from chain.blocks import BlockRef
from chain.commitments import CommitmentState, RevealedPayload
from node.cli.actions.chain_status import Wanted, standings
from node.status import NodeStatus, SubmissionStatus

HOTKEY, A, B = "5Hot", "a" * 64, "b" * 64
HEAD = BlockRef(100, "0x00")


def node_view(*submissions: SubmissionStatus) -> NodeStatus:
    """A node that knows these submissions."""
    return NodeStatus(
        schema="",
        state_dir="",
        running_pid=0,
        genesis_hash="",
        netuid=2,
        cursor_block=0,
        cursor_hash="",
        epoch=-1,
        counts={},
        submissions=submissions,
        crowns=(),
        publication=None,
        publications=(),
        weights=(),
        arena="",
        arena_digest="",
        waived=(),
        events=0,
        events_head="",
    )


def submission(content_hash: str, block: int, state: str, *, final: bool) -> SubmissionStatus:
    """One submission of the hotkey as a node sees it."""
    return SubmissionStatus(
        id="i",
        hotkey=HOTKEY,
        block=block,
        event_index=0,
        content_hash=content_hash,
        url="u",
        state=state,
        code="C",
        blame="miner",
        detail="",
        seen_hash="",
        earlier_id="",
        target_id="",
        fetches=0,
        not_before_ms=0,
        attempts=(),
        speedup_ppm=0,
        weight_ppm=0,
        final=final,
    )


def test_a_sealed_commitment_counts_rounds() -> None:
    """A sealed commitment is one pending row; its content is not known, so it carries the hash that was asked for."""
    state = CommitmentState(HEAD, "sealed", committed_block=90, reveal_round=1012, last_round=1000)
    (row,) = standings(Wanted(HOTKEY, A), state, None)
    assert (row.stage, row.block, row.rounds_left, row.content_hash, row.final) == ("sealed", 90, 12, A, False)
    (anonymous,) = standings(Wanted(HOTKEY, ""), state, None)
    assert (anonymous.id, anonymous.content_hash) == (f"{HOTKEY}:block-90", "")


def test_without_a_node_a_reveal_is_the_end() -> None:
    """The chain alone can only say that a payload was opened; an unusable one is refused with its reason."""
    reveals = (RevealedPayload(80, "d", A, "u"), RevealedPayload(85, "d", reason="PAYLOAD_NOT_JSON"))
    rows = standings(Wanted(HOTKEY, ""), CommitmentState(HEAD, "revealed", reveals=reveals), None)
    assert [(row.stage, row.code, row.final) for row in rows] == [
        ("revealed", "", True),
        ("refused", "PAYLOAD_NOT_JSON", True),
    ]


def test_a_node_knows_better() -> None:
    """With a node's view its state replaces the bare reveal, and a reveal it has not read yet is pending."""
    reveals = (RevealedPayload(80, "d", A, "u"), RevealedPayload(99, "d", B, "u"))
    state = CommitmentState(HEAD, "revealed", reveals=reveals)
    rows = standings(Wanted(HOTKEY, ""), state, node_view(submission(A, 80, "failed", final=True)))
    assert [(row.content_hash, row.stage, row.final) for row in rows] == [(A, "failed", True), (B, "revealed", False)]


@pytest.mark.parametrize("wanted", [A, B])
def test_only_what_was_asked_for(wanted: str) -> None:
    """A content hash selects; a newer sealed commitment does not hide the answer."""
    reveals = (RevealedPayload(80, "d", A, "u"), RevealedPayload(81, "d", B, "u"))
    state = CommitmentState(HEAD, "sealed", committed_block=95, reveal_round=1012, last_round=1000, reveals=reveals)
    rows = standings(Wanted(HOTKEY, wanted), state, None)
    assert [row.content_hash for row in rows] == [wanted]
    assert msgspec.json.encode(rows)
