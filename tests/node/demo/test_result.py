"""Whether the demo went as it must."""

from __future__ import annotations

import msgspec

from node.demo.cast import CAST
from node.demo.follow import finished, progress_note, progress_rows
from node.demo.result import PPM, ChainWeight, differences, player_results
from node.status import NodeStatus

HOTKEYS = {player.wallet: f"hotkey-of-{player.wallet}" for player in CAST}
ROW = (ChainWeight(2, HOTKEYS["miner-1"], 65535, PPM),)


def test_the_expected_end_has_no_differences(good_status: NodeStatus) -> None:
    """Right verdicts, the crown and the whole weight with the honest miner: nothing to say."""
    players = player_results(good_status, HOTKEYS, ROW)
    assert differences(good_status, players, ROW) == ()
    assert players[0].code == "PASS"
    assert players[0].lower_ppm == 1_300_000
    assert [player.weight_ppm for player in players] == [PPM, 0, 0, 0, 0, 0]


def test_every_deviation_is_named(good_status: NodeStatus) -> None:
    """A wrong verdict, a missing crown, weights elsewhere and a second publication are each said."""
    rows = list(good_status.submissions)
    rows[1] = msgspec.structs.replace(rows[1], state="settled", code="")
    bad = msgspec.structs.replace(
        good_status, submissions=tuple(rows), crowns=(), publications=(*good_status.publications,) * 2
    )
    elsewhere = (ChainWeight(3, HOTKEYS["miner-2"], 65535, PPM),)
    found = differences(bad, player_results(bad, HOTKEYS, elsewhere), elsewhere)
    assert len(found) == 4
    assert "miner-2 (correct, but slower) got PASS, expected NOT_FASTER" in found[0]


def test_a_missing_submission_is_a_difference(good_status: NodeStatus) -> None:
    """A miner whose submission the node never saw has no verdict, and that is said."""
    less = msgspec.structs.replace(good_status, submissions=good_status.submissions[:-1])
    assert "got no verdict" in differences(less, player_results(less, HOTKEYS, ROW), ROW)[0]


def test_finished_needs_everything(good_status: NodeStatus) -> None:
    """The demo is over when all are final and the weights of the crown are confirmed, not before."""
    assert finished(good_status)
    assert not finished(None)
    assert not finished(msgspec.structs.replace(good_status, weights=()))
    open_row = msgspec.structs.replace(good_status.submissions[0], state="passed_once", final=False)
    assert not finished(msgspec.structs.replace(good_status, submissions=(open_row, *good_status.submissions[1:])))


def test_progress_is_in_words(good_status: NodeStatus) -> None:
    """Every miner has a row from the first moment on, and a final one shows its verdict."""
    assert [row.now for row in progress_rows(None, HOTKEYS)] == ["sealed on the chain"] * len(CAST)
    assert [row.now for row in progress_rows(good_status, HOTKEYS)] == [player.expected[0] for player in CAST]
    assert progress_note(None) == "the validator is starting"
    assert progress_note(good_status) == "weights of epoch 3: confirmed"
