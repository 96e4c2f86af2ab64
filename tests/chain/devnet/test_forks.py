"""Forks below finality: what is retracted, what stays readable, and what watchers hear."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chain.devnet import beacon
from chain.devnet.block import seal_block
from chain.devnet.block_tree import BlockTree
from chain.devnet.chain import Chain, ForkError
from chain.devnet.codec import codec
from chain.devnet.config import DevnetConfig
from chain.devnet.history import StateDiscardedError
from chain.devnet.server import Devnet
from chain.devnet.startup import open_chain
from config.errors import HostError
from tests.chain.devnet.support import (
    MINER,
    NETUID,
    OTHER,
    VALIDATOR,
    Driver,
    RawClient,
    Signing,
    Wallet,
    address,
    commitment,
    genesis,
    hot,
    plain_field,
    sealed_field,
    sign,
)
from tests.chain.devnet.test_extrinsics import REMARK

PALLET = "Commitments"
LAGGING: dict[str, Any] = {"finality_lag": 4, "manual": True}


@pytest.fixture
def lagging() -> Iterator[Driver]:
    """A chain in memory whose finality trails by four blocks."""
    with open_chain(DevnetConfig(genesis=genesis(), finality_lag=4), clock=lambda: 1_800_000_000_000) as chain:
        yield Driver(chain)


def stored(chain: Chain, block: Any = None) -> Any:
    """Return the miner's commitment after a block."""
    return chain.view(block).get(PALLET, "CommitmentOf", NETUID, address(hot(MINER)))


def test_another_branch_takes_the_place_of_the_newest_blocks(lagging: Driver) -> None:
    """Heights keep one block each, the new ones chain onto the fork's base, and no two blocks are equal."""
    lagging.blocks(5)
    chain = lagging.chain
    before = list(chain.blocks)
    done = chain.fork(2)
    assert done.retracted == tuple(before[4:6])
    assert list(chain.blocks[:4]) == before[:4]
    assert tuple(chain.blocks[4:]) == done.enacted
    assert [block.number for block in chain.blocks] == list(range(7))
    assert all(b.header.parent_hash == a.hash for a, b in zip(chain.blocks, chain.blocks[1:], strict=False))
    assert len({block.hash for block in before} | {block.hash for block in chain.blocks}) == 9
    assert chain.finalized.number == 2
    times = [chain.view(block).get("Timestamp", "Now") for block in chain.blocks]
    assert sorted(set(times)) == times


def test_what_the_retracted_branch_did_is_undone_and_waits_again(lagging: Driver) -> None:
    """A commitment of a retracted block is gone from the state, its extrinsic is in the pool and lands again."""
    lagging.blocks(3)
    chain = lagging.chain
    sent = lagging.submit(hot(MINER), commitment(plain_field(b"kept")))
    lost = chain.build()
    chain.build()
    assert stored(chain)["block"] == 4
    chain.fork(2)
    assert stored(chain) is None
    assert lagging.nonce(hot(MINER)) == 0
    assert chain.next_nonce(sent.signer) == 1
    assert [extrinsic.hash for extrinsic in chain.pool] == [sent.hash]
    assert stored(chain, lost)["block"] == 4
    block = chain.build()
    assert sent.raw in block.extrinsics
    assert stored(chain)["block"] == 7


def test_a_reveal_of_the_retracted_branch_happens_again(lagging: Driver) -> None:
    """A timelocked commitment below the fork is revealed on the new branch, at the new branch's block."""
    chain = lagging.chain
    label = beacon.reveal_round_after(1, 3)
    lagging.send(hot(MINER), commitment(sealed_field(beacon.seal(b"secret"), label)))
    lagging.blocks(3)
    assert [name for name, _ in lagging.named("CommitmentRevealed", block=chain.blocks[4])] == ["CommitmentRevealed"]
    first = chain.blocks[4]
    chain.fork(2)
    assert chain.blocks[4] is not first
    for block in (first, chain.blocks[4]):
        assert len(lagging.named("CommitmentRevealed", block=block)) == 1


def test_the_pool_of_another_branch_is_checked_again(lagging: Driver) -> None:
    """An extrinsic anchored to a retracted block is no longer valid; one whose nonce now has a gap waits."""
    chain = lagging.chain
    lagging.blocks(3)
    lagging.submit(VALIDATOR, REMARK)
    chain.build()
    second = lagging.submit(VALIDATOR, REMARK)
    # Anchored to block 4, which the fork takes away.
    lagging.submit(OTHER, REMARK, Signing(era={"period": 8, "current": 4}, birth=4))
    chain.fork(1, 2)
    assert [extrinsic.nonce for extrinsic in chain.pool] == [1, 0]
    assert not any(extrinsic.era.period for extrinsic in chain.pool)
    block = chain.build()
    assert [second.raw in block.extrinsics, len(block.extrinsics)] == [True, 3]


