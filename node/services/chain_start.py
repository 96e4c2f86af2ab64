"""Reaching the chain at start: waiting for one that is away, and refusing one that is not ours.

Invariants
1. What only time can mend (no endpoint answers, an answer is late or unreadable) is waited for, told once, and asked
   again for as long as it takes.
2. What only a person can mend (another chain, no such subnet, no registration, a runtime that is not supported) ends
   the start with its error.
"""

from __future__ import annotations

from chain.client import ChainClient
from chain.signer import Signer
from config.errors import CacheonError, ChainError, ConfigurationError, HostError, NetworkError
from config.settings import Settings
from node.doctor.chain import ChainReady
from node.services import selfcheck
from node.services.chain_watch import ChainWatch

_PASSING = frozenset({"CHAIN_STATE_PRUNED", "CHAIN_REQUEST_FAILED", "CHAIN_DECODE_FAILED", "CHECK_TIMEOUT"})


def may_pass(error: CacheonError) -> bool:
    """Say whether waiting may mend `error`."""
    return isinstance(error, NetworkError) or error.code in _PASSING


async def reach_chain(
    settings: Settings, client: ChainClient, signer: Signer | None, watch: ChainWatch, *, bound_genesis: str
) -> ChainReady:
    """Return the chain once it answers and is the one to serve.

    `bound_genesis` is the chain of the state folder, "" for a new folder. Raises `ChainError`, `WalletError` and
    `ConfigurationError` (STORE_FOREIGN_CHAIN).
    """
    while True:
        try:
            ready = await selfcheck.check_chain(settings, client, signer)
        except (NetworkError, ChainError, HostError) as error:
            if error.code == "CHAIN_GENESIS_DIFFERS" and bound_genesis:
                raise ConfigurationError(
                    "STORE_FOREIGN_CHAIN", f"the state folder belongs to chain {bound_genesis[:10]}: {error.message}",
                    hint="use another `state_dir` for this chain, or correct `chain.endpoints`",
                ) from error
            if not may_pass(error):
                raise
            await watch.away(error)
        else:
            await watch.back()
            return ready
