"""A revocation that real arms brought about, followed by an observer from the exported folder alone."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chain.wallet import address_of_seed
from config.errors import GradeError
from node.cli.actions import receipt, receipt_export, weights_explain, weights_recompute
from node.services.arena_copy import keep_arena
from node.services.target_copy import keep_targets
from node.store.engine import Store
from tests.node.kept_revocation import ANN, ATTEMPTS, BOB, GOLDEN, TARGET, KeptWorld, install, kept
from tests.node.weights_world import weights_world

VALIDATOR = address_of_seed("//Validator")


@pytest.fixture(name="state")
async def _state(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state folder of a node that crowned, paid, revoked, and paid the challenger."""
    world = KeptWorld(store)
    install(world, monkeypatch)
    keep_arena(world.context.arena, store.layout.arenas)
    keep_targets(world.context.catalog, store.layout.targets)
    king, challenger = kept()
    async with weights_world(store, tmp_path / "cache") as chain:
        await world.queue(king, target=TARGET)
        await world.work()
        await chain.step(15)
        assert (await chain.row())[1] == 65_535  # Ann has it all
        await world.queue(challenger, target=TARGET)
        await world.work()
        await chain.step(15)
        assert await chain.row() == {2: 65_535}  # Bob has
    assert await world.states() == ["settled:CROWN_REVOKED", "settled"]
    assert len(world.requests) == ATTEMPTS == len(list(GOLDEN.glob("*.json.gz")))
    return store.layout.root


@pytest.fixture(name="said")
def _said(capsys: pytest.CaptureFixture[str]) -> Callable[[], dict[str, Any]]:
    """Return what reads the result of the command that just ran."""
    return lambda: dict(json.loads(capsys.readouterr().out)["data"])


def kinds(folder: Path) -> dict[str, Path]:
    """Return the newest path of each kind of receipt in a folder."""
    found = {}
    for path in folder.glob("receipts/*.json"):
        statement = json.loads(base64.b64decode(json.loads(path.read_bytes())["payload"]))
        found[statement["predicateType"].rpartition(":")[2]] = path
    return found


def test_an_observer_recomputes_the_weights_after_a_revocation(
    state: Path, tmp_path: Path, said: Callable[[], dict[str, Any]]
) -> None:
    """All attempt files are graded again: the crown, its two checks, and the crown of the challenger it gave way to."""
    folder = tmp_path / "published"
    receipt_export.run(str(folder), None, str(state), with_attempts=True, as_json=True)
    assert said()["attempts"] == 6  # the one that the broken crown spoilt is nobody's verdict
    weights_recompute.run(str(folder), VALIDATOR, None, None, None, as_json=True)
    found = said()
    assert found["entries"] == [[BOB, 1_000_000]]
    (revoked,) = found["revocations"]
    assert (revoked["hotkey"], revoked["reason"]) == (ANN, "ARM_RAISED")
    assert [verdict["regraded"] for verdict in revoked["verdicts"]] == [True, True]
    (crown,) = found["crowns"]
    assert [verdict["regraded"] for verdict in crown["verdicts"]] == [True, True]
    weights_recompute.run(str(folder), VALIDATOR, None, None, 1, as_json=True)  # while the king held it
    assert (found["epoch"] > 1, said()["entries"]) == (True, [[ANN, 1_000_000]])
    for place in (folder, state):  # the node's own folder and what it hands out say the same
        receipt.run(str(place), None, None, VALIDATOR, as_json=True)
        counted = {kind.rpartition(":")[2]: count for kind, count in said()["kinds"].items()}
        assert {name: counted[name] for name in ("crown.v1", "revocation.v1", "verdict.v1")} == {
            "crown.v1": 2, "revocation.v1": 1, "verdict.v1": 6,
        }
    weights_explain.run(None, str(state), ANN, None, as_json=True)
    (former,) = said()["former_crowns"]
    assert former["ended"] == "REVOKE"


def test_a_revocation_that_is_left_out_or_stands_on_less_is_found(
    state: Path, tmp_path: Path, said: Callable[[], dict[str, Any]]
) -> None:
    """Without its receipt, or with one that names the crown's own passes as its checks, nothing is reproduced."""
    folder = tmp_path / "published"
    receipt_export.run(str(folder), None, str(state), with_attempts=True, as_json=True)
    said()
    path = kinds(folder)["revocation.v1"]
    data = path.read_bytes()
    path.unlink()
    with pytest.raises(GradeError) as caught:
        weights_recompute.run(str(folder), VALIDATOR, None, None, None, as_json=True)
    assert caught.value.code == "REVOCATION_UNPROVEN"
    path.write_bytes(data.replace(b'"payload":"', b'"payload":"A', 1))
    with pytest.raises(GradeError) as caught:
        weights_recompute.run(str(folder), VALIDATOR, None, None, None, as_json=True)
    assert caught.value.code == "RECEIPT_DIGEST_DIFFERS"
