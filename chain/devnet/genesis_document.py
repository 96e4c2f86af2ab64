"""The genesis document: what a new chain starts with.

Invariants
1. Accounts are ss58 addresses. `balances` and `stake` are whole TAO; all other numbers are the runtime's own units.
2. The document is strict: an unknown field, a bad address or a duplicate neuron is refused with its place.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from config.canonical import domain_digest
from config.errors import ConfigurationError, SourceLocation


class NeuronSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A neuron registered at genesis; `stake` is whole TAO."""

    hotkey: str
    coldkey: str
    permit: bool = False
    stake: int = 0


class OwnerSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who owns a subnet."""

    hotkey: str
    coldkey: str


class SubnetSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One subnet. Blocks for `tempo`, `weights_rate_limit`, `immunity_period` and `burn_half_life`, epochs for
    `reveal_period`. With `fixed_permits` epochs leave the validator permits alone; `burn_half_life` 0 fixes the burn.
    """

    netuid: int = 2
    tempo: int = 20
    commit_reveal: bool = True
    reveal_period: int = 1
    weights_rate_limit: int = 5
    version_key: int = 0
    min_allowed_weights: int = 1
    max_weights_limit: int = 65_535
    max_allowed_uids: int = 256
    immunity_period: int = 4_096
    mechanisms: int = 1
    burn_rao: int = 100_000_000
    burn_half_life: int = 360
    max_registrations_per_block: int = 1
    min_non_immune_uids: int = 0
    max_allowed_validators: int = 128
    fixed_permits: bool = False
    name: str = "devnet"
    owner: OwnerSpec | None = None
    neurons: tuple[NeuronSpec, ...] = ()


class Genesis(SubnetSpec, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A subnet, further `subnets`, and the free `balances` in whole TAO by address."""

    balances: dict[str, int] = {}
    subnets: tuple[SubnetSpec, ...] = ()

    def all_subnets(self) -> Iterator[SubnetSpec]:
        """Yield every subnet."""
        yield self
        yield from self.subnets

    def digest(self) -> str:
        """Return the digest that names this document."""
        return domain_digest("cacheon.devnet.genesis", msgspec.to_builtins(self))


_DOCUMENT_LIMIT = 2**24


def load_genesis(path: Path) -> Genesis:
    """Read a genesis document; raises `ConfigurationError` (GENESIS_UNREADABLE or GENESIS_INVALID)."""
    try:
        with path.open("rb") as file:
            data = file.read(_DOCUMENT_LIMIT + 1)
    except OSError as error:
        raise ConfigurationError(
            "GENESIS_UNREADABLE", f"cannot read the genesis document: {error.strerror}.", location=_at(path)
        ) from error
    if len(data) > _DOCUMENT_LIMIT:
        raise ConfigurationError(
            "GENESIS_INVALID", f"the genesis document has more than {_DOCUMENT_LIMIT} bytes.", location=_at(path)
        )
    try:
        return msgspec.json.decode(data, type=Genesis)
    except msgspec.MsgspecError as error:
        raise ConfigurationError(
            "GENESIS_INVALID", f"the genesis document does not fit: {error}.", location=_at(path)
        ) from error


def _at(path: Path) -> SourceLocation:
    return SourceLocation(str(path))
