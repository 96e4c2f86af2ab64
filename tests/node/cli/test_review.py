"""node review, node reopen: decided beside a running node, refused with a code each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from node.store.engine import Store
from node.store.layout import StateLayout
from tests.node.judging import SLOW, World
from tests.node.support import GENESIS, submission

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.node.cli.conftest import RunCli

ONE, OTHER = submission(1), submission(2)


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """A node that holds one submission for a person, and failed another."""
    store = await Store.open(StateLayout.at(tmp_path / "state"))
    await store.bind(GENESIS, 2)
    made = World(store)
    made.install(monkeypatch)
    made.gains = {ONE.content_hash: 4.0, OTHER.content_hash: SLOW}
    await made.queue(ONE, OTHER)
    await made.work()
    yield made
    await store.close()


async def test_a_person_decides(cli: RunCli, tmp_path: Path, world: World) -> None:
    """What waits is listed with its attempt file; a decision names its receipt."""
    state = ["--state", str(tmp_path / "state")]
    (row,) = cli("node", "review", "ls", *state, "--json").document["data"]
    assert (row["submission_id"], row["code"]) == (ONE.submission_id, "IMPLAUSIBLE_SPEEDUP")
    assert (tmp_path / "state") in list(type(tmp_path)(row["path"]).parents)
    assert ONE.submission_id in cli("node", "review", "ls", *state).out
    done = cli("node", "review", "accept", ONE.submission_id[:10], "--reason", "a real fusion", *state, "--json")
    assert done.document["data"]["state"] == "queued"
    assert world.receipts.path(done.document["data"]["receipt"]).is_file()
    opened = cli("node", "reopen", OTHER.submission_id, "--reason", "our clock", *state)
    assert "queued" in opened.out
    assert cli("node", "review", "ls", *state, "--json").document["data"] == []


@pytest.mark.parametrize(
    ("arguments", "code", "status"),
    [
        (("node", "review", "accept", OTHER.submission_id, "--reason", "x"), "REVIEW_NOT_PENDING", 2),
        (("node", "reopen", ONE.submission_id, "--reason", "x"), "REOPEN_NOT_FAILED", 2),
        (("node", "review", "refuse", "f00", "--reason", "x"), "SUBMISSION_NOT_FOUND", 7),
        (("node", "review", "refuse", ONE.submission_id, "--reason", ""), "DECISION_REASON_MISSING", 2),
        (("node", "review", "refuse", ONE.submission_id), "USAGE", 2),
    ],
)
@pytest.mark.usefixtures("world")
async def test_bad_decisions(cli: RunCli, tmp_path: Path, arguments: tuple[str, ...], code: str, status: int) -> None:
    """Whatever does not fit is one error, and decides nothing."""
    ran = cli(*arguments, "--state", str(tmp_path / "state"), "--json")
    assert (ran.code, ran.document["error"]["code"]) == (status, code)
