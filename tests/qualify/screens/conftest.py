"""Benches for the screens that run arms."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec
import pytest

from qualify.docket import open_docket
from qualify.sandbox.client import Zygote
from qualify.screens.base import Emit
from qualify.screens.bench import Bench, occupy_bench
from tests.qualify.support import describe_bundle, make_request

Sit = Callable[..., AbstractContextManager[Bench]]


@pytest.fixture
def sit(tmp_path: Path, arena: str, fork_server: Zygote) -> Sit:
    """Open a bench for a bundle tree in a tiny arena; the static scan is switched off.

    With a seed the attempt has a fixed name too, so that everything drawn is drawn again.
    """

    @contextlib.contextmanager
    def opened(
        tree: Path,
        *,
        against: Path | None = None,
        seed: bytes | None = None,
        emit: Emit = lambda event: None,
        arena: str = arena,
    ) -> Iterator[Bench]:
        candidate = describe_bundle(tree, tmp_path / "candidate.json")
        incumbent = describe_bundle(against, tmp_path / "incumbent.json") if against is not None else None
        request = make_request(candidate, arena, incumbent=incumbent)
        if seed is not None:
            request = msgspec.structs.replace(request, attempt_id="repeated")
        docket = open_docket(request)
        with occupy_bench(docket, emit, fork_server, seed=seed) as bench:
            yield bench

    return opened
