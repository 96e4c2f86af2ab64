"""The command line of the node: `python -m chain.devnet`.

Invariants
1. One JSON line on standard output says that the node listens; nothing else is written there.
2. A refusal is one JSON error document on standard error and the exit code of its family.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from chain.devnet.config import DEFAULT_BLOCK_SECONDS, DEFAULT_PORT, DevnetConfig
from chain.devnet.genesis_document import Genesis, NeuronSpec, OwnerSpec, load_genesis
from chain.devnet.scale import to_hex
from config.errors import CacheonError, ConfigurationError, ExitCode

_GENESIS_NUMBERS = ("netuid", "tempo", "reveal_period", "weights_rate_limit", "version_key", "min_allowed_weights")


def parser() -> argparse.ArgumentParser:
    """Return the argument parser."""
    result = argparse.ArgumentParser(prog="python -m chain.devnet", description="A local Subtensor-like chain.")
    result.add_argument("--port", type=int, default=DEFAULT_PORT, help="0 takes a free port")
    result.add_argument("--host", default="127.0.0.1", help="a loopback address")
    result.add_argument("--block-time", type=float, default=DEFAULT_BLOCK_SECONDS, help="seconds; 0 = instant")
    result.add_argument("--manual", action="store_true", help="blocks only by dev_newBlock")
    result.add_argument("--finality-lag", type=int, default=0, help="blocks between head and finalized")
    result.add_argument("--state", type=Path, help="file that survives restarts")
    result.add_argument("--keep-state", type=int, default=0, help="newest blocks with readable storage; 0 = all")
    result.add_argument("--no-dev-rpc", action="store_true", help="do not offer the dev_* methods")
    genesis = result.add_argument_group("genesis of a new chain (kept by a state file)")
    genesis.add_argument("--genesis", type=Path, help="JSON document; the options below override it")
    for name in _GENESIS_NUMBERS:
        genesis.add_argument(f"--{name.replace('_', '-')}", type=int)
    genesis.add_argument("--commit-reveal", action=argparse.BooleanOptionalAction)
    genesis.add_argument("--account", action="append", default=[], metavar="SS58=TAO")
    genesis.add_argument("--neuron", action="append", default=[], metavar="HOTKEY:COLDKEY[:permit][:STAKE]")
    genesis.add_argument("--owner", metavar="HOTKEY:COLDKEY")
    return result


def configure(arguments: argparse.Namespace) -> DevnetConfig:
    """Return the settings of parsed arguments; raises `ConfigurationError`."""
    return DevnetConfig(
        host=arguments.host,
        port=arguments.port,
        block_time=arguments.block_time,
        manual=arguments.manual,
        finality_lag=arguments.finality_lag,
        state=arguments.state,
        keep_state=arguments.keep_state,
        genesis=_genesis(arguments),
        dev_rpc=not arguments.no_dev_rpc,
    )


def _genesis(arguments: argparse.Namespace) -> Genesis | None:
    base = load_genesis(arguments.genesis) if arguments.genesis else None
    changes: dict[str, object] = {
        name: getattr(arguments, name)
        for name in (*_GENESIS_NUMBERS, "commit_reveal")
        if getattr(arguments, name) is not None
    }
    genesis = base or Genesis()
    if arguments.account:
        changes["balances"] = genesis.balances | dict(map(_parse_account, arguments.account))
    if arguments.neuron:
        changes["neurons"] = (*genesis.neurons, *map(_parse_neuron, arguments.neuron))
    if arguments.owner:
        hotkey, _, coldkey = arguments.owner.partition(":")
        changes["owner"] = OwnerSpec(hotkey, coldkey)
    if base is None and not changes:
        return None
    return msgspec.structs.replace(genesis, **changes)


def _parse_account(text: str) -> tuple[str, int]:
    address, _, amount = text.partition("=")
    if not amount.isdigit():
        raise ConfigurationError("GENESIS_INVALID", f"--account {text!r} is not SS58=TAO with whole TAO.")
    return address, int(amount)


def _parse_neuron(text: str) -> NeuronSpec:
    hotkey, *rest = text.split(":")
    if not rest:
        raise ConfigurationError("GENESIS_INVALID", f"--neuron {text!r} is not HOTKEY:COLDKEY[:permit][:STAKE].")
    coldkey, *marks = rest
    stakes = [mark for mark in marks if mark.isdigit()]
    if len(stakes) > 1 or any(mark != "permit" and not mark.isdigit() for mark in marks):
        raise ConfigurationError("GENESIS_INVALID", f"--neuron {text!r} has marks other than permit and one stake.")
    return NeuronSpec(hotkey, coldkey, permit="permit" in marks, stake=int(stakes[0]) if stakes else 0)


async def _serve(config: DevnetConfig) -> None:
    from chain.devnet.server import Devnet  # the server pulls in the codec; `--help` need not wait for it

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with Devnet(config) as node:
        line = {
            "event": "listening",
            "url": node.url,
            "genesis": to_hex(node.chain.genesis_hash),
            "head": node.chain.head.number,
        }
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
        ends = [asyncio.create_task(node.wait()), asyncio.create_task(stop.wait())]
        done, pending = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        for task in done:
            task.result()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the node until SIGINT or SIGTERM and return the exit code."""
    try:
        asyncio.run(_serve(configure(parser().parse_args(argv))))
    except CacheonError as error:
        sys.stderr.write(msgspec.json.encode(error.to_document()).decode() + "\n")
        return int(error.exit_code)
    return int(ExitCode.OK)
