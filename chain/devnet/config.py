"""Settings of one node, resolved before it starts.

Invariants
1. The node listens on a loopback address only; `DevnetConfig` refuses any other.
2. Block times and lags are the operator's choice at every start; what a chain *is* stands in its genesis.
"""

from __future__ import annotations

import ipaddress
import math
from pathlib import Path

import msgspec

from chain.devnet.genesis_document import Genesis
from config.errors import ConfigurationError

DEFAULT_PORT = 9944
DEFAULT_BLOCK_SECONDS = 0.25


class DevnetConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How a node runs.

    `block_time`: seconds between blocks; 0 seals one block per batch of submitted extrinsics (instant).
    `manual`: no timer and no instant sealing, blocks only by `dev_newBlock` or `Devnet.produce_block()`.
    `finality_lag`: how many blocks finality trails the head. `port` 0 takes any free port.
    `state`: the file that survives restarts. `genesis`: None means the stored chain's, or the default one.
    `keep_state`: newest blocks whose storage stays readable (0 = all). `dev_rpc`: offer the `dev_*` methods.
    `pool_limit`: extrinsics that may wait. `ban_seconds`: how long bytes that were included or invalid are refused.
    """

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    block_time: float = DEFAULT_BLOCK_SECONDS
    manual: bool = False
    finality_lag: int = 0
    state: Path | None = None
    genesis: Genesis | None = None
    keep_state: int = 0
    pool_limit: int = 8_192
    ban_seconds: float = 1_800.0
    dev_rpc: bool = True

    def __post_init__(self) -> None:
        try:
            loopback = ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            loopback = False
        if not loopback:
            raise ConfigurationError(
                "DEVNET_SETTINGS_INVALID",
                f"the devnet listens on loopback addresses only, not on {self.host!r}.",
                hint="use 127.0.0.1 or ::1; put a tunnel in front of it to reach it from elsewhere",
            )
        timing = all(math.isfinite(seconds) and seconds >= 0 for seconds in (self.block_time, self.ban_seconds))
        if not timing or not 0 <= self.port <= 65_535 or self.finality_lag < 0 or self.keep_state < 0:
            raise ConfigurationError(
                "DEVNET_SETTINGS_INVALID",
                "port, block time, finality lag and kept states are finite and not negative; a port is at most 65535.",
            )

    @property
    def instant(self) -> bool:
        """Whether a submitted extrinsic makes its own block."""
        return not self.manual and self.block_time == 0

    @property
    def timed(self) -> bool:
        """Whether a timer makes blocks."""
        return not self.manual and self.block_time > 0
