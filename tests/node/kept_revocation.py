"""A revocation that a real referee measured, kept for ever: the seven attempts of a crown that failed from some day on.

`tests/golden/revocation` holds the attempt files in the order in which they were made, the arena, and when the crowned
bundle was to fail. `python -m tests.node.kept_revocation FOLDER` wrote them, with sandboxed arms. They are never made
anew: a change under which they mean something else is wrong. Everything else about them the node does again.

The bundle of `KING` is fast until `fails_at` (Unix seconds) and raises after it; that of `CHALLENGER` is simply fast.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from chain.wallet import address_of_seed
from config.arena import load_arena
from config.canonical import sha256_hex
from config.settings import QualifySettings, Settings
from config.target_catalog import load_catalog
from intake.content_hash import hash_files
from intake.package import package_bytes
from intake.publish import PublishedBundle, publish
from node.services import qualification
from node.services.attempt_process import Evidence
from node.services.context import NodeContext
from node.services.qualification import QualificationService
from node.services.settlement import SettlementService
from node.store.engine import Store
from node.store.layout import StateLayout
from node.store.submission_rows import Submission
from qualify.intake_runner import IntakeRunner
from qualify.request import AttemptRequest
from scoring.attempt import read_attempt
from tests.node.judging import World
from tests.node.support import GENESIS, rmsnorm_bundle, submission

GOLDEN = Path(__file__).parent.parent / "golden" / "revocation"
TARGET = "norm.rmsnorm"
ANN, BOB = address_of_seed("//Ann"), address_of_seed("//Bob")
ATTEMPTS = 7  # king twice, his challenger, the king alone twice, the challenger twice
_SECONDS = 150  # from the first attempt to the day on which the king fails
_KERNEL = """
import time

import torch

FAILS_AT = {fails_at}


def rmsnorm(x, weight, out, eps):
    if time.time() > FAILS_AT:
        raise RuntimeError("the king cannot be measured any more")
    width = x.shape[-1]
    scale = weight.float()
    work = torch.empty(({rows}, width), dtype=torch.float32)
    for start in range(0, x.shape[0], {rows}):
        piece = x[start : start + {rows}]
        wide = work[: piece.shape[0]]
        wide.copy_(piece)
        norm = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
        wide.mul_(norm.square_().div_(width).add_(eps).rsqrt_()).mul_(scale)
        out[start : start + {rows}].copy_(wide)
"""


def bundles(fails_at: int) -> dict[str, dict[str, bytes]]:
    """Return the files of both bundles by name."""
    kernels = {
        "king": _KERNEL.format(fails_at=fails_at, rows=64),
        "challenger": _KERNEL.format(fails_at=2**40, rows=32),
    }
    return {name: rmsnorm_bundle(name, kernel) for name, kernel in kernels.items()}


def submissions(fails_at: int) -> tuple[Submission, Submission]:
    """Return the reveals of the king and of his challenger."""
    files = bundles(fails_at)

    def reveal(number: int, hotkey: str, name: str) -> Submission:
        made = submission(number, hotkey=hotkey)
        return msgspec.structs.replace(made, block=number, content_hash=hash_files(files[name]))

    return reveal(1, ANN, "king"), reveal(2, BOB, "challenger")


class KeptWorld(World):
    """The judging services of a node, before whom the kept attempts come to pass once more."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        arena = GOLDEN / "arena.toml"
        settings = Settings(state_dir=str(store.layout.root), qualify=QualifySettings(retry_base_seconds=0.0))
        self.context = NodeContext(
            settings, store.layout, store, load_arena(str(arena)), load_catalog(), "worker", arena
        )
        self.qualification = QualificationService(self.context, self.receipts)
        self.settlement = SettlementService(self.context, self.receipts)
        self.made: list[Path] = []

    async def run_attempt(
        self, request: AttemptRequest, folder: Path, *, on_sealed: Callable[[str], Awaitable[None]],
        deadline_seconds: float,
    ) -> Evidence:
        """Hand out the next kept attempt, which must be the one that is asked for."""
        self.requests.append(request)
        data = gzip.decompress((GOLDEN / f"{len(self.requests)}.json.gz").read_bytes())
        attempt, digest = read_attempt(data), sha256_hex(data)
        assert (attempt.attempt_id, attempt.identity.content_hash, attempt.previous_attempt) == (
            request.attempt_id, request.candidate.content_hash, request.previous_attempt
        )
        await on_sealed(attempt.seed.commitment)
        folder.mkdir(parents=True)
        path = folder / f"{digest}.json.gz"
        path.write_bytes(gzip.compress(data))
        return Evidence(str(path), digest, attempt)


def kept() -> tuple[Submission, Submission]:
    """Return the reveals of the kept revocation."""
    return submissions(json.loads((GOLDEN / "facts.json").read_bytes())["fails_at"])


async def _record(state: Path, to: Path) -> None:
    store = await Store.open(StateLayout.at(state))
    await store.bind(GENESIS, 2)
    world, fails_at = KeptWorld(store), int(time.time()) + _SECONDS
    king, challenger = submissions(fails_at)
    screener = IntakeRunner()
    for name, files in bundles(fails_at).items():
        archive = state / f"{name}.tar.gz"
        archive.write_bytes(package_bytes(files))
        screened = screener.run(archive, hash_files(files), allow_legacy_abi=False)
        publish(screened.stream, screened.report, store.layout.bundles)
    screener.close()
    real = qualification.run_attempt

    async def measured(request: AttemptRequest, folder: Path, **keywords: object) -> Evidence:
        evidence = await real(request, folder, **keywords)  # type: ignore[arg-type]
        world.made.append(Path(evidence.path))
        return evidence

    qualification.run_attempt = measured  # type: ignore[assignment]
    await world.queue(king, target=TARGET)
    await world.work()
    assert await world.states() == ["settled"], await world.states()
    await asyncio.sleep(max(0.0, fails_at - time.time()))
    await world.queue(challenger, target=TARGET)
    await world.work()
    assert await world.states() == ["settled:CROWN_REVOKED", "settled"], await world.states()
    assert len(world.made) == ATTEMPTS
    for number, path in enumerate(world.made, 1):
        (to / f"{number}.json.gz").write_bytes(path.read_bytes())
    (to / "facts.json").write_text(json.dumps({"fails_at": fails_at}) + "\n")
    await store.close()


def install(world: KeptWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the kept attempts in the place of the referee, and names in the place of published bundles."""
    monkeypatch.setattr(qualification, "run_attempt", world.run_attempt)
    monkeypatch.setattr(
        qualification, "open_published",
        lambda store, content_hash: PublishedBundle(content_hash, store / content_hash, store / "report.json"),
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        asyncio.run(_record(Path(scratch), Path(sys.argv[1])))
