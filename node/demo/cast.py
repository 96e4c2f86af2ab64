"""Who takes part in the demo: six miners, what each submits, and what must become of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Hosting(StrEnum):
    """How the archive host treats one archive."""

    HONEST = "honest"
    BROKEN = "broken"  # one error, then the bytes of another archive, for ever


@dataclass(frozen=True)
class Player:
    """One miner. `expected` are the verdict codes that count as right; `wins` says who must hold the crown."""

    number: int
    example: str  # folder under examples/
    what: str  # one short phrase for a newcomer
    expected: tuple[str, ...]
    wins: bool = False
    hosting: Hosting = Hosting.HONEST
    follows: int | None = None  # number of the miner who must be on the chain before
    reveal_delay: int = 4  # blocks between commitment and reveal

    @property
    def wallet(self) -> str:
        """Name of the miner's wallet."""
        return f"miner-{self.number}"


VALIDATOR_WALLET = "validator"
OWNER_WALLET = "owner"

CAST: tuple[Player, ...] = (
    Player(1, "silu_fast", "an honest, faster kernel", ("PASS",), wins=True),
    Player(2, "silu_slow", "correct, but slower", ("NOT_FASTER",)),
    Player(3, "silu_wrong", "numerically wrong", ("WRONG_OUTPUT",)),
    Player(4, "silu_late", "returns early, fills its output later", ("LATE_WRITE", "WRONG_OUTPUT")),
    # revealed after the original, so that chain order decides who was first
    Player(5, "silu_copy", "a copy of miner 1's kernel", ("COPY_OF_EARLIER",), follows=1, reveal_delay=10),
    Player(
        6, "rmsnorm_fast", "its host never serves the promised bytes", ("BUNDLE_HASH_MISMATCH",), hosting=Hosting.BROKEN
    ),
)
DECOY = "silu_slow"  # the archive that a broken host serves instead
