"""The node under soak, as a process that can be killed: the real services on a real store.

Heads, reveals and publication run under the real supervisor; fetching, screening and measuring do not, because there
are no archives. Crowns are given to the first good reveals instead, so that there is a vector to publish. What the
process has seen is told line by line on standard output; logs go to standard error.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import msgspec
import structlog
from sqlalchemy import Connection, select

from chain.blocks import BlockRef
from chain.client import ChainClient
from chain.publication_record import PublicationRecord
from chain.reveals import RevealScan
from chain.wallet import address_of_seed, signer_of_seed
from config.settings import ChainSettings, LogSettings, PublicationSettings, Settings
from config.target_catalog import load_catalog
from node import logs
from node.services import supervisor
from node.services.chain_watch import ChainWatch
from node.services.context import NodeContext
from node.services.heads import HeadsService, HeadWatch
from node.services.publication import PublicationService
from node.services.receipts import ReceiptBook
from node.services.reveals import RevealsService
from node.store.crown_rows import all_crowns, crown_state, record_settlement
from node.store.engine import Store
from node.store.layout import StateLayout
from node.store.schema import submissions
from node.store.submission_rows import load_submission
from scoring.settle import Candidate, FinalizedOrder, incumbents, plan
from tests.scoring.support import make_arena

NETUID = 2
VALIDATOR, SINK = "//Validator", "//Sink"
CROWNS = 2


class NodeOptions(msgspec.Struct, frozen=True):
    """What the process is told on its command line, as one JSON document."""

    url: str
    state: str
    request_seconds: float
    backoff_seconds: float  # first pause of the supervisor; a block is far shorter here than on a public chain


def tell(**what: object) -> None:
    """Write one line of progress."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


class ToldReveals(RevealsService):
    """The reveals service; it tells how far it is."""

    async def scan_once(self) -> RevealScan:
        """See `RevealsService`."""
        scan = await super().scan_once()
        if scan.cursor is not None:
            tell(cursor=scan.cursor.number)
        return scan


class ToldPublication(PublicationService):
    """The publication service; it tells which block it has dealt with, and why it waits."""

    async def step_once(self, block: BlockRef) -> PublicationRecord | None:
        """See `PublicationService`."""
        record = await super().step_once(block)
        tell(published=block.number, waiting=self.waiting_code)
        return record


class CrowningService:
    """Gives `CROWNS` of the first good reveals a crown each, in place of qualification."""

    name = "crowning"

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self._ear = context.wake.listen()

    async def run(self) -> None:
        """Crown until there are enough, then rest."""
        while await self._context.store.write(crown_next) < CROWNS:
            await self._ear.wait(1.0)
        await asyncio.Event().wait()


def crown_next(connection: Connection) -> int:
    """Crown one good reveal more, if there is one; return how many crowns there are."""
    crowns = all_crowns(connection)
    taken = {crown.submission_id for crown in crowns}
    good = select(submissions.c.submission_id).where(submissions.c.reason == "").order_by(submissions.c.block)
    for submission_id in connection.execute(good).scalars():
        if submission_id in taken or len(crowns) >= CROWNS:
            continue
        one, state = load_submission(connection, submission_id), crown_state(connection)
        target = _single_targets()[len(crowns)]
        candidate = Candidate(
            submission_id=submission_id, order=FinalizedOrder(*one.order), target_id=target, members=(target,),
            tree_digest="", speedup_ppm=1_100_000, measured_against=incumbents(state, (target,)),
        )
        record_settlement(connection, plan(state, [candidate]).events, {submission_id: "00" * 32})
        return len(crowns) + 1
    return len(crowns)


def _single_targets() -> list[str]:
    return sorted(name for name, target in load_catalog().targets.items() if len(target.members) == 1)


async def run(options: NodeOptions) -> None:
    """Serve until killed."""
    logs.configure(LogSettings(level="info", format="json"))
    supervisor._BACKOFF_BASE_SECONDS = options.backoff_seconds
    chain_settings = ChainSettings(
        endpoints=(options.url,), netuid=NETUID, start_block=1, request_timeout_seconds=options.request_seconds,
        rpc_per_second=100_000, poll_seconds=0.02,
    )
    publication = PublicationSettings(burn_hotkey=address_of_seed(SINK))
    settings = Settings(profile="devnet", chain=chain_settings, publication=publication)
    layout = StateLayout.at(Path(options.state))
    store = await Store.open(layout)
    client = ChainClient(  # blocks come many times a second here: one second without any is a long silence
        [options.url], request_timeout=options.request_seconds, rpc_per_second=100_000, silence_seconds=1.0,
        runtime_cache_dir=layout.runtime_cache,
    )
    context = NodeContext(settings, layout, store, make_arena(), load_catalog(), "soak", Path("/none"))
    receipts = await asyncio.to_thread(ReceiptBook.open, layout)
    while True:
        try:
            await store.bind(await client.genesis_hash(), NETUID)
            break
        except Exception as error:  # noqa: BLE001 - the chain may be away while the process starts
            structlog.get_logger().warning("soak.waits", error=str(error))
            await asyncio.sleep(0.2)
    heads = HeadWatch()
    tell(started=True)
    await supervisor.supervise_all(context, [
        HeadsService(client, heads, ChainWatch(layout, settings.chain.poll_seconds)),
        ToldReveals(context, client, heads),
        ToldPublication(context, client, signer_of_seed(VALIDATOR), heads, receipts),
        CrowningService(context),
    ])


def main() -> None:
    """Run with the options of the command line."""
    asyncio.run(run(msgspec.json.decode(sys.argv[1], type=NodeOptions)))


if __name__ == "__main__":
    main()
