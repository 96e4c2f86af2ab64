"""Where the submissions of one hotkey stand, put together from the chain's view and a node's.

Invariants
1. Pure: what the chain and the node said comes in, rows come out, oldest first.
2. What a node knows goes before what the chain shows. A reveal that a node has not read yet is pending.
3. The exit code is that of the verdict: it follows from the rows alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from config.errors import ExitCode
from node.cli.miner import submission_id
from node.kinship import Kinship

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chain.commitments import CommitmentState

SEALED, REVEALED, REFUSED, FAILED_TO_OPEN, UNKNOWN_TO_NODE = "sealed", "revealed", "refused", "not_opened", "not_taken"
_REJECTED = ("failed", REFUSED)
_REVOKED, _IN_CHECK = "CROWN_REVOKED", "CROWN_IN_CHECK"  # codes of a settled and of a parked submission


class Standing(msgspec.Struct, frozen=True):
    """One submission of a hotkey. `block` is where it was committed (while sealed) or revealed.

    `rounds_left` counts beacon rounds until a sealed one opens; `weight_ppm` is its confirmed share.
    """

    id: str
    hotkey: str
    content_hash: str
    url: str
    stage: str
    block: int
    rounds_left: int
    code: str
    blame: str
    detail: str
    weight_ppm: int
    final: bool
    kinship: Kinship | None = None  # what it shares with an earlier submission, when a node knows it


class Wanted(msgspec.Struct, frozen=True):
    """Whose submissions are asked for; an empty content hash means all of them."""

    hotkey: str
    content_hash: str


class KnownSubmission(Protocol):
    """What a node says of one submission, from its folder or from its pages."""

    @property
    def hotkey(self) -> str: ...
    @property
    def block(self) -> int: ...
    @property
    def content_hash(self) -> str: ...
    @property
    def url(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def code(self) -> str: ...
    @property
    def blame(self) -> str: ...
    @property
    def detail(self) -> str: ...
    @property
    def weight_ppm(self) -> int: ...
    @property
    def final(self) -> bool: ...
    @property
    def kinship(self) -> Kinship | None: ...


class NodeView(msgspec.Struct, frozen=True):
    """What a node knows of a hotkey: the chain it follows, how far it has read, and the submissions."""

    genesis_hash: str
    netuid: int
    cursor_block: int
    submissions: tuple[KnownSubmission, ...]


def standings(wanted: Wanted, state: CommitmentState, view: NodeView | None) -> tuple[Standing, ...]:
    """Return the submissions that `wanted` names, oldest first."""
    known = {}
    for submission in view.submissions if view else ():
        if submission.hotkey == wanted.hotkey:
            known[submission.content_hash, submission.block] = submission
    rows = [_from_node(submission) for submission in known.values()]
    for reveal in state.reveals:
        if (reveal.content_hash, reveal.block) in known:
            continue
        row = _row(wanted.hotkey, reveal.content_hash, REVEALED, reveal.block, final=view is None)
        row = msgspec.structs.replace(row, url=reveal.url, code=reveal.reason)
        rows.append(_refused(row) if reveal.reason else _not_taken(row, view))
    if wanted.content_hash:
        rows = [row for row in rows if row.content_hash == wanted.content_hash]
    if state.status in ("sealed", "failed") and not (wanted.content_hash and rows):
        # a sealed commitment does not say what is in it: it counts as the one asked for until something else turns up
        stage, final = (SEALED, False) if state.status == "sealed" else (FAILED_TO_OPEN, True)
        row = _row(wanted.hotkey, wanted.content_hash, stage, state.committed_block or 0, final=final)
        rows.append(msgspec.structs.replace(row, rounds_left=max(0, (state.reveal_round or 0) - state.last_round)))
    return tuple(sorted(rows, key=lambda row: row.block))


def exit_code(rows: Sequence[Standing]) -> ExitCode:
    """Return NOT_FOUND while anything is pending or nothing is known, else the exit code of the newest verdict."""
    if not rows or not all(row.final for row in rows):
        return ExitCode.NOT_FOUND
    stage = rows[-1].stage
    if stage in _REJECTED or rows[-1].code == _REVOKED:
        return ExitCode.REJECTED
    if stage == FAILED_TO_OPEN:
        return ExitCode.CHAIN
    return ExitCode.NOT_FOUND if stage in ("expired", UNKNOWN_TO_NODE) else ExitCode.OK


def stage_text(row: Standing) -> str:
    """Return a row's stage in words."""
    if row.stage == SEALED:
        return f"sealed, {row.rounds_left} round{'' if row.rounds_left == 1 else 's'} left"
    if row.code == _REVOKED:
        return "crowned, and the crown revoked"
    if row.code == _IN_CHECK:
        return "waits, free of charge, while the crown it competes for is checked"
    return {
        FAILED_TO_OPEN: "not opened by the chain",
        UNKNOWN_TO_NODE: "revealed, but not taken by this node",
    }.get(row.stage, row.stage)


def kinship_lines(row: Standing) -> list[str]:
    """Return, line by line, which parts of a submission are those of an earlier one."""
    kinship = row.kinship
    if kinship is None:
        return []
    what = "is a copy of" if kinship.kind == "copy" else "resembles (which decides nothing)"
    shares = f"{kinship.equal_ppm / 10_000:.0f} % equal, {kinship.alike_ppm / 10_000:.0f} % but for constants"
    return [
        f"{row.content_hash} {what} submission {kinship.submission_id}",
        f"  of {kinship.hotkey}, revealed in block {kinship.block}: {shares}",
        *(
            f"  {part.ours} = {part.earlier}{'' if part.is_equal else ' (but for constants)'}, {part.weight} tokens"
            for part in kinship.parts
        ),
    ]


def _refused(row: Standing) -> Standing:
    return msgspec.structs.replace(row, stage=REFUSED, final=True)


def _not_taken(row: Standing, view: NodeView | None) -> Standing:
    """Return the row of a reveal that the node does not have: it comes to that block yet, or it never will."""
    if view is None or view.cursor_block < row.block:
        return row
    detail = f"this node has read block {row.block} without it; it may have begun later, see `chain.start_block`"
    return msgspec.structs.replace(row, stage=UNKNOWN_TO_NODE, final=True, detail=detail)


def _row(hotkey: str, content_hash: str, stage: str, block: int, *, final: bool) -> Standing:
    identity = submission_id(hotkey, content_hash) if content_hash else f"{hotkey}:block-{block}"
    return Standing(identity, hotkey, content_hash, "", stage, block, 0, "", "", "", 0, final)


def _from_node(submission: KnownSubmission) -> Standing:
    return Standing(
        id=submission_id(submission.hotkey, submission.content_hash),
        hotkey=submission.hotkey,
        content_hash=submission.content_hash,
        url=submission.url,
        stage=str(submission.state),
        block=submission.block,
        rounds_left=0,
        code=submission.code,
        blame=submission.blame,
        detail=submission.detail,
        weight_ppm=submission.weight_ppm,
        final=submission.final,
        kinship=submission.kinship,
    )
