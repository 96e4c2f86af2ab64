"""The miners' part: commit each bundle once, by the code behind `cacheon chain-submit`.

Invariants
1. What is already sealed or revealed on the chain is not committed again, so a restart commits only what is missing.
2. The copy is committed after the original is on the chain and opens later: chain order decides who was first.
"""

from __future__ import annotations

import asyncio

from chain.client import ChainClient
from chain.commitments import commitment_state
from chain.wallet import load_hotkey
from node.cli.miner import commit, prepare
from node.demo.archive_host import ArchiveHost
from node.demo.cast import CAST, Player
from node.demo.place import Place, Plan
from node.demo.prepare import Company, example_folder
from node.demo.reporter import Reporter
from node.demo.settings_file import HOTKEY, NETUID

PROFILE = "devnet"


class Miners:
    """All six miners on one chain connection."""

    def __init__(self, client: ChainClient, place: Place, plan: Plan, company: Company, host: ArchiveHost) -> None:
        self._client = client
        self._place = place
        self._plan = plan
        self._company = company
        self._host = host

    async def submit_missing(self, reporter: Reporter) -> int:
        """Commit what is not on the chain yet and return how many that were."""
        originals = [player for player in CAST if player.follows is None]
        copies = [player for player in CAST if player.follows is not None]
        done = await asyncio.gather(*(self._submit(player, reporter) for player in originals))
        for player in copies:
            done.append(await self._submit(player, reporter))
        return sum(done)

    async def _submit(self, player: Player, reporter: Reporter) -> bool:
        content_hash = self._company.content_hashes[player.example]
        hotkey = self._company.hotkeys[player.wallet]
        state = await commitment_state(
            self._client, NETUID, hotkey, await self._client.head(), allow_loopback_http=True
        )
        if state.status == "sealed" or any(reveal.content_hash == content_hash for reveal in state.reveals):
            return False
        url = self._host.url(self._plan.archive_port, content_hash)
        prepared = prepare(example_folder(player.example), url, allow_loopback_http=True)
        signer = load_hotkey(str(self._place.wallets), player.wallet, HOTKEY)
        receipt = await commit(
            self._client, signer, prepared, netuid=NETUID, profile=PROFILE, reveal_in_blocks=player.reveal_delay
        )
        reporter.step(f"{player.wallet} committed {content_hash[:12]} in block {receipt.block.number} ({player.what})")
        return True
