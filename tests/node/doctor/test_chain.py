"""Chain lines: how far a look comes, and what the chain's clock says about ours."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from chain.client import ChainClient
from config.settings import Settings
from node.doctor.chain import judge_age, judge_finality, look_chain, reach, require_own_chain
from node.doctor.check import Finding, State, Subject
from node.store.engine import Store
from tests.node.doctor.conftest import changed, silent_listener
from tests.ports import reserved_port


async def look(settings: Settings) -> dict[str, Finding]:
    """Look as the doctor does, on a thread of its own, and return the findings by name."""
    return {finding.name: finding for finding in await asyncio.to_thread(look_chain, Subject(settings))}


@pytest.mark.parametrize(
    ("finding", "state"),
    [
        (judge_age(3.0, 12.0), State.PASS),
        (judge_age(119.0, 12.0), State.PASS),
        (judge_age(121.0, 12.0), State.WARN),
        (judge_age(200.0, 30.0), State.PASS),
        (judge_age(-5.0, 12.0), State.PASS),
        (judge_age(-60.0, 12.0), State.WARN),
        (judge_finality(3), State.PASS),
        (judge_finality(600), State.WARN),
    ],
)
def test_values(finding: Finding, state: State) -> None:
    """An old block, one from the future and finality that stands still warn with a fix."""
    assert finding.state is state
    assert bool(finding.fix) == (state is State.WARN)


async def test_a_node_that_could_start(node_settings: Settings) -> None:
    """Endpoint, subnet, registration, permit, genesis, clock and finality are all seen."""
    found = await look(node_settings)
    assert list(found) == [
        "chain.endpoint", "chain.subnet", "chain.registration", "chain.permit", "chain.genesis", "chain.clock",
        "chain.finality",
    ]
    assert {finding.state for finding in found.values()} == {State.PASS}
    assert node_settings.chain.endpoints[0] in found["chain.endpoint"].seen
    async with ChainClient.from_settings(node_settings.chain) as client:
        ready = (await reach(node_settings, client, found_hotkey(node_settings))).ready
    assert ready is not None
    assert (ready.uid, ready.validator_permit) == (0, True)


def found_hotkey(settings: Settings) -> str:
    """The node's address."""
    from node.doctor.wallet import require_hotkey

    return str(require_hotkey(settings).ss58_address)


@pytest.mark.parametrize(
    ("change", "states", "code"),
    [
        ({"wallet": "weak"}, ("PASS", "PASS", "PASS", "WARN"), ""),
        ({"wallet": "stranger"}, ("PASS", "PASS", "FAIL", "SKIP"), "HOTKEY_NOT_REGISTERED"),
        ({"wallet": "nobody"}, ("PASS", "PASS", "SKIP", "SKIP"), ""),
        ({"netuid": 77}, ("PASS", "FAIL", "SKIP", "SKIP"), "SUBNET_NOT_FOUND"),
    ],
    ids=["no permit", "not registered", "no wallet", "no subnet"],
)
async def test_how_far_a_look_comes(
    node_settings: Settings, change: dict[str, Any], states: tuple[str, ...], code: str
) -> None:
    """What failed has its code, what came before is reported, what comes after is skipped."""
    found = await look(changed(node_settings, "chain", **change))
    lines = [found[name] for name in ("chain.endpoint", "chain.subnet", "chain.registration", "chain.permit")]
    assert tuple(line.state.value for line in lines) == states
    assert [line.error.code for line in lines if line.error is not None] == ([code] if code else [])
    assert found["chain.clock"].state is (State.PASS if states[0] == "PASS" else State.SKIP)


async def test_endpoints_that_do_not_answer(node_settings: Settings) -> None:
    """A closed port and a port that never answers are failures within the deadline of a request."""
    with silent_listener() as listener:
        for port in (reserved_port(), listener.getsockname()[1]):
            endpoints = (f"ws://127.0.0.1:{port}",)
            found = await look(changed(node_settings, "chain", endpoints=endpoints, request_timeout_seconds=0.5))
            error = found["chain.endpoint"].error
            assert error is not None
            assert error.code in ("CHAIN_UNREACHABLE", "CHAIN_TIMEOUT")


async def test_a_state_folder_of_another_chain(store: Store, node_settings: Settings) -> None:
    """A folder that belongs to another chain is refused before a node binds to this one."""
    settings = changed(node_settings, state_dir=str(store.layout.root))
    found = await look(settings)
    error = found["chain.genesis"].error
    assert error is not None
    assert error.code == "STORE_FOREIGN_CHAIN"
    require_own_chain(changed(settings, state_dir=f"{store.layout.root}-new"), "0x00")
