"""`cacheon signer run`: the process that holds the hotkey."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from config.errors import ConfigurationError, ExitCode
from node import logs
from node.cli.resolve import resolve

if TYPE_CHECKING:
    from chain.signer import Signer
    from config.settings import Settings
    from node.cli.options import ChainChoice


def run(path: str, uids: tuple[int, ...], choice: ChainChoice) -> int:
    """Serve until SIGTERM or Ctrl-C.

    Raises `WalletError` for the key, `ConfigurationError` (SIGNER_SUBNET_MISSING) and `HostError`
    (SIGNER_SOCKET_UNUSABLE).
    """
    from chain.wallet import load_hotkey

    settings = resolve(choice.config, choice.overrides()).settings
    logs.configure(settings.log)
    chain = settings.chain
    if chain.netuid == 0:
        raise ConfigurationError(
            "SIGNER_SUBNET_MISSING", "a signer signs for one subnet, and none is named",
            hint="name it with --netuid or `chain.netuid`",
        )
    key = load_hotkey(chain.wallet_path, chain.wallet, chain.hotkey)
    asyncio.run(_serve(settings, key, Path(path), frozenset({os.geteuid(), *uids})))
    return int(ExitCode.OK)


async def _serve(settings: Settings, key: Signer, path: Path, uids: frozenset[int]) -> None:
    from chain.client import ChainClient
    from chain.signer_server import ChainRuntime, SignerServer

    log = structlog.get_logger()
    client = ChainClient.from_settings(settings.chain)
    server = SignerServer(key, settings.chain.netuid, ChainRuntime(client), uids, _logger(log))

    def ready() -> None:
        netuid, users = settings.chain.netuid, sorted(uids)
        log.info("signer.listening", socket=str(path), hotkey=key.ss58_address, netuid=netuid, uids=users)

    serving = asyncio.create_task(server.serve(path, ready))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, serving.cancel)
    try:
        await serving
    except asyncio.CancelledError:
        log.info("signer.stopped")
    finally:
        await client.close()


def _logger(log: Any) -> Any:
    def tell(event: str, **keys: object) -> None:
        (log.info if event == "signer.signed" else log.warning)(event, **keys)

    return tell
