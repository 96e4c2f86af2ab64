"""What must hold before the node serves, cheapest first; each missing thing is one error.

Invariants
1. Nothing is changed by looking: no extrinsic, no file outside the state folder.
2. The machine is checked before the chain, so that a broken installation is named even while the chain is away.
"""

from __future__ import annotations

import importlib.util

import msgspec

from chain.blocks import BlockRef
from chain.client import ChainClient
from chain.metagraph import read_metagraph
from chain.signer import Signer
from chain.wallet import load_hotkey, require_registered
from config.arena import Arena, load_arena
from config.errors import ConfigurationError, HostError, IntakeError
from config.settings import Settings
from config.target_catalog import TargetCatalog
from qualify.intake_runner import IntakeRunner


class ChainReady(msgspec.Struct, frozen=True):
    """A chain that can be served: which one, where its finalized head is, and the node's registered key there."""

    genesis_hash: str
    spec_version: int
    head: BlockRef
    hotkey: str


def check_settings(settings: Settings) -> None:
    """Raise `ConfigurationError` (STATE_DIR_MISSING) when no state folder is set."""
    if not settings.state_dir:
        raise ConfigurationError(
            "STATE_DIR_MISSING", "`state_dir` is not set",
            hint="give the node a folder of its own in the settings file, CACHEON_STATE_DIR or a flag",
        )


def check_torch() -> None:
    """Raise `HostError` (TORCH_MISSING) unless attempts will find torch. Nothing is imported."""
    if importlib.util.find_spec("torch") is None:
        raise HostError(
            "TORCH_MISSING", "torch is not installed beside this node",
            hint="install it into the same environment: pip install torch",
        )


def check_arena(settings: Settings, catalog: TargetCatalog) -> Arena:
    """Load the configured arena and check it against the catalog.

    Raises `ConfigurationError`: ARENA_NOT_FOUND, ARENA_INVALID, ARENA_TARGET_UNKNOWN.
    """
    arena = load_arena(settings.qualify.arena)
    for workload in arena.workloads:
        if catalog.find(workload.target) is None:
            raise ConfigurationError(
                "ARENA_TARGET_UNKNOWN", f"arena {arena.id} measures {workload.target!r}, which is no registered target",
                hint=f"registered targets: {', '.join(sorted(catalog.targets))}",
            )
    return arena


async def check_chain(settings: Settings, client: ChainClient, signer: Signer) -> ChainReady:
    """Connect and check subnet and registration.

    Raises `NetworkError` and `ChainError` of the client, and `WalletError` (HOTKEY_NOT_REGISTERED).
    """
    await client.open()
    identity = await client.probe()
    head = await client.finalized_head()
    netuid = settings.chain.netuid
    await client.require_subnet(netuid, head)
    require_registered(await read_metagraph(client, netuid, head), signer.ss58_address)
    return ChainReady(identity.genesis_hash, identity.spec_version, head, signer.ss58_address)


def check_sandbox(runner: IntakeRunner) -> None:
    """Screen bytes that are no archive: the refusal must come out of a sandboxed child.

    Raises `HostError` (SANDBOX_LAYER_MISSING and others of `qualify.sandbox`) and `InternalError` when none can run.
    """
    try:
        runner.run(b"no archive", "0" * 64)
    except IntakeError:
        return  # the child lived, looked and said no


def check_wallet(settings: Settings) -> Signer:
    """Load the node's hotkey. Raises `WalletError`."""
    chain = settings.chain
    return load_hotkey(chain.wallet_path, chain.wallet, chain.hotkey)
