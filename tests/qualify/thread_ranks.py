"""Real process groups between threads of one test: what a stock form does on several ranks, without a sandbox."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from torch._C._distributed_c10d import HashStore, ProcessGroupGloo


@functools.cache
def groups(ranks: int) -> tuple[Any, ...]:
    """Return the groups of all ranks; they last as long as the tests."""
    store, made = HashStore(), {}

    def join(rank: int) -> None:
        options = ProcessGroupGloo._Options()
        options._devices = [ProcessGroupGloo.create_device(hostname="127.0.0.1")]
        made[rank] = ProcessGroupGloo(store, rank, ranks, options)

    _in_threads(join, ranks)
    return tuple(made[rank] for rank in range(ranks))


def on_every_rank(entry: Callable[..., object], arguments: list[list[Any]]) -> None:
    """Call `entry` on all ranks at once, each with its own arguments; the first error is raised again."""
    _in_threads(lambda rank: entry(*arguments[rank]), len(arguments))


def _in_threads(function: Callable[[int], object], ranks: int) -> None:
    errors: list[BaseException] = []

    def guarded(rank: int) -> None:
        try:
            function(rank)
        except BaseException as error:  # noqa: BLE001 - raised again by the caller
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
