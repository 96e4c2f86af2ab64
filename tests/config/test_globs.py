"""`config/globs.py`: patterns of policies."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.globs import matches


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("a/*", "a/b", True),
        ("a/*", "a/b/c", False),
        ("a/*", "a/", True),
        ("a/*.cu", "a/x.cu", True),
        ("a/*.cu", "a/xcu", False),
        ("a/?.cu", "a/x.cu", True),
        ("a/?.cu", "a//.cu", False),
        ("a/**", "a/b/c", True),
        ("a/**", "a", False),
        ("a/**", "ab/c", False),
        ("a/**/c", "a/c", True),
        ("a/**/c", "a/x/y/c", True),
        ("a/**/c", "a/xc", False),
        ("a/[b]", "a/b", False),
        ("a/[b]", "a/[b]", True),
        ("a.b", "axb", False),
        ("a/b**", "a/bc", True),
        ("a/b**", "a/bc/d", False),
    ],
)
def test_one_star_stays_inside_one_folder(pattern: str, path: str, expected: bool) -> None:
    """`*` and `?` never cross a slash; only a whole component `**` does."""
    assert matches(pattern, path) is expected


@given(st.text("ab/.[(+\n"), st.text("ab/.[(+\n"))
def test_everything_else_is_literal(pattern: str, path: str) -> None:
    """Without stars and question marks a pattern matches exactly itself."""
    assert matches(pattern, path) is (re.fullmatch(re.escape(pattern), path) is not None)
