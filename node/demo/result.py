"""What a finished demo says, and whether it is what had to happen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from node.demo.cast import CAST, Player
from node.status import NodeStatus, SubmissionStatus

PPM = 1_000_000


class PlayerResult(msgspec.Struct, frozen=True):
    """What became of one miner's submission. Bounds and weights are ppm; 0 means none."""

    miner: str
    example: str
    what: str
    hotkey: str
    content_hash: str
    state: str
    code: str
    blame: str
    detail: str
    lower_ppm: int
    upper_ppm: int
    weight_ppm: int
    expected: tuple[str, ...]
    as_expected: bool


class ChainWeight(msgspec.Struct, frozen=True):
    """One entry of the validator's weights row as read back from the chain; `weight` is the chain's 16-bit number."""

    uid: int
    hotkey: str
    weight: int
    share_ppm: int


class DemoResult(msgspec.Struct, frozen=True):
    """The whole outcome. `differences` is empty when everything went as it must."""

    state_dir: str
    seconds: int
    players: tuple[PlayerResult, ...]
    crown_target: str
    crown_hotkey: str
    weights_block: int
    weights: tuple[ChainWeight, ...]
    publications: int
    differences: tuple[str, ...]


def player_results(
    status: NodeStatus, hotkeys: Mapping[str, str], row: Sequence[ChainWeight]
) -> tuple[PlayerResult, ...]:
    """Return one result per miner, in the order of the cast. `hotkeys` maps wallet names to addresses."""
    by_hotkey = {submission.hotkey: submission for submission in status.submissions}
    shares = {entry.hotkey: entry.share_ppm for entry in row}
    return tuple(
        _player_result(player, hotkeys[player.wallet], by_hotkey.get(hotkeys[player.wallet]), shares) for player in CAST
    )


def _player_result(
    player: Player, hotkey: str, submission: SubmissionStatus | None, shares: Mapping[str, int]
) -> PlayerResult:
    code = verdict_code(submission)
    graded = [attempt for attempt in submission.attempts if attempt.state == "graded"] if submission else []
    lower = min((attempt.lower_ppm for attempt in graded), default=0)
    upper = min((attempt.upper_ppm for attempt in graded), default=0)
    return PlayerResult(
        miner=player.wallet,
        example=player.example,
        what=player.what,
        hotkey=hotkey,
        content_hash=submission.content_hash if submission else "",
        state=submission.state if submission else "",
        code=code,
        blame=submission.blame if submission else "",
        detail=submission.detail if submission else "",
        lower_ppm=submission.speedup_ppm or lower if submission else 0,
        upper_ppm=upper,
        weight_ppm=shares.get(hotkey, 0),
        expected=player.expected,
        as_expected=code in player.expected,
    )


def verdict_code(submission: SubmissionStatus | None) -> str:
    """Return the code of a final submission, `PASS` for a crowned one, "" while it is under way."""
    if submission is None or not submission.final:
        return ""
    return "PASS" if submission.state == "settled" else submission.code


def differences(status: NodeStatus, players: Sequence[PlayerResult], row: Sequence[ChainWeight]) -> tuple[str, ...]:
    """Return, in words, everything that is not as it must be."""
    found = [
        f"{player.miner} ({player.what}) got {player.code or 'no verdict'}, expected {' or '.join(player.expected)}"
        for player in players
        if not player.as_expected
    ]
    winners = {player.hotkey for player, role in zip(players, CAST, strict=True) if role.wins}
    crowned = {crown.hotkey for crown in status.crowns if crown.live}
    if crowned != winners:
        found.append(f"the crown is held by {', '.join(sorted(crowned)) or 'nobody'}, not by the honest miner")
    paid = {entry.hotkey for entry in row if entry.weight > 0}
    if paid != winners:
        found.append(f"the weights on chain go to {', '.join(sorted(paid)) or 'nobody'}, not to the honest miner alone")
    per_epoch = [one.epoch for one in status.publications if one.included_block is not None]
    if len(per_epoch) != len(set(per_epoch)):
        found.append("an epoch has more than one publication")
    return tuple(found)
