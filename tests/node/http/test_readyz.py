"""`/readyz`: what status says too, as an answer for machines that never names this one."""

from __future__ import annotations

import json
import time

import msgspec
import pytest

from config.errors import HostError
from node.observed import Observed, Reached, Started
from node.readiness import Conditions, ReasonName, judge_readiness
from node.status import read_status
from node.store.chain_seen import ChainSeen, RevealsHeld, write_chain_seen, write_reveals_held
from node.store.engine import Store
from node.store.events import append_event
from node.store.waiting_rows import WaitingView, record_waiting
from qualify.sandbox.layers import LAYERS
from tests.node.http.conftest import Site, served

LAYERS_HERE = [name for name in LAYERS if name not in ("landlock", "cgroup", "devices", "bubblewrap")]


async def begun(store: Store, *, waived: tuple[str, ...] = (), **reached: object) -> None:
    """Write what a node writes when it starts and reaches its chain."""
    await store.write(append_event, "node.started", "", {"waived": list(waived), "layers": LAYERS_HERE})
    found = {"hotkey": "5Hot", "uid": 7, "validator_permit": True, **reached}
    await store.write(append_event, "chain.ready", "", found)


async def test_a_node_that_is_ready(store: Store) -> None:
    """200, with the newest block and its age, every layer on one side, and the node's place on the subnet."""
    await begun(store)
    write_chain_seen(store.layout, ChainSeen(block=4711, block_ms=int(time.time() * 1000)))
    async with served(store) as site:
        answer = await site.get("/readyz")
    assert (answer.status, answer.document["schema"], answer.document["ok"]) == (200, "cacheon.readyz.v1", True)
    assert answer.headers["Cache-Control"] == "no-store"
    data = answer.document["data"]
    assert (data["ready"], data["reasons"], data["head_block"]) == (True, [], 4711)
    assert data["block_age_seconds"] is not None
    assert data["sandbox"]["present"] == LAYERS_HERE
    assert {*data["sandbox"]["present"], *data["sandbox"]["absent"]} == set(LAYERS)
    assert data["sandbox"]["waived"] == []
    assert data["registration"] == {"registered": True, "uid": 7, "validator_permit": True, "observing": False}


async def test_what_is_not_known_is_null(site: Site) -> None:
    """A store without any past is no trouble and no health: null everywhere, and nothing against it."""
    answer = await site.get("/readyz")
    data = answer.document["data"]
    assert (answer.status, data["ready"], data["head_block"], data["sandbox"]) == (200, True, None, None)
    assert set(data["registration"].values()) == {None}


async def test_a_waiver_is_told_and_does_not_make_unready(store: Store) -> None:
    """A waived layer is a reason that blocks nothing, with its code, what to do and who."""
    await begun(store, waived=("landlock",))
    async with served(store) as site:
        answer = await site.get("/readyz")
    data = answer.document["data"]
    assert (answer.status, data["ready"], data["sandbox"]["waived"]) == (200, True, ["landlock"])
    (reason,) = data["reasons"]
    assert (reason["name"], reason["code"], reason["blame"], reason["blocks"]) == (
        "layers_waived", "LAYERS_WAIVED", "operator", False,
    )
    assert "landlock" in reason["sentence"]
    assert reason["hint"]


async def test_it_agrees_with_status_and_names_nothing_of_this_machine(store: Store) -> None:
    """The same reasons as `node status`, code by code; the words of a fault, which name endpoints, stay there."""
    await begun(store)
    secret = "wss://user:key@endpoint.example:443 and /srv/secret"
    write_chain_seen(store.layout, ChainSeen(
        block=9, block_ms=1, away_code="CHAIN_UNREACHABLE", away_reason=secret, away_ms=1,
    ))
    write_reveals_held(store.layout, RevealsHeld("CHAIN_STATE_PRUNED", secret, 1))
    status = read_status(store.layout.root)
    async with served(store) as site:
        answer = await site.get("/readyz")
    assert answer.status == 503
    assert answer.document["ok"]
    told = answer.document["data"]["reasons"]
    assert [(one["name"], one["code"], one["blame"]) for one in told] == [
        ("chain_away", "CHAIN_UNREACHABLE", "operator"), ("block_stale", "BLOCK_STALE", "chain"),
        ("reveals_held", "CHAIN_STATE_PRUNED", "operator"),
    ]
    assert [(one.name.value, one.code, one.hint, one.blame, one.blocks) for one in status.reasons] == [
        (one["name"], one["code"], one["hint"], one["blame"], one["blocks"]) for one in told
    ]
    assert secret in status.reasons[0].sentence
    text = json.dumps(answer.document)
    assert "endpoint.example" not in text
    assert "secret" not in text
    assert str(store.layout.root) not in text


