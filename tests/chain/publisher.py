"""A weight publisher that dies by SIGKILL at a chosen point; `test_publication_kill.py` runs it as a process."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import msgspec

from chain.client import ChainClient
from chain.hyperparameters import read_hyperparameters
from chain.publication import PublicationOptions, WeightTarget, step
from chain.publication_record import PublicationRecord, journal_moved, record_digest
from chain.rpc import PoolAnswer
from chain.wallet import address_of_seed, signer_of_seed

NETUID = 2
VALIDATOR = "//Validator"
OPTIONS = PublicationOptions(netuid=NETUID, profile="devnet", era_blocks=16)


class Fuse:
    """Kills this process at the `at`-th point it passes; 0 never does."""

    def __init__(self, at: int) -> None:
        self._left = at

    def burn(self) -> None:
        """Pass one point."""
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


class FileJournal:
    """A publication journal in a file, one synced line per record."""

    def __init__(self, path: Path, fuse: Fuse) -> None:
        self._path = path
        self._fuse = fuse

    async def records(self) -> tuple[PublicationRecord, ...]:
        """See `PublicationJournal`."""
        lines = self._path.read_bytes().splitlines() if self._path.exists() else []
        return tuple(msgspec.json.decode(line, type=PublicationRecord) for line in lines)

    async def head(self) -> PublicationRecord | None:
        """See `PublicationJournal`."""
        records = await self.records()
        return records[-1] if records else None

    async def append(self, record: PublicationRecord, expected_head: str | None) -> None:
        """See `PublicationJournal`."""
        head = await self.head()
        if (record_digest(head) if head else None) != expected_head:
            raise journal_moved()
        self._fuse.burn()
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(record) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self._fuse.burn()


class FusedClient(ChainClient):
    """A client that may die right before and right after it submits."""

    fuse = Fuse(0)

    async def submit(self, extrinsic: bytes) -> PoolAnswer:
        """See `ChainClient`."""
        self.fuse.burn()
        answer = await super().submit(extrinsic)
        self.fuse.burn()
        return answer


def target_of(epoch: int) -> WeightTarget:
    """The vector of an epoch: it changes every time, so no row can be taken for the next one."""
    share = 100_000 + 1_000 * epoch
    entries = ((address_of_seed("//Ann"), 1_000_000 - share), (address_of_seed("//Bob"), share))
    return WeightTarget(entries, f"{epoch:064x}", epoch)


def publish(url: str, cache: str, journal: str, crash_at: int, last_block: int) -> None:
    """Step and make blocks in turns until `last_block` is there and nothing is open."""
    asyncio.run(_publish(url, Path(cache), Path(journal), crash_at, last_block))


async def _publish(url: str, cache: Path, path: Path, crash_at: int, last_block: int) -> None:
    fuse = Fuse(crash_at)
    journal, signer = FileJournal(path, fuse), signer_of_seed(VALIDATOR)
    async with FusedClient([url], rpc_per_second=100_000, runtime_cache_dir=cache) as client:
        client.fuse = fuse
        while True:
            block = await client.finalized_head()
            head = await journal.head()
            if block.number >= last_block and head is not None and not head.is_open:
                return
            epoch = (await read_hyperparameters(client, NETUID, block)).epoch
            desired = target_of(epoch) if block.number < last_block else None
            await step(client, signer, journal, desired, OPTIONS)
            await ask(client, "dev_newBlock")


async def ask(client: ChainClient, method: str, *params: Any) -> Any:
    """Ask the node directly."""
    return await (await client._connected()).request(method, params)
