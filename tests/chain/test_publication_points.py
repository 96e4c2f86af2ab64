"""Death at every single await of a publication and of the ledger's commitment, one after the other.

`test_publication_kill.py` kills processes at the durable steps. Here every request to the chain, every signature and
every journal operation is such a point: the process's memory is thrown away there, before and after each, and only the
chain and the journals remain. What has to hold is the same.
"""

from __future__ import annotations

import inspect
import itertools
from collections import Counter
from typing import Any

import msgspec
import pytest

from chain.abi import Storage
from chain.blocks import BlockRef
from chain.hyperparameters import read_hyperparameters
from chain.ledger_pointer import LedgerPointer
from chain.ledger_publication import commitment_step
from chain.publication import PublicationOptions, step
from chain.rpc import extrinsic_hash_of
from tests.chain.publisher import target_of
from tests.chain.test_ledger_publication import Journal

pytestmark = [pytest.mark.crash, pytest.mark.timeout(1200)]  # a hundred lives and more, one after the other
OPTIONS = PublicationOptions(netuid=2, profile="devnet", era_blocks=16)
TEMPO = 8


class Death(BaseException):
    """The process ends here; nothing but the test catches it."""


class Fuse:
    """Kills at the `at`-th point; `passed` counts them."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.passed = 0

    def burn(self) -> None:
        """Pass one point."""
        self.passed += 1
        if self.passed == self.at:
            raise Death


class Fused:
    """Anything whose methods are points, before and after."""

    def __init__(self, inner: Any, fuse: Fuse) -> None:
        self._inner = inner
        self._fuse = fuse

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if inspect.iscoroutinefunction(found):
            return self._waited(found)
        return self._done(found) if name == "sign" else found

    def _waited(self, method: Any) -> Any:
        async def call(*arguments: Any, **keywords: Any) -> Any:
            self._fuse.burn()
            answer = await method(*arguments, **keywords)
            self._fuse.burn()
            return answer

        return call

    def _done(self, method: Any) -> Any:
        def call(*arguments: Any, **keywords: Any) -> Any:
            self._fuse.burn()
            answer = method(*arguments, **keywords)
            self._fuse.burn()
            return answer

        return call


class Life:
    """One process after the other over the same chain and journals."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.commitments = Journal()

    async def one_step(self, fuse: Fuse, *, begin: bool = True) -> None:
        """Step weights and then the ledger at the finalized head; without `begin` only what is open goes on."""
        world = self.world
        client, signer = Fused(world.client, fuse), Fused(world.validator, fuse)
        weights, ledger = Fused(world.journal, fuse), Fused(self.commitments, fuse)
        block = await world.client.finalized_head()
        epoch = (await read_hyperparameters(world.client, 2, block)).epoch

        async def decide(parameters: Any, _metagraph: Any) -> Any:
            return target_of(parameters.epoch)

        result = await step(client, signer, weights, decide if begin else None, OPTIONS, block)
        head, before = result.head, await self.commitments.head()
        in_flight = head is not None and head.is_open and head.included_block is None
        if not begin and (before is None or not before.is_open):
            return
        pointer = LedgerPointer(f"{epoch:064x}", "https://validator.example/ledger", "cd" * 32)
        await commitment_step(
            client, signer, ledger, pointer, netuid=2, epoch=epoch, block=block,
            weights_nonce=head.nonce if in_flight else None,
        )

    async def until_settled(self, fuse: Fuse) -> None:
        """Step and make blocks in turns until weights and a commitment of this epoch or a later one are confirmed."""
        began = (await read_hyperparameters(self.world.client, 2, await self.world.client.finalized_head())).epoch
        for _ in range(6 * TEMPO):
            await self.one_step(fuse)
            records = [*await self.world.journal.records()], self.commitments.records
            if all(any(one.status == "confirmed" and one.epoch >= began for one in each[-9:]) for each in records):
                return
            self.world.blocks()
        pytest.fail("nothing settled within six epochs")

    async def until_quiet(self) -> None:
        """Follow what is open to its end."""
        for _ in range(6 * TEMPO):
            await self.one_step(Fuse(0), begin=False)
            heads = [await self.world.journal.head(), await self.commitments.head()]
            if not any(head is not None and head.is_open for head in heads):
                return
            self.world.blocks()
        pytest.fail("something stays open")


@pytest.mark.parametrize("commit_reveal", [False, True])
async def test_death_at_every_await(make_world: Any, commit_reveal: bool) -> None:
    """Whatever is forgotten wherever: one extrinsic per intent, one publication per epoch, all confirmed by reading."""
    world = await make_world(tempo=TEMPO, commit_reveal=commit_reveal, weights_rate_limit=1)
    life = Life(world)
    for point in itertools.count(1):
        fuse = Fuse(point)
        try:
            await life.until_settled(fuse)
        except Death:
            world.blocks(point % 3)  # back at once, one block later, two blocks later
            await life.until_settled(Fuse(0))
            world.blocks(TEMPO)
        else:
            break
    assert point > 40
    await life.until_quiet()
    await check(world, life.commitments)


async def check(world: Any, commitments: Journal) -> None:
    """Chain and journals tell the same story."""
    on_chain: dict[str, tuple[int, int]] = {}
    for number in range(1, (await world.client.finalized_head()).number + 1):
        block = BlockRef(number, await world.client.block_hash(number))
        for data in (await world.client.extrinsics(block))[1:]:
            digest = extrinsic_hash_of(data)
            assert digest not in on_chain
            on_chain[digest] = (number, (await read_hyperparameters(world.client, 2, block)).epoch)
    weights = await world.journal.records()
    last = {record.extrinsic_hash: record for record in weights}
    committed = {record.commitment_id: record for record in commitments.records}
    assert set(on_chain) <= set(last) | set(committed)
    assert len({record.extrinsic_hash for record in weights if record.status == "intent"}) == sum(
        record.status == "intent" for record in weights
    )
    epochs = Counter(epoch for name, (_, epoch) in on_chain.items() if name in last)
    assert max(epochs.values()) == 1
    for name, record in last.items():
        assert record.status == ("confirmed" if name in on_chain else "expired"), msgspec.to_builtins(record)
    for name, one in committed.items():
        assert one.status == ("confirmed" if name in on_chain else "expired"), msgspec.to_builtins(one)
    for record in last.values():
        if record.confirmed_block is not None:
            block = BlockRef(record.confirmed_block, await world.client.block_hash(record.confirmed_block))
            (row,) = await world.client.read(block, [(Storage.WEIGHTS, [2, 0])])
            assert {int(uid): int(value) for uid, value in row} == dict(zip(record.uids, record.values, strict=True))
