"""The chain: reachable, of a kind that this release knows, with the node's subnet and its registered hotkey.

Invariants
1. A node that starts and the doctor go through `reach`, the one with the client that it will use, the other with one
   of its own.
2. What was reached before something failed is still reported; what comes after is skipped.
3. A late block, a distant clock or a missing permit warns: the node works, and what it cannot do yet comes later.
"""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from chain.abi import Storage
from chain.blocks import BlockRef
from chain.client import ChainClient
from chain.metagraph import Neuron, read_metagraph
from chain.wallet import require_registered
from config.errors import CacheonError, ConfigurationError
from config.settings import Settings
from node.doctor.check import Finding, State, Subject, failed, passed, settings_of, skipped, warned
from node.doctor.disk import layout_of, require_store
from node.doctor.wallet import require_signer

AGE_FLOOR_SECONDS = 120.0
AHEAD_LIMIT_SECONDS = 24.0
FINALITY_LIMIT_BLOCKS = 60
_NO_CACHE = Path(os.devnull) / "cache"  # metadata is asked for, never kept: a look leaves nothing behind


class ChainReady(msgspec.Struct, frozen=True):
    """A chain that can be served: which one, where its finalized head is, and the node's registered key there.

    Of a node that only observes, `hotkey` is "" and the last two are None.
    """

    genesis_hash: str
    spec_version: int
    head: BlockRef
    hotkey: str
    uid: int | None
    validator_permit: bool | None


@dataclass(frozen=True, slots=True)
class Reached:
    """How far `reach` came; `ready` is there when nothing failed."""

    findings: tuple[Finding, ...]
    ready: ChainReady | None


async def reach(settings: Settings, client: ChainClient, hotkey: str, *, observes: bool = False) -> Reached:
    """Connect and look for metadata, subnet and registration.

    `hotkey` is "" when no key could be loaded, or when the node `observes` and needs none.
    """
    netuid, name = settings.chain.netuid, "chain.endpoint"
    findings: list[Finding] = []
    try:
        await client.open()
        identity = await client.probe()
        head = await client.finalized_head()
        findings.append(
            passed(name, f"{identity.endpoint}, runtime {identity.spec_version}, finalized block {head.number}")
        )
        name = "chain.subnet"
        await client.require_subnet(netuid, head)
        metagraph = await read_metagraph(client, netuid, head)
        findings.append(passed(name, f"subnet {netuid} has {len(metagraph.neurons)} neurons"))
        name = "chain.registration"
        if observes:
            why = "no wallet is named: the node observes"
            findings += [skipped(name, why), skipped("chain.permit", why)]
            found = ChainReady(identity.genesis_hash, identity.spec_version, head, "", None, None)
            return Reached(tuple(findings), found)
        if not hotkey:
            findings += [skipped(name, "no hotkey could be loaded"), skipped("chain.permit", _LATER)]
            return Reached(tuple(findings), None)
        neuron = require_registered(metagraph, hotkey)
    except CacheonError as error:
        rest = _NAMES[_NAMES.index(name) + 1 :]
        return Reached((*findings, failed(name, error), *(skipped(one, _LATER) for one in rest)), None)
    findings += [passed(name, f"uid {neuron.uid}, since block {neuron.registered_block}"), judge_permit(neuron)]
    ready = ChainReady(
        identity.genesis_hash, identity.spec_version, head, hotkey, neuron.uid, neuron.validator_permit
    )
    return Reached(tuple(findings), ready)


_NAMES = ("chain.endpoint", "chain.subnet", "chain.registration", "chain.permit")
_LATER = "not reached"


def judge_permit(neuron: Neuron) -> Finding:
    """Say whether the chain lets the hotkey set weights."""
    if neuron.validator_permit:
        return passed("chain.permit", "the hotkey may set weights")
    return warned(
        "chain.permit", "registered without a validator permit: the node measures, but the chain refuses its weights",
        "add stake until the subnet grants the permit at an epoch's end",
    )


