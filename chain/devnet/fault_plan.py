"""Faults to inject: which there are, when each strikes, and how often each has struck.

Invariants
1. Pure: no clock, no socket. Whether a fault strikes follows from its seed and from the order of the occasions it was
   offered, and from nothing else.
2. An occasion is offered to the faults in the order in which they were injected; the first that strikes has it.
3. `dev_*` methods are never faulted, so whoever injected a fault can take it back.
4. Counts outlive the fault: a test can say at its end how much it went through.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection
from typing import Annotated, Literal

import msgspec

Kind = Literal[
    "drop",
    "drop_after",
    "half_open",
    "delay",
    "http_429",
    "rpc_error",
    "lose_subscription",
    "duplicate_events",
    "missing_events",
    "false_success",
    "discarded_state",
]
# The methods that a kind can strike; the kinds that are not named here strike any method.
_REACH: dict[str, tuple[str, ...]] = {
    "http_429": (),
    "lose_subscription": ("chain_subscribe", "state_subscribe", "subscribe_", "author_submitAndWatch"),
    "duplicate_events": ("state_getStorage", "state_queryStorageAt"),
    "missing_events": ("state_getStorage", "state_queryStorageAt"),
    "false_success": ("author_submit",),
    "discarded_state": ("state_get", "state_query", "state_call"),
}


class Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One fault, as `dev_inject` takes it.

    `methods`: the JSON-RPC methods it strikes; none given means all that its kind can strike. `probability`: of each
    occasion, in (0, 1]. `limit`: how often it strikes at most. `seconds`: how long `delay` holds an answer back; for
    `http_429` and `rpc_error` the time after which the client is told to try again. `code` and `message` are those of
    `rpc_error`.
    """

    kind: Kind
    methods: tuple[str, ...] = ()
    probability: float = 1.0
    limit: Annotated[int, msgspec.Meta(ge=1)] | None = None
    seconds: float = 0.0
    code: int = -32005
    message: str = "Too many requests"
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.probability <= 1:
            raise ValueError("the probability of a fault lies above 0 and is at most 1")
        if not math.isfinite(self.seconds) or self.seconds < 0:
            raise ValueError("the seconds of a fault are finite and not negative")
        if self.kind == "delay" and not self.seconds:
            raise ValueError("a delay needs its seconds")
        wrong = [name for name in self.methods if not self._reaches(name)]
        if wrong:
            raise ValueError(f"{self.kind} cannot strike {', '.join(wrong)}")

    def strikes(self, method: str) -> bool:
        """Say whether the fault is meant for a method ("" is a handshake)."""
        return method in self.methods if self.methods else self._reaches(method)

    def _reaches(self, method: str) -> bool:
        if self.kind == "http_429":
            return not method
        return bool(method) and not method.startswith("dev_") and method.startswith(_REACH.get(self.kind, ("",)))


class FaultCount(msgspec.Struct, frozen=True):
    """How often a fault was offered an occasion and struck; `active` unless it was cleared or its limit is reached."""

    id: int
    kind: Kind
    offered: int
    injected: int
    active: bool


class Strike:
    """An injected fault and its record; handed out when it strikes."""

    def __init__(self, identity: int, fault: Fault) -> None:
        self.identity = identity
        self.fault = fault
        self.offered = 0
        self.injected = 0
        self.cleared = False
        self._random = random.Random(f"{fault.kind}:{fault.seed}")

    @property
    def active(self) -> bool:
        """Whether the fault can still strike."""
        return not self.cleared and (self.fault.limit is None or self.injected < self.fault.limit)

    def offer(self) -> bool:
        """Decide about one occasion."""
        self.offered += 1
        struck = self._random.random() < self.fault.probability
        self.injected += struck
        return struck

    def choose(self, count: int) -> int:
        """Return one of `count` positions, by the same seed."""
        return self._random.randrange(count)


class FaultPlan:
    """The faults of one node; `known` are the methods that a fault may name (None: any)."""

    def __init__(self, known: Collection[str] | None = None) -> None:
        self._known = known
        self._all: list[Strike] = []
        self._active: list[Strike] = []

    def inject(self, fault: Fault) -> int:
        """Arm a fault and return its number; raises `ValueError` for a method that the node does not have."""
        unknown = [name for name in fault.methods if self._known is not None and name not in self._known]
        if unknown:
            raise ValueError(f"the node has no method {', '.join(unknown)}")
        strike = Strike(len(self._all) + 1, fault)
        self._all.append(strike)
        self._active.append(strike)
        return strike.identity

    def clear(self, identity: int | None = None) -> int:
        """Take back one fault or all, and return how many were active."""
        ended = [strike for strike in self._active if identity in (None, strike.identity)]
        active = sum(strike.active for strike in ended)
        for strike in ended:
            strike.cleared = True
            self._active.remove(strike)
        return active

    def counts(self) -> list[FaultCount]:
        """Return the record of every fault that was ever injected, in order."""
        return [FaultCount(s.identity, s.fault.kind, s.offered, s.injected, s.active) for s in list(self._all)]

    def strike(self, method: str, *kinds: Kind) -> Strike | None:
        """Offer an occasion to the faults of these kinds; `method` "" is a handshake."""
        if not self._active:
            return None
        for strike in self._active:
            fault = strike.fault
            if fault.kind in kinds and strike.active and fault.strikes(method) and strike.offer():
                return strike
        return None
