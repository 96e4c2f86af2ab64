"""node credits: given and listed while a node has the store open, and when none does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chain.wallet import address_of_seed
from node.store.credit_rows import list_credits, spend_oldest
from node.store.engine import Store
from node.store.events import verify_chain
from node.store.layout import StateLayout
from tests.node.support import GENESIS, record, submission

if TYPE_CHECKING:
    from tests.node.cli.conftest import RunCli

HOTKEY = address_of_seed("//Ann")


async def test_granted_beside_a_running_node(cli: RunCli, tmp_path: Path) -> None:
    """Credits appear in the open store at once, with their events, and are spent oldest first."""
    state = ["--state", str(tmp_path / "state"), "--json"]
    store = await Store.open(StateLayout.at(tmp_path / "state"))
    await store.bind(GENESIS, 2)
    granted = cli("node", "credits", "grant", HOTKEY, "--count", "2", "--note", "lost a night", *state)
    assert granted.code == 0, granted
    assert [row["hotkey"] for row in granted.document["data"]] == [HOTKEY, HOTKEY]
    one = submission(1, hotkey=HOTKEY)
    await record(store, one)
    assert await store.write(spend_oldest, HOTKEY, one.submission_id)
    await store.read(verify_chain)
    kept = await store.read(list_credits)
    assert [(credit.origin, credit.note, credit.spent_by) for credit in kept] == [
        ("operator", "lost a night", one.submission_id), ("operator", "lost a night", None)
    ]
    await store.close()
    assert len(cli("node", "credits", "ls", HOTKEY, *state).document["data"]) == 2
    assert len(cli("node", "credits", "ls", "--unspent", *state).document["data"]) == 1
    assert cli("node", "credits", "ls", address_of_seed("//Bob"), *state).document["data"] == []
    shown = cli("node", "credits", "ls", *state[:2])
    assert HOTKEY in shown.out
    assert "lost a night" in shown.out


@pytest.mark.parametrize(
    ("hotkey", "options", "code"),
    [
        ("default", (), "HOTKEY_ADDRESS_INVALID"), (HOTKEY[:-1] + "x", (), "HOTKEY_ADDRESS_INVALID"),
        ("0x" + "11" * 32, (), "HOTKEY_ADDRESS_INVALID"), ("", (), "HOTKEY_ADDRESS_INVALID"),
        (HOTKEY, (), "STATE_NOT_FOUND"), (HOTKEY, ("--count", "0"), "USAGE"),
    ],
)
def test_bad_grants(cli: RunCli, tmp_path: Path, hotkey: str, options: tuple[str, ...], code: str) -> None:
    """A name instead of an address, a typing slip, a folder without a node: each is one error."""
    ran = cli("node", "credits", "grant", hotkey, *options, "--state", str(tmp_path / "none"), "--json")
    assert ran.document["error"]["code"] == code


async def test_an_older_store_is_left_alone(cli: RunCli, tmp_path: Path) -> None:
    """A store that the node of this release has not brought up to date is refused, not altered."""
    from sqlalchemy import text

    store = await Store.open(StateLayout.at(tmp_path / "state"))
    await store.write(lambda connection: connection.execute(text("UPDATE alembic_version SET version_num = '0003'")))
    await store.close()
    ran = cli("node", "credits", "ls", "--state", str(tmp_path / "state"), "--json")
    assert (ran.code, ran.document["error"]["code"]) == (6, "STORE_TOO_OLD")
