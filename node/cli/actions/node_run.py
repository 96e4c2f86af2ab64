"""`cacheon node run`: the daemon, until it is told to stop."""

from __future__ import annotations

import asyncio

from config.errors import ExitCode
from node import logs
from node.cli.resolve import resolve


def run(config: str) -> int:
    """Run the node. Raises every start-up refusal as a `CacheonError`."""
    settings = resolve(config).settings
    logs.configure(settings.log)
    from node.daemon import run_node  # after the settings are known to be good: this import is the slow one
    from node.exit_watch import ExitWatch

    asyncio.run(run_node(settings, exit_watch=ExitWatch()))
    return int(ExitCode.OK)
