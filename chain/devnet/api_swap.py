"""Runtime APIs about prices: the devnet has no pools, so every alpha costs one TAO.

That is what the public runtime answers for a subnet without a dynamic pool (`SubnetMechanism` 0), which all are here.
"""

from __future__ import annotations

from chain.devnet.api_registry import api
from chain.devnet.chain import Chain
from chain.devnet.pallets import subtensor
from chain.devnet.pallets.balances import RAO_PER_TAO
from chain.devnet.scale import Reader
from chain.devnet.storage import StorageView


@api("SwapRuntimeApi", "current_alpha_price")
def current_alpha_price(_chain: Chain, _state: StorageView, arguments: Reader) -> int:
    """Return the price of one alpha of a subnet, in rao."""
    arguments.unsigned(2)
    return RAO_PER_TAO


@api("SwapRuntimeApi", "current_alpha_price_all")
def current_alpha_price_all(_chain: Chain, state: StorageView, _arguments: Reader) -> list[dict[str, int]]:
    """Return the price of one alpha of every subnet, in rao."""
    return [{"netuid": netuid, "price": RAO_PER_TAO} for netuid in subtensor.netuids(state)]


def _swap(amount: int) -> dict[str, int]:
    nothing = dict.fromkeys(("tao_fee", "alpha_fee", "tao_slippage", "alpha_slippage"), 0)
    return {"tao_amount": amount, "alpha_amount": amount, **nothing}


@api("SwapRuntimeApi", "sim_swap_tao_for_alpha")
def sim_swap_tao_for_alpha(_chain: Chain, _state: StorageView, arguments: Reader) -> dict[str, int]:
    """Return what an amount of TAO (rao) would buy: as much alpha, without fee or slippage."""
    arguments.unsigned(2)
    return _swap(arguments.unsigned(8))


@api("SwapRuntimeApi", "sim_swap_alpha_for_tao")
def sim_swap_alpha_for_tao(_chain: Chain, _state: StorageView, arguments: Reader) -> dict[str, int]:
    """Return what an amount of alpha (rao) would sell for: as much TAO, without fee or slippage."""
    arguments.unsigned(2)
    return _swap(arguments.unsigned(8))
