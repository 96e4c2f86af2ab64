"""The faults of a soak, every kind the devnet knows."""

from __future__ import annotations

from chain.devnet.fault_plan import Fault, Kind
from chain.devnet.server import Devnet

# Struck on any request. Together they strike `rate` of all requests.
GENERAL: tuple[Kind, ...] = ("drop", "drop_after", "half_open", "delay", "rpc_error", "discarded_state")
# Each strikes `rate` of the occasions that it needs, or more often where there are few of them; a subscription that is
# struck stays silent until somebody notices, some blocks later, so that about `rate` of all notifications is lost.
SPECIAL: tuple[Kind, ...] = ("http_429", "lose_subscription", "duplicate_events", "missing_events", "false_success")
_RARE = frozenset({"http_429", "false_success"})  # occasions that are far fewer than requests


def inject_all(node: Devnet, rate: float, seed: int) -> None:
    """Arm one fault of every kind."""
    for kind in GENERAL:
        seconds = 0.3 if kind == "delay" else 0.0
        node.faults.inject(Fault(kind=kind, probability=rate / len(GENERAL), seconds=seconds, seed=seed))
    for kind in SPECIAL:
        probability = min(rate * 10, 1.0) if kind in _RARE else rate / 5 if kind == "lose_subscription" else rate
        node.faults.inject(Fault(kind=kind, probability=probability, seed=seed))


def add_counts(node: Devnet, totals: dict[str, int]) -> None:
    """Add how often each kind struck in this process of the chain."""
    for count in node.faults.counts():
        totals[count.kind] = totals.get(count.kind, 0) + count.injected