@pytest.mark.parametrize(
    ("depth", "blocks", "why"), [(0, None, "between 1 and 4"), (5, None, "block 2 is final"), (2, 2, "at least 3")]
)
def test_impossible_forks(lagging: Driver, depth: int, blocks: int | None, why: str) -> None:
    """Nothing final is retracted, and a branch that is not longer never becomes the chain."""
    lagging.blocks(6)
    before = list(lagging.chain.blocks)
    with pytest.raises(ForkError, match=why):
        lagging.chain.fork(depth, blocks)
    assert list(lagging.chain.blocks) == before


def test_without_finality_lag_nothing_forks(driver: Driver) -> None:
    """Every block is final at once, so there is nothing to retract."""
    driver.blocks(3)
    with pytest.raises(ForkError, match="final"):
        driver.chain.fork(1)


def test_a_failed_fork_leaves_the_chain_as_it_was(lagging: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """When a block of the new branch cannot be made, the old branch is back with its state."""
    lagging.send(hot(MINER), commitment(plain_field(b"kept")))
    lagging.blocks(2)
    chain = lagging.chain
    before = list(chain.blocks)
    real, calls = Chain._make, 0

    def fails_late(self: Chain, *args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise RuntimeError
        return real(self, *args, **kwargs)

    monkeypatch.setattr(Chain, "_make", fails_late)
    with pytest.raises(RuntimeError):
        chain.fork(3)
    monkeypatch.undo()
    assert list(chain.blocks) == before
    assert stored(chain)["block"] == 1
    assert len(chain.pool) == 0
    assert chain.build().number == 4


def test_state_of_retracted_blocks_until_their_height_is_final(lagging: Driver) -> None:
    """Values and keys of a retracted block are its own, across further forks, and discarded with finality."""
    chain = lagging.chain
    lagging.blocks(2)
    lagging.send(hot(MINER), commitment(plain_field(b"one")))
    first = chain.head
    chain.fork(1)
    lagging.chain.build()
    second = chain.head
    assert stored(chain, second)["block"] == 5
    chain.fork(3)
    prefix = codec().key(PALLET, "CommitmentOf", (NETUID,))
    assert stored(chain) is None
    assert [stored(chain, block)["block"] for block in (first, second)] == [3, 5]
    for block, count in ((first, 1), (second, 1), (chain.head, 0)):
        assert len(chain.view(block).raw_keys(prefix)) == count
        assert len(chain.view(block).key_page(prefix, prefix, 5)) == count
    while chain.finalized.number < first.number:
        assert stored(chain, first)["block"] == 3
        chain.build()
    with pytest.raises(StateDiscardedError):
        chain.view(first)
    assert chain.block_by_hash(first.hash) is first


KEYS = [b"a", b"ab", b"b"]
STEPS = st.lists(
    st.tuples(st.integers(0, 3), st.dictionaries(st.sampled_from(KEYS), st.none() | st.binary(max_size=2), max_size=3)),
    min_size=1,
    max_size=14,
)


@settings(deadline=None)
@given(STEPS, st.integers(0, 3), st.integers(0, 4))
def test_every_block_of_every_branch_reads_as_a_full_copy_would(
    steps: list[tuple[int, dict[bytes, bytes | None]]], keep: int, lag: int
) -> None:
    """However the chain forks, the state after a block is that of its own branch, or it says that it is discarded."""
    tree = BlockTree(keep)
    states: dict[bytes, dict[bytes, bytes]] = {}
    for serial, (depth, diff) in enumerate(steps):
        if depth and tree.blocks and tree.head.number - depth >= tree.finalized:
            tree.retract(tree.head.number - depth)
        parent = tree.head if tree.blocks else None
        block = seal_block(parent, (), {}, serial)
        state = dict(states[parent.hash]) if parent else {}
        for key, value in diff.items():
            if value is None:
                state.pop(key, None)
            else:
                state[key] = value
        block = seal_block(parent, (b"%d" % serial,), {}, serial)
        tree.append(block, {key: value for key, value in diff.items() if value != tree.history.latest(key)})
        tree.finalize(tree.head.number - lag)
        states[block.hash] = state
    for block_hash, state in states.items():
        found = tree.find(block_hash)
        assert found is not None
        kept = found.number > tree.finalized or (tree.is_canonical(found) and found.number >= tree.history.floor)
        if not kept:
            continue
        source = tree.source(found)
        assert {key: source.get(key, found.number) for key in KEYS} == {key: state.get(key) for key in KEYS}
        assert source.keys(b"", found.number) == sorted(state)
        assert source.keys(b"a", found.number, after=b"a\x00", limit=1) == sorted(k for k in state if k == b"ab")


def test_forks_survive_a_restart(tmp_path: Path) -> None:
    """A reloaded chain has the same blocks, state and retracted hashes as the one that was left."""
    settings_ = DevnetConfig(state=tmp_path / "chain.state", genesis=genesis(), finality_lag=4)
    with open_chain(settings_) as chain:
        driver = Driver(chain)
        driver.blocks(3)
        driver.send(hot(MINER), commitment(plain_field(b"kept")))
        lost = chain.head
        chain.fork(2)
        chain.fork(1, 3)
        hashes = [block.hash for block in chain.blocks]
        final = chain.finalized.number
    with open_chain(settings_) as chain:
        assert [block.hash for block in chain.blocks] == hashes
        assert chain.finalized.number == final
        assert stored(chain)["block"] == 5
        assert stored(chain, chain.block_by_hash(lost.hash))["block"] == 4
        chain.fork(1)
        assert chain.build().number == len(hashes) + 1


def test_pruning_spares_what_a_retracted_block_stands_on() -> None:
    """With one kept state, a block off the chain still reads as it did, until its height is final."""
    tree = BlockTree(keep=1)

    def grow(serial: int, value: bytes) -> Any:
        tree.append(seal_block(tree.head if tree.blocks else None, (), {}, serial), {b"k": value, b"%d" % serial: b"x"})
        tree.finalize(tree.head.number - 2)
        return tree.head

    for serial in range(3):
        last = grow(serial, b"old%d" % serial)
    tree.retract(1)
    grow(3, b"new")
    grow(4, b"newer")
    assert tree.source(last).get(b"k", 2) == b"old2"
    assert tree.source(last).get(b"1", 2) == b"x"
    grow(5, b"newest")
    with pytest.raises(StateDiscardedError):
        tree.source(last)
    assert tree.history.floor == tree.finalized


def test_a_torn_fork_never_happened(tmp_path: Path) -> None:
    """Whatever part of a fork's record is missing, the old branch is the chain."""
    path = tmp_path / "chain.state"
    settings_ = DevnetConfig(state=path, genesis=genesis(), finality_lag=4)
    with open_chain(settings_) as chain:
        Driver(chain).blocks(4)
        hashes = [block.hash for block in chain.blocks]
        data = path.read_bytes()
        chain.fork(2)
    whole = path.read_bytes()
    assert whole[: len(data)] == data
    for cut in range(len(data), len(whole), 7):
        path.write_bytes(whole[:cut])
        with open_chain(settings_) as chain:
            assert [block.hash for block in chain.blocks] == hashes
        assert path.read_bytes() == data


def test_a_full_disk_undoes_a_fork(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork that cannot be written leaves the old branch, in memory and in the file."""
    path = tmp_path / "chain.state"
    with open_chain(DevnetConfig(state=path, genesis=genesis(), finality_lag=4)) as chain:
        Driver(chain).blocks(4)
        data, before = path.read_bytes(), list(chain.blocks)

        def full(*_: Any) -> int:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("os.pwrite", full)
        with pytest.raises(HostError):
            chain.fork(2)
        monkeypatch.undo()
        assert (list(chain.blocks), path.read_bytes()) == (before, data)


def test_files_of_version_1_are_read_and_go_on(tmp_path: Path) -> None:
    """A file from before forks loads as it is, and becomes version 2 with its next block."""
    path = tmp_path / "chain.state"
    settings_ = DevnetConfig(state=path, genesis=genesis(), finality_lag=4)
    with open_chain(settings_) as chain:
        Driver(chain).blocks(4)
        hashes = [block.hash for block in chain.blocks]
    old = b"CACHDEV1" + path.read_bytes()[8:]
    path.write_bytes(old)
    with open_chain(settings_) as chain:
        assert [block.hash for block in chain.blocks] == hashes
    assert path.read_bytes() == old
    with open_chain(settings_) as chain:
        chain.fork(1)
    assert path.read_bytes()[:8] == b"CACHDEV2"
    with open_chain(settings_) as chain:
        assert chain.head.number == 5


def numbers(heads: list[Any]) -> list[int]:
    return [int(head["number"], 16) for head in heads]


@pytest.mark.parametrize("devnet", [LAGGING], indirect=True)
@pytest.mark.parametrize(
    ("method", "told"),
    [
        ("chain_subscribeNewHeads", [5, 6, 7]),
        ("chain_subscribeAllHeads", [5, 4, 5, 6, 7]),
        ("chain_subscribeFinalizedHeads", [1, 2, 3]),
    ],
)
async def test_what_head_subscriptions_hear(devnet: Devnet, raw: RawClient, method: str, told: list[int]) -> None:
    """New heads jump onto the longer branch, all heads hear every block, finalized heads only the final branch."""
    await raw.result("dev_newBlock", 5)
    await raw.result(method)
    done = await raw.result("dev_fork", 2, 4)
    heads = await raw.drain()
    assert numbers(heads) == told
    chain = devnet.chain
    assert [block.hash_hex for block in chain.blocks[4:]] == done["enacted"]
    if method == "chain_subscribeFinalizedHeads":
        assert [head["parentHash"] for head in heads] == [chain.blocks[n - 1].hash_hex for n in told]
    else:
        assert heads[0]["parentHash"] == chain.block_by_hash(bytes.fromhex(done["retracted"][0][2:])).hash_hex  # type: ignore[union-attr]
        assert heads[-1]["parentHash"] == chain.blocks[6].hash_hex


@pytest.mark.parametrize("devnet", [LAGGING], indirect=True)
async def test_hashes_and_state_of_a_retracted_block(devnet: Devnet, raw: RawClient) -> None:
    """A height names the new block; the old hash still has its header, its body and, for a while, its state."""
    await raw.result("dev_newBlock", 3)
    old = await raw.result("chain_getBlockHash", 3)
    done = await raw.result("dev_fork", 1)
    assert done["retracted"] == [old]
    assert await raw.result("chain_getBlockHash", 3) == done["enacted"][0]
    assert (await raw.result("chain_getHeader", old))["number"] == "0x3"
    assert len((await raw.result("chain_getBlock", old))["block"]["extrinsics"]) == 1
    now = "0x" + codec().key("Timestamp", "Now").hex()
    assert await raw.result("state_getStorage", now, old) != await raw.result(
        "state_getStorage", now, done["enacted"][0]
    )
    await raw.result("dev_newBlock", 4)
    error = (await raw.ask("state_getStorage", now, old))["error"]
    assert (error["code"], error["message"].endswith(f"State already discarded for {old}")) == (4003, True)
    assert (await raw.ask("dev_fork", 9))["error"]["message"].startswith("refused: a fork retracts between 1 and 4")


@pytest.mark.parametrize("devnet", [LAGGING], indirect=True)
async def test_what_the_watcher_of_an_extrinsic_hears(devnet: Devnet, raw: RawClient) -> None:
    """In a block, retracted, in another block, final there."""
    await raw.result("dev_newBlock", 2)
    text = "0x" + sign(devnet.chain, VALIDATOR, REMARK).hex()
    await raw.result("author_submitAndWatchExtrinsic", text)
    first = await raw.result("dev_newBlock")
    await raw.result("dev_fork", 1)
    second = await raw.result("dev_newBlock")
    await raw.result("dev_newBlock", 4)
    assert await raw.drain() == [
        "ready",
        {"inBlock": first},
        {"retracted": first},
        {"inBlock": second},
        {"finalized": second},
    ]


@pytest.mark.parametrize("devnet", [LAGGING], indirect=True)
async def test_the_sdk_gives_up_on_what_lands_after_all(devnet: Devnet, sdk: Any, validator: Wallet) -> None:
    """The unmodified SDK reports a retracted extrinsic as failed; on the chain it is included and final."""
    import bittensor

    devnet.chain.build()
    task = asyncio.create_task(sdk.submit_call(bittensor.calls.System.remark(remark=b"r"), validator, signer="coldkey"))
    async with asyncio.timeout(60):
        while not len(devnet.chain.pool):
            await sdk.block()
        (sent,) = devnet.chain.pool
        devnet.chain.build()
        devnet.chain.fork(1)
        block = devnet.chain.build()
        for _ in range(4):
            devnet.chain.build()
        result = await task
    assert (result.success, "retracted" in result.message) == (False, True)
    assert devnet.chain.finalized is block
    assert sent.raw in block.extrinsics