def judge_age(age_seconds: float, block_seconds: float) -> Finding:
    """Judge the age of the newest block by this machine's clock; negative ages lie in the future."""
    name, limit = "chain.clock", max(AGE_FLOOR_SECONDS, 10 * block_seconds)
    if age_seconds < -AHEAD_LIMIT_SECONDS:
        return warned(
            name, f"the newest block is {-age_seconds:.0f} s in the future: this machine's clock is behind",
            "set the clock, and let a time service keep it",
        )
    if age_seconds > limit:
        return warned(
            name, f"the newest block is {age_seconds:.0f} s old (limit {limit:.0f} s)",
            "if `clock.sync` warns too, set the clock; otherwise the endpoint is behind: use another one",
        )
    return passed(name, f"the newest block is {age_seconds:.0f} s old")


def judge_finality(behind: int) -> Finding:
    """Judge how many blocks finality trails the newest block; only finalized blocks count."""
    if behind > FINALITY_LIMIT_BLOCKS:
        return warned(
            "chain.finality", f"finality is {behind} blocks behind", "wait for the chain, or use another endpoint"
        )
    return passed("chain.finality", f"{behind} blocks behind the newest")


def require_own_chain(settings: Settings, genesis_hash: str) -> None:
    """Compare the chain with that of the state folder.

    Raises `ConfigurationError` (STORE_FOREIGN_CHAIN) and the `HostError`s of `require_store`.
    """
    view = require_store(layout_of(settings))
    if view is not None and (view.genesis_hash, view.netuid) != (genesis_hash, settings.chain.netuid):
        raise ConfigurationError(
            "STORE_FOREIGN_CHAIN",
            f"the state folder belongs to chain {view.genesis_hash[:10]} netuid {view.netuid}, the node would connect"
            f" to chain {genesis_hash[:10]} netuid {settings.chain.netuid}",
            hint="use another `state_dir` for this chain, or correct `chain.endpoints` and `chain.netuid`",
        )


def look_chain(subject: Subject) -> tuple[Finding, ...]:
    """Everything that the chain says, asked with a client of our own."""
    settings = settings_of(subject)
    try:
        signer = require_signer(settings)
    except CacheonError:
        return asyncio.run(_look(settings, "", observes=False))  # the wallet's own line says why
    hotkey = "" if signer is None else str(signer.ss58_address)
    return asyncio.run(_look(settings, hotkey, observes=signer is None))


async def _look(settings: Settings, hotkey: str, *, observes: bool) -> tuple[Finding, ...]:
    client = ChainClient.from_settings(settings.chain, runtime_cache_dir=_NO_CACHE)
    try:
        reached = await reach(settings, client, hotkey, observes=observes)
        if reached.findings[0].state is not State.PASS:
            rest = ("chain.genesis", "chain.clock", "chain.finality")
            return (*reached.findings, *(skipped(name, _LATER) for name in rest))
        return (*reached.findings, await _look_state(settings, client), *await _look_time(client))
    finally:
        await client.close()


async def _look_state(settings: Settings, client: ChainClient) -> Finding:
    try:
        genesis = await client.genesis_hash()
        require_own_chain(settings, genesis)
    except CacheonError as error:
        return failed("chain.genesis", error)
    return passed("chain.genesis", f"{genesis}, and the state folder belongs to no other")


async def _look_time(client: ChainClient) -> tuple[Finding, ...]:
    try:
        head = await client.head()
        (written_ms,) = await client.read(head, [(Storage.TIMESTAMP, [])])
        age = time.time() - int(written_ms) / 1000
        behind = head.number - (await client.finalized_head()).number
        return judge_age(age, await client.block_seconds()), judge_finality(behind)
    except CacheonError as error:
        return (warned("chain.clock", f"the newest block cannot be read: {error.message}", error.hint),)
