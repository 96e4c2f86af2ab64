"""The settings file of the demo's validator node."""

from __future__ import annotations

import json

from node.demo.cast import VALIDATOR_WALLET
from node.demo.place import Place, Plan, write_atomically

NETUID = 2
HOTKEY = "default"


def write_node_settings(place: Place, plan: Plan) -> None:
    """Write `node.toml`: this chain, the validator's wallet, patience measured in seconds instead of minutes."""
    lines = [
        "# Written by `cacheon demo`; changed by every start.",
        'profile = "devnet"',
        f"state_dir = {_text(str(place.node_state))}",
        "",
        "[chain]",
        f"endpoints = [{_text(chain_endpoint(plan))}]",
        f"netuid = {NETUID}",
        "start_block = 1",
        f"wallet_path = {_text(str(place.wallets))}",
        f"wallet = {_text(VALIDATOR_WALLET)}",
        f"hotkey = {_text(HOTKEY)}",
        "",
        "[intake]",
        "transport_attempts = 4",
        "retry_base_seconds = 0.5",
        "retry_cap_seconds = 2.0",
        "",
        "[qualify]",
        "attempt_retries = 10",  # a busy machine makes attempts unfit; the demo would rather wait than park
        "retry_base_seconds = 1.0",
        "",
        "[log]",
        'format = "json"',
        "",
    ]
    write_atomically(place.node_settings, "\n".join(lines).encode("utf-8"))


def chain_endpoint(plan: Plan) -> str:
    """Return the websocket URL of the local chain."""
    return f"ws://127.0.0.1:{plan.chain_port}"


def _text(value: str) -> str:
    # a JSON string is a TOML basic string, but for two things: no surrogate pairs, and DEL has to be escaped
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