@pytest.mark.parametrize(
    ("code", "name", "status"), [("NOT_REGISTERED", "not_registered", 503), ("NOT_PERMITTED", "no_permit", 200)]
)
async def test_a_place_that_was_lost_later(store: Store, code: str, name: str, status: int) -> None:
    """What keeps weights waiting says that the registration, or the permit, of the start is gone."""
    await begun(store)
    await store.write(record_waiting, WaitingView(code, "no place"))
    async with served(store) as site:
        lost = await site.get("/readyz")
        await store.write(record_waiting, None)
        back = await site.get("/readyz")
    assert (lost.status, [one["name"] for one in lost.document["data"]["reasons"]]) == (status, [name])
    assert (back.status, back.document["data"]["reasons"]) == (200, [])


async def test_an_observer(store: Store) -> None:
    """A node without a key on purpose is ready, and says that it publishes nothing."""
    await begun(store, hotkey="", uid=None, validator_permit=None)
    async with served(store) as site:
        answer = await site.get("/readyz")
    assert answer.status == 200
    assert [one["code"] for one in answer.document["data"]["reasons"]] == ["NODE_OBSERVES"]
    assert answer.document["data"]["registration"]["observing"] is True


async def test_a_store_that_fails(store: Store) -> None:
    """A failing disk of the running node, and a database that cannot be read, are 503 with the reason in the answer."""
    await begun(store)
    async with served(store, store_works=lambda: False) as site:
        failing = await site.get("/readyz")
    assert failing.status == 503
    assert [one["code"] for one in failing.document["data"]["reasons"]] == ["STORE_UNUSABLE"]
    await store.close()
    async with served(store) as site:
        store.layout.database.write_bytes(b"no database " * 1000)
        unreadable = await site.get("/readyz")
        scrape = await site.text("/metrics")
    assert unreadable.status == 503
    assert [one["name"] for one in unreadable.document["data"]["reasons"]] == ["store_failing"]
    assert "\ncacheon_ready 0.0\n" in scrape
    assert '\ncacheon_readiness_reason{reason="store_failing"} 1.0\n' in scrape
    assert "cacheon_queue_jobs" not in scrape


async def test_the_store_knows_whether_it_works(store: Store) -> None:
    """A transaction that fails is told until the next one succeeds."""
    assert store.works is True
    await store.write(append_event, "test", "")
    moved = store.layout.root.with_name("elsewhere")
    store._disconnect()
    store._opened = None
    store.layout.database.rename(moved)
    store.layout.database.mkdir()
    with pytest.raises(HostError):
        await store.write(append_event, "test", "")
    assert store.works is False
    store.layout.database.rmdir()
    moved.rename(store.layout.database)
    await store.write(append_event, "test", "")
    assert store.works is True


@pytest.mark.parametrize("page", ["/readyz", "/metrics"])
async def test_only_the_page_itself(site: Site, page: str) -> None:
    """Parameters and other methods are refused in the envelope."""
    refused = await site.get(f"{page}?verbose=1")
    assert (refused.status, refused.document["error"]["code"]) == (400, "HTTP_PARAMETER_INVALID")
    async with site.session.post(site.url + page) as response:
        assert response.status == 405
    async with site.session.head(site.url + page) as response:
        assert response.status == 200


def test_every_reason_has_a_code_that_is_explained() -> None:
    """No reason is without code, hint and blame, whatever is wrong."""
    worst = Conditions(False, ("userns",), ("landlock",), False, False, "gone", 1e6, False, False, True, "stuck")
    reasons = judge_readiness(worst).reasons
    assert len(reasons) == len(ReasonName)
    assert all(reason.code and reason.hint and reason.blame in ("operator", "chain") for reason in reasons)


def test_events_of_older_releases_read() -> None:
    """A start that did not write its layers down leaves them unknown."""
    assert msgspec.json.decode(b'{"waived":["seccomp"],"pid":4}', type=Started) == Started(waived=("seccomp",))
    assert msgspec.json.decode(b"{}", type=Reached).uid is None
    assert Observed.__struct_fields__[0] == "running_pid"
