"""Programs with one fingerprint compute the same: checked by running random programs and random edits of them."""

from __future__ import annotations

import ast
import random

import pytest

from intake.closure import LocalModules
from intake.fingerprint.program import Program
from tests.intake.programs import Writer, edited, outcome

PROGRAMS, EDITS = 40, 12


def digest(tree: ast.Module) -> str:
    """Return the digest of everything that `f` of a one-file bundle reaches."""
    program = Program(lambda _: tree, LocalModules(["k.py"]))
    root = program.root("k.py", "f")
    assert isinstance(root, int)
    return program.deep(root)


@pytest.mark.parametrize("seed", range(3))
def test_equal_fingerprints_mean_equal_work(seed: int) -> None:
    """Whatever an edit does, an edited program with the old fingerprint returns and changes what the old one did."""
    dice = random.Random(seed)
    equal = 0
    for _ in range(PROGRAMS):
        tree = ast.parse(Writer(dice).program())
        expected, mark = outcome(tree), digest(tree)
        for _ in range(EDITS):
            other = edited(tree, dice)
            if digest(other) == mark:
                equal += 1
                found = outcome(other)
                both = f"{ast.unparse(tree)}\n---\n{ast.unparse(other)}"
                assert found == expected or "fails" in (found, expected), both
    assert equal > PROGRAMS  # edits that change nothing are seen through
