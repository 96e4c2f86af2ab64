"""Which tests may run beside each other when `make test` uses several workers.

Invariants
1. Tests that run arms take the core that attempts are measured on, of which a machine has one. They stand in one line,
   on one worker, so that they never wait for each other; every other file goes to whichever worker is free. The line is
   as long as half of everything, so nothing else may stand in it.
2. Node ids stay what they are, so that `--last-failed` finds what failed.
3. What a clock decides is marked `quiet` and is not run by workers at all. `make test` looks for it in the files that
   hold that word, and collects no others again.
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

ARMS = (
    "tests/crash/",
    "tests/hostile/test_corpus.py",
    "tests/qualify/screens/test_bench_screens.py",
    "tests/qualify/test_atomic.py",
    "tests/qualify/test_attempt_main.py",
    "tests/qualify/test_block_slots.py",
    "tests/qualify/test_evidence_fields.py",
    "tests/qualify/test_examples.py",
    "tests/qualify/test_group_slots.py",
    "tests/qualify/test_model_profiles.py",
    "tests/qualify/test_referee.py",
    "tests/qualify/test_scaffold.py",
    "tests/node/cli/test_tutorial.py",
    "tests/node/cli/test_verify.py",
    "tests/node/cli/test_warm_referee.py",
    "tests/node/test_end_to_end.py",
    "tests/test_cacheon_kernels.py",
    "tests/test_engine_tree.py",
)
"""Folders and files whose tests run arms; who asks for `FORK_SERVER` and is missing here is told so."""
FORK_SERVER = "fork_server"  # the fixture from which arms are forked


class Turns(LoadFileScheduling):
    """One unit of work for each file, and a single one for all files that run arms."""

    def __init__(self, config: Any, log: Any = None) -> None:
        config.option.loadscopereorder = False  # the order of `in_turn` is better than one by the number of tests
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return "arms" if nodeid.startswith(ARMS) else super()._split_scope(nodeid)


def in_turn(items: list[Any]) -> None:
    """Put what runs arms first, so that no worker is left alone with it at the end."""
    items.sort(key=lambda item: not item.nodeid.startswith(ARMS))


def arms_are_known(items: list[Any]) -> None:
    """Raise `pytest.UsageError` when a test forks arms outside the line."""
    forking = {item.nodeid.partition("::")[0] for item in items if FORK_SERVER in item.fixturenames}
    if missing := sorted(name for name in forking if not name.startswith(ARMS)):
        raise pytest.UsageError(f"they run arms and are not in ARMS of tests/turns.py: {', '.join(missing)}")


def quiet_is_found(items: list[Any]) -> None:
    """Raise `pytest.UsageError` when a test is marked `quiet` and its file does not say so: nothing would run it."""
    marked = {item.path for item in items if item.get_closest_marker("quiet")}
    if hidden := sorted(str(path) for path in marked if "quiet" not in path.read_text("utf-8")):
        raise pytest.UsageError(f"marked quiet from outside, where `make test` does not find it: {', '.join(hidden)}")
