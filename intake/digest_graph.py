"""Digests of definitions that refer to each other, blind to their names, their order and their number.

Invariants
1. The digest of a definition covers what it says and, by their digests, everything it refers to, in the order in which
   it does so. Two definitions with equal digests unfold to the same text.
2. Definitions that refer to each other in a circle are refined a bounded number of rounds, counted by the size of the
   circle alone.
3. No recursion; time is linear in definitions and references (times the rounds, inside a circle).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

SEPARATOR = "\x1f"
_ROUNDS = 8  # of refinement inside one circle


def digest_of(*parts: str) -> str:
    """Return the lower-hex SHA-256 of some texts, none of which holds the separator."""
    return hashlib.sha256(SEPARATOR.join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def deep_digests(shallow: Sequence[str], references: Sequence[Sequence[int]]) -> list[str]:
    """Return the digest of each definition from its own text's digest and the indices of those it refers to."""
    deep = [""] * len(shallow)
    for circle in _circles(references):
        inside = set(circle)
        base = {
            node: digest_of(shallow[node], *("in" if ref in inside else deep[ref] for ref in references[node]))
            for node in circle
        }
        is_alone = len(circle) == 1 and circle[0] not in references[circle[0]]
        rounds = 0 if is_alone else min(len(circle), _ROUNDS)
        current = base
        for _ in range(rounds):
            current = {
                node: digest_of(base[node], *(current[ref] for ref in references[node] if ref in inside))
                for node in circle
            }
        # No number of rounds reaches every node from every other, so each gets what all of them say.
        whole = digest_of(*sorted(current.values())) if rounds else ""
        for node in circle:
            deep[node] = digest_of(current[node], whole) if rounds else current[node]
    return deep


def reached(roots: Sequence[int], references: Sequence[Sequence[int]]) -> list[int]:
    """Return what the roots reach, themselves included, each once, in the order in which it is met."""
    found: dict[int, None] = dict.fromkeys(roots)
    pending = list(roots)
    while pending:
        fresh = [ref for ref in references[pending.pop()] if ref not in found]
        found.update(dict.fromkeys(fresh))
        pending += dict.fromkeys(fresh)
    return list(found)


def _circles(references: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the strongly connected parts of the graph, each after all parts that it refers to (Tarjan)."""
    number = [-1] * len(references)
    low = [0] * len(references)
    stacked = [False] * len(references)
    stack: list[int] = []
    parts: list[list[int]] = []
    count = 0
    for start in range(len(references)):
        path = [] if number[start] >= 0 else [(start, 0)]
        while path:
            node, position = path.pop()
            if position == 0:
                number[node] = low[node] = count
                count += 1
                stack.append(node)
                stacked[node] = True
            else:
                low[node] = min(low[node], low[references[node][position - 1]])
            deeper = -1
            while position < len(references[node]):
                other = references[node][position]
                position += 1
                if number[other] < 0:
                    deeper = other
                    break
                if stacked[other]:
                    low[node] = min(low[node], number[other])
            if deeper >= 0:
                path += [(node, position), (deeper, 0)]
            elif low[node] == number[node]:
                parts.append(_pop(stack, stacked, node))
    return parts


def _pop(stack: list[int], stacked: list[bool], last: int) -> list[int]:
    part = []
    while True:
        node = stack.pop()
        stacked[node] = False
        part.append(node)
        if node == last:
            return part
