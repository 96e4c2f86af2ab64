"""The hostile corpus: each archive has one refusal, and leaves nothing behind."""

from __future__ import annotations

import builtins
import gc
import os
import tracemalloc
from pathlib import Path

import pytest

from config.errors import IntakeError
from intake.archive import unpack
from intake.screen import screen_archive
from qualify.intake_runner import IntakeRunner
from tests.intake.hostile_archives import HOSTILE, LARGEST, MIB, A, files, tar

ALL = {**HOSTILE, **LARGEST}


@pytest.fixture
def no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in an empty folder where nothing can be opened or made; return it."""

    def refuse(*args: object, **options: object) -> None:
        raise AssertionError(f"intake touched the file system: {args}")

    monkeypatch.chdir(tmp_path)
    for owner, name in ((builtins, "open"), (os, "open"), (os, "mkdir"), (os, "symlink"), (os, "link"), (os, "mknod")):
        monkeypatch.setattr(owner, name, refuse)
    return tmp_path


@pytest.mark.parametrize("name", ALL)
def test_hostile_archives_are_refused_with_their_code(name: str, no_files: Path) -> None:
    """Each way of making readers disagree, of leaving the tree or of wasting work has its refusal, in one sentence."""
    build, code = ALL[name]
    with pytest.raises(IntakeError) as caught:
        unpack(build())
    assert caught.value.code == code
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 500
    assert not any(no_files.iterdir())


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_archives_never_match_a_commitment(name: str) -> None:
    """The whole screen gives the same code: nothing about a committed hash rescues an archive."""
    build, code = HOSTILE[name]
    with pytest.raises(IntakeError) as caught:
        screen_archive(build(), "0" * 64)
    assert caught.value.code == code


def test_archives_of_the_corpus_differ() -> None:
    """No two rows are the same bytes, and the archive that all rows vary is good."""
    built = [build() for build, _ in HOSTILE.values()]
    assert len(set(built)) == len(built) >= 60
    assert unpack(files("w/a", "w/b")) == {"a": b"1", "b": b"1"}
    assert unpack(tar(A)) == {"a": b"1"}


def test_the_sandboxed_child_gives_the_same_answers() -> None:
    """One archive of each code, and all bombs, through the child that a validator uses."""
    chosen = {code: name for name, (_, code) in HOSTILE.items()}
    with IntakeRunner() as runner:
        for name in {*chosen.values(), *(name for name in HOSTILE if name.startswith("bomb"))}:
            build, code = HOSTILE[name]
            if archive := build():
                with pytest.raises(IntakeError) as caught:
                    runner.run(archive, "0" * 64)
                assert caught.value.code == code, name


@pytest.mark.parametrize("name", ["256 MiB and a byte", "bomb after the end", "bomb of legal members"])
def test_a_refusal_needs_little_memory(name: str) -> None:
    """What a refused archive unpacks to is not held, whatever it is (B55)."""
    archive = ALL[name][0]()
    gc.collect()
    tracemalloc.start()
    try:
        with pytest.raises(IntakeError):
            unpack(archive)
        assert tracemalloc.get_traced_memory()[1] < 64 * MIB
    finally:
        tracemalloc.stop()
