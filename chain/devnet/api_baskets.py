"""Runtime APIs about root baskets, of which there are none: wallets ask for them before they show a balance.

Invariants
1. Every answer is what the public runtime says of an account, a validator or a network without a basket.
"""

from __future__ import annotations

from chain.devnet.api_registry import api
from chain.devnet.chain import Chain
from chain.devnet.scale import Reader
from chain.devnet.storage import StorageView

_API = "BetaBasketRuntimeApi"


@api(_API, "get_root_basket_positions")
@api(_API, "get_root_basket_portfolio")
@api(_API, "get_all_validator_baskets")
@api(_API, "get_validator_basket")
def no_baskets(_chain: Chain, _state: StorageView, _arguments: Reader) -> list[None]:
    """Return no entries."""
    return []


@api(_API, "get_root_basket_owed")
@api(_API, "get_basket_payout")
@api(_API, "get_root_basket_total_nav")
@api(_API, "get_validator_basket_nav")
def no_amount(_chain: Chain, _state: StorageView, _arguments: Reader) -> int:
    """Return nothing, in rao."""
    return 0


@api(_API, "get_basket_position")
def no_position(_chain: Chain, _state: StorageView, _arguments: Reader) -> None:
    """Return that there is no such position."""
