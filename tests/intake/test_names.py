"""One name rule for every stage."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.errors import IntakeError
from intake.names import check_no_collisions, check_path, is_excluded, suffix_of


@pytest.mark.parametrize(
    "path",
    [
        "a",
        "a/b.py",
        ".gitignore",
        "_impl/x.py",
        "tilde~",
        "a b/c",
        "a+b,c@d=e[f].txt",
        "é/ü.py",
        "a" * 255,
        "-dash",
        "...x",
    ],
)
def test_ordinary_names_are_legal(path: str) -> None:
    """Leading dots and underscores, blanks, punctuation and non-ASCII letters are fine."""
    check_path(path)


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("", "NAME_INVALID"),
        ("/a", "NAME_INVALID"),
        ("a/", "NAME_INVALID"),
        ("a//b", "NAME_INVALID"),
        ("./a", "NAME_INVALID"),
        ("a/../b", "NAME_INVALID"),
        ("..", "NAME_INVALID"),
        ("a\\b", "NAME_INVALID"),
        ("a\nb", "NAME_INVALID"),
        ("a\x7fb", "NAME_INVALID"),
        ("a\u202eb", "NAME_INVALID"),
        ("a\u200bb", "NAME_INVALID"),
        ("a\ud800", "NAME_INVALID"),
        ("a\ue000", "NAME_INVALID"),
        ("é\\b", "NAME_INVALID"),
        ("a" * 256, "NAME_TOO_LONG"),
        ("é" * 128, "NAME_TOO_LONG"),
        ("/".join("a" * 33), "NAME_TOO_LONG"),
        ("/".join(["a" * 200] * 6), "NAME_TOO_LONG"),
    ],
)
def test_names_that_mislead_or_escape_are_refused(path: str, code: str) -> None:
    """Each has its code, and the message is printable ASCII."""
    with pytest.raises(IntakeError) as caught:
        check_path(path)
    assert caught.value.code == code
    assert caught.value.message.isascii()
    assert caught.value.message.isprintable()


@pytest.mark.parametrize(
    ("path", "excluded"),
    [
        (".git/HEAD", True),
        ("a/.git", True),
        ("a/__pycache__/b", True),
        ("a.pyc", True),
        ("a/b.pyo", True),
        ("a/._b", True),
        ("._a/b", False),
        (".pyc", False),
        ("a.PYC", False),
        ("a.pyc.txt", False),
        (".git_x/a", False),
        (".gitignore", False),
    ],
)
def test_what_is_outside_the_identity(path: str, excluded: bool) -> None:
    """The exclusion rule is about components, the last suffix and AppleDouble leaves."""
    assert is_excluded(path) is excluded


@pytest.mark.parametrize(
    ("path", "suffix"), [("a.py", ".py"), (".py", ""), ("a.", ""), ("a.b/c", ""), ("a/b.tar.gz", ".gz")]
)
def test_suffixes(path: str, suffix: str) -> None:
    """A suffix is the last dotted part of the leaf, when the dot is neither first nor last."""
    assert suffix_of(path) == suffix


@pytest.mark.parametrize(
    "paths",
    [["a", "A"], ["a/b", "A/c"], ["stra\u00dfe", "STRASSE"], ["\u00e9", "e\u0301"], ["a", "a/b"], ["K", "\u212a"]],
)
def test_names_that_could_be_one_collide(paths: list[str]) -> None:
    """Case, Unicode form and file-as-folder collisions are found in any order."""
    for order in (paths, paths[::-1]):
        with pytest.raises(IntakeError) as caught:
            check_no_collisions(order)
        assert caught.value.code == "NAME_COLLISION"


def test_packages_beside_modules_do_not_collide() -> None:
    """`moe.py` next to `moe/` is an ordinary tree."""
    check_no_collisions(["kernels/moe.py", "kernels/moe/__init__.py", "kernels-cuda/a.cu"], ["kernels", "kernels/moe"])


@given(st.text(max_size=30))
def test_any_text_is_legal_or_refused(path: str) -> None:
    """Legal names survive normalisation of their separators and are encodable."""
    try:
        check_path(path)
    except IntakeError:
        return
    assert path.encode("utf-8")
    assert not any(unicodedata.category(character)[0] == "C" for character in path)
    assert all(part not in ("", ".", "..") for part in path.split("/"))
