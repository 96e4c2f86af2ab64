"""Miners who commit all the time: good payloads, odd ones, replayed ones, several at once, in both framings."""

from __future__ import annotations

import random
from typing import Any

from chain.devnet.beacon import reveal_round_after, seal
from chain.devnet.chain import Chain
from chain.devnet.faults import PoolError
from chain.payload import Payload, encode_payload
from chain.scale import compact
from config.canonical import sha256_hex
from tests.chain.devnet.support import NETUID, commitment, plain_field, public, sealed_field, sign

ODD = (
    b"\x00",
    b"hello",
    b"\xff\xfe\x00",
    b"x" * 700,
    b'{"v":9}',
    b'{"v":1}',
    b"0x7b7d",
    b"{" * 200,
    compact(3) + b"abcd",
)
_SPACE_BYTES = 3_100  # what the runtime lets a hotkey commit per epoch


class Miners:
    """Commits of several hotkeys, each free again once its last commitment was revealed."""

    def __init__(self, count: int, odd_rate: float, rng: random.Random) -> None:
        self.uris = [f"//soak{number}" for number in range(count)]
        self._odd_rate = odd_rate
        self._rng = rng
        self._busy_until = dict.fromkeys(self.uris, 0)
        self._said: list[bytes] = []
        self._number = 0

    def commit(self, chain: Chain, epoch: int) -> int:
        """Commit with one free hotkey; return how many reveals that will give (0 when nobody can commit)."""
        head = chain.head.number
        free = [uri for uri in self.uris if self._busy_until[uri] <= head]
        self._rng.shuffle(free)
        for uri in free:
            texts = [self._payload() for _ in range(self._rng.choice((1, 1, 1, 2, 3)))]
            sealed = [seal(text) for text in texts]
            if self._space_left(chain, uri, epoch) < sum(map(len, sealed)) + 100:
                continue
            delay = self._rng.randint(4, 12)
            label = reveal_round_after(head, delay)
            fields = [sealed_field(one, label) for one in sealed]
            if self._rng.random() < 0.1 and len(fields) < 3:
                fields.append(plain_field(b"nothing sealed"))
            try:
                chain.submit(sign(chain, uri, commitment(*fields)))
            except PoolError:
                continue
            self._busy_until[uri] = head + delay + 1
            return len(texts)
        return 0

    def garbage(self, chain: Chain) -> None:
        """Commit something that will not open."""
        head = chain.head.number
        for uri in self.uris:
            if self._busy_until[uri] <= head:
                fields = sealed_field(bytes(120), reveal_round_after(head, 4))
                try:
                    chain.submit(sign(chain, uri, commitment(fields)))
                except PoolError:
                    continue
                self._busy_until[uri] = head + 6
                return

    def _payload(self) -> bytes:
        rng = self._rng
        if rng.random() < self._odd_rate:
            return rng.choice(ODD)
        if self._said and rng.random() < 0.05:
            return rng.choice(self._said)  # replayed, perhaps by somebody else
        self._number += 1
        digest = sha256_hex(b"bundle %d" % self._number)
        pointer = (self._number, self._number % 7) if rng.random() < 0.2 else (None, None)
        text = encode_payload(Payload(digest, f"https://h.example/{self._number}.tar.gz", *pointer))
        if rng.random() < 0.3:
            text = compact(len(text)) + text  # as SDK 9 and 10 seal
        self._said.append(text)
        return text

    @staticmethod
    def _space_left(chain: Chain, uri: str, epoch: int) -> int:
        usage: Any = chain.view().get("Commitments", "UsedSpaceOf", NETUID, public(uri))
        if not usage or int(usage["last_epoch"]) != epoch:
            return _SPACE_BYTES
        return _SPACE_BYTES - int(usage["used_space"])
