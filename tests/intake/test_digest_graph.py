"""Digests of definitions that refer to each other."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from intake.digest_graph import deep_digests, reached

GRAPHS = st.lists(st.tuples(st.sampled_from("ab"), st.lists(st.integers(0, 7), max_size=3)), min_size=1, max_size=8)


@given(GRAPHS, st.randoms(use_true_random=False))
def test_order_does_not_count(graph: list[tuple[str, list[int]]], dice: random.Random) -> None:
    """A definition has one digest, wherever it and what it refers to stand."""
    shallow = [text for text, _ in graph]
    references = [[ref % len(graph) for ref in refs] for _, refs in graph]
    order = list(range(len(graph)))
    dice.shuffle(order)
    places = {node: place for place, node in enumerate(order)}
    moved = deep_digests(
        [shallow[node] for node in order], [[places[ref] for ref in references[node]] for node in order]
    )
    assert [moved[places[node]] for node in range(len(graph))] == deep_digests(shallow, references)


def test_what_is_referred_to_counts() -> None:
    """Another text, another order of references or another depth makes another digest; a second copy makes none."""
    chain = deep_digests(["a", "a", "b"], [[1], [2], []])
    assert len(set(chain)) == 3
    assert deep_digests(["a", "b", "c"], [[1, 2], [], []])[0] != deep_digests(["a", "b", "c"], [[2, 1], [], []])[0]
    assert deep_digests(["a", "b", "b"], [[1, 2], [], []])[0] == deep_digests(["a", "b"], [[1, 1], []])[0]


def test_circles_are_told_apart_by_what_is_in_them() -> None:
    """Definitions in a circle get the digests of their texts and order; long chains and circles are no trouble."""
    circle = deep_digests(["a", "b", "c"], [[1], [2], [0]])
    assert len(set(circle)) == 3
    assert set(circle) == set(deep_digests(["c", "a", "b"], [[1], [2], [0]]))
    assert set(circle) != set(deep_digests(["a", "c", "b"], [[1], [2], [0]]))
    assert deep_digests(["a"], [[0]]) != deep_digests(["a"], [[]])
    count = 20_000
    assert len(deep_digests(["a"] * count, [[(node + 1) % count] for node in range(count)])) == count


def test_reached_follows_every_reference_once() -> None:
    """Only what the roots reach is returned, each once."""
    assert sorted(reached([0], [[1, 1], [0, 2], [], [0]])) == [0, 1, 2]
