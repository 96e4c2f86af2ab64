"""Whether this machine's clock and the chain's agree: the rounds of the drand beacon are counted with the former.

Invariants
1. What is sealed to a round too late is dropped by the chain without a word when the round is missing at the reveal,
   and what is sealed to one too early can be read by everybody at once. So nothing is sealed while the two disagree.
2. Measured at the newest block; the age that a block may have is within the limit. A devnet's beacon follows its
   blocks, not the time of day, and asks for no clock.
"""

from __future__ import annotations

import time

import msgspec

from chain.abi import Storage
from chain.blocks import BlockRef
from chain.client import ChainClient
from config.errors import HostError

_BLOCKS = 3  # a sealed row is opened so many blocks after its round at the least
_LEAST_SECONDS = 10.0


class ClockGap(msgspec.Struct, frozen=True):
    """How far this machine's clock is ahead of the time of block `block`, and how far it may be; seconds."""

    ahead: float
    limit: float
    block: int

    @property
    def is_too_wide(self) -> bool:
        """Whether rounds must not be counted with this clock."""
        return abs(self.ahead) > self.limit

    @property
    def current(self) -> str:
        """The gap in words."""
        return f"{abs(self.ahead):.0f} s {'ahead of' if self.ahead > 0 else 'behind'} block {self.block}"

    @property
    def needed(self) -> str:
        """What it may be, in words."""
        return f"at most {self.limit:.0f} s"

    @property
    def message(self) -> str:
        """The whole sentence."""
        return (
            f"This machine's clock is {self.current}; {self.needed} are in order when something is sealed, because it "
            "would be opened at a wrong time or never. It works in the next block after the clock is set, or after the "
            "endpoint caught up."
        )


async def clock_gap(client: ChainClient, block: BlockRef, profile: str) -> ClockGap:
    """Return the gap at `block`, which is to be the newest one."""
    if profile == "devnet":
        return ClockGap(0.0, _LEAST_SECONDS, block.number)
    limit = max(_LEAST_SECONDS, _BLOCKS * await client.block_seconds())
    (milliseconds,) = await client.read(block, [(Storage.TIMESTAMP, [])])
    return ClockGap(time.time() - int(milliseconds) / 1000, limit, block.number)


async def require_clock(client: ChainClient, profile: str) -> None:
    """Raise `HostError` (CLOCK_DIFFERS) unless this machine may seal for the chain's present block."""
    gap = await clock_gap(client, await client.head(), profile)
    if gap.is_too_wide:
        raise HostError("CLOCK_DIFFERS", gap.message, hint="Set the clock, and let a time service keep it.")
