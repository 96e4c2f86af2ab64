"""What chain-status makes of the chain's and a node's view."""

from __future__ import annotations

import msgspec
import pytest

from chain.blocks import BlockRef
from chain.commitments import CommitmentState, RevealedPayload
from config.errors import ExitCode
from node.cli.standings import NodeView, Wanted, exit_code, stage_text, standings
from node.status import SubmissionStatus

HOTKEY, A, B = "5Hot", "a" * 64, "b" * 64
HEAD = BlockRef(100, "0x00")


def node_view(*submissions: SubmissionStatus, cursor_block: int = 0) -> NodeView:
    """A node that knows these submissions."""
    return NodeView(genesis_hash="0x", netuid=2, cursor_block=cursor_block, submissions=submissions)


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


def test_a_reveal_that_the_node_left_behind_is_told() -> None:
    """A node that read the block without it will never have it; one that is not there yet may."""
    state = CommitmentState(HEAD, "revealed", reveals=(RevealedPayload(80, "d", A, "u"),))
    for cursor, stage, final in ((79, "revealed", False), (80, "not_taken", True)):
        (row,) = standings(Wanted(HOTKEY, A), state, node_view(cursor_block=cursor))
        assert (row.stage, row.final) == (stage, final)
    assert "start_block" in row.detail
    assert exit_code([row]) is ExitCode.NOT_FOUND


@pytest.mark.parametrize(
    ("state", "code"),
    [
        ("settled", ExitCode.OK),
        ("failed", ExitCode.REJECTED),
        ("expired", ExitCode.NOT_FOUND),
    ],
)
def test_the_exit_code_is_the_verdicts(state: str, code: ExitCode) -> None:
    """A crown is 0, a rejection 3; pending work in the list is 7, whatever else is decided."""
    nothing = CommitmentState(HEAD, "none")
    rows = standings(Wanted(HOTKEY, ""), nothing, node_view(submission(A, 80, state, final=True)))
    assert exit_code(rows) is code
    pending = submission(B, 70, "measuring", final=False)
    rows = standings(Wanted(HOTKEY, ""), nothing, node_view(submission(A, 80, state, final=True), pending))
    assert exit_code(rows) is ExitCode.NOT_FOUND


def test_the_newest_verdict_decides() -> None:
    """An older rejection does not spoil a later crown."""
    both = node_view(submission(A, 80, "failed", final=True), submission(B, 90, "settled", final=True))
    assert exit_code(standings(Wanted(HOTKEY, ""), CommitmentState(HEAD, "none"), both)) is ExitCode.OK
    assert exit_code(()) is ExitCode.NOT_FOUND


def test_a_revoked_crown_is_a_rejection() -> None:
    """It is final and said in words; one that waits for a check of a crown is pending, at no cost."""
    nothing = CommitmentState(HEAD, "none")
    told = msgspec.structs.replace(submission(A, 80, "settled", final=True), code="CROWN_REVOKED")
    (row,) = standings(Wanted(HOTKEY, ""), nothing, node_view(told))
    assert (exit_code([row]), stage_text(row)) == (ExitCode.REJECTED, "crowned, and the crown revoked")
    waits = msgspec.structs.replace(submission(A, 80, "parked", final=False), code="CROWN_IN_CHECK")
    (row,) = standings(Wanted(HOTKEY, ""), nothing, node_view(waits))
    assert exit_code([row]) is ExitCode.NOT_FOUND
    assert "free of charge" in stage_text(row)


def test_what_the_chain_could_not_open_is_its_fault() -> None:
    """A timelock that failed to open is final, and no rejection of the bundle."""
    (row,) = standings(Wanted(HOTKEY, A), CommitmentState(HEAD, "failed", committed_block=90), None)
    assert (row.final, exit_code([row])) == (True, ExitCode.CHAIN)
    assert "chain" in stage_text(row)
