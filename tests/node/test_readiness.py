"""Readiness: conditions in, reasons out, and what is unknown is no reason."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from node.readiness import Conditions, ReasonName, judge_readiness

WELL = Conditions(
    running=True, missing_layers=(), waived_layers=(), device_works=True, store_works=True, chain_away="",
    block_age_seconds=3.0, registered=True, validator_permit=True,
)


def test_a_well_node_and_an_unknown_one() -> None:
    """Nothing speaks against either."""
    for conditions in (WELL, Conditions()):
        readiness = judge_readiness(conditions)
        assert (readiness.ready, readiness.reasons) == (True, ())


@pytest.mark.parametrize(
    ("change", "name", "blocks"),
    [
        ({"running": False}, ReasonName.STOPPED, True),
        ({"missing_layers": ("userns",)}, ReasonName.LAYERS_MISSING, True),
        ({"device_works": False}, ReasonName.DEVICE_FAILING, True),
        ({"store_works": False}, ReasonName.STORE_FAILING, True),
        ({"chain_away": "No endpoint answers."}, ReasonName.CHAIN_AWAY, True),
        ({"block_age_seconds": 120.5}, ReasonName.BLOCK_STALE, True),
        ({"reveals_held": "No archive."}, ReasonName.REVEALS_HELD, True),
        ({"registered": False}, ReasonName.NOT_REGISTERED, True),
        ({"validator_permit": False}, ReasonName.NO_PERMIT, False),
        ({"observing": True}, ReasonName.OBSERVING, False),
        ({"waived_layers": ("landlock",)}, ReasonName.LAYERS_WAIVED, False),
    ],
)
def test_each_condition_gives_its_reason(change: dict[str, Any], name: ReasonName, blocks: bool) -> None:
    """Each bad condition is one reason, and only those that keep a node from its work make it unready."""
    readiness = judge_readiness(msgspec.structs.replace(WELL, **change))
    assert [(reason.name, reason.blocks) for reason in readiness.reasons] == [(name, blocks)]
    assert readiness.ready is not blocks


def test_every_reason_can_be_given_at_once() -> None:
    """All reasons are told, in one order, whatever else is wrong; every name occurs."""
    worst = Conditions(False, ("userns",), ("landlock",), False, False, "gone", 1e6, False, False, True, "stuck")
    assert [reason.name for reason in judge_readiness(worst).reasons] == list(ReasonName)


def test_the_limit_of_a_blocks_age() -> None:
    """The age at the limit is still well, and whoever asks may set another limit."""
    assert judge_readiness(Conditions(block_age_seconds=120.0)).ready
    assert not judge_readiness(Conditions(block_age_seconds=120.0), block_age_limit=60.0).ready
