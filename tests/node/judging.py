"""A node without a chain: its store, its judging services, and a referee that is told what to find."""

from __future__ import annotations

import gzip
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from config.canonical import sha256_hex
from config.settings import QualifySettings, Settings
from config.target_catalog import load_catalog
from intake.publish import PublishedBundle
from node.jobs import Job, JobState, transition
from node.services import qualification
from node.services.attempt_process import Evidence
from node.services.context import NodeContext
from node.services.crown_checks import choose_next
from node.services.qualification import QualificationService
from node.services.receipts import ReceiptBook
from node.services.settlement import SettlementService
from node.store.engine import Store
from node.store.evidence_rows import BundleRow, record_bundle
from node.store.job_rows import entries, load_job, save
from node.store.submission_rows import Submission
from qualify.engine_tree import EngineTree, Part
from qualify.request import AttemptRequest
from scoring import sealing
from scoring.attempt import Attempt, Incident, encode_attempt
from tests.node.support import record
from tests.scoring.support import TARGET, FakeReferee, make_arena

ARENA = make_arena()
FAST, SLOW = 0.4, -0.4


class World:
    """The store and the services around the made-up referee."""

    def __init__(self, store: Store) -> None:
        settings = Settings(state_dir=str(store.layout.root), qualify=QualifySettings(retry_base_seconds=0.0))
        self.store = store
        self.context = NodeContext(settings, store.layout, store, ARENA, load_catalog(), "worker", Path("/arena.toml"))
        self.receipts = ReceiptBook.open(store.layout)
        self.qualification = QualificationService(self.context, self.receipts)
        self.settlement = SettlementService(self.context, self.receipts)
        self.requests: list[AttemptRequest] = []
        self.gains: dict[str, float] = {}  # content hash -> gain; default FAST
        self.faults: list[Exception] = []
        self.changes: dict[str, Any] = {}
        self.measures: dict[str, Callable[[FakeReferee], Attempt]] = {}  # content hash -> how it fares as the candidate
        self.broken: dict[str, str] = {}  # content hash -> kind of the incident that ends every attempt it serves in

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Put the made-up referee and bundle store in place of the real ones."""
        monkeypatch.setattr(qualification, "run_attempt", self.run_attempt)
        monkeypatch.setattr(
            qualification, "open_published",
            lambda store, content_hash: PublishedBundle(content_hash, store / content_hash, store / "report.json"),
        )

    async def run_attempt(
        self,
        request: AttemptRequest,
        folder: Path,
        *,
        on_sealed: Callable[[str], Awaitable[None]],
        deadline_seconds: float,
    ) -> Evidence:
        """Stand in for `attempt_process.run_attempt`."""
        self.requests.append(request)
        if self.faults:
            raise self.faults.pop()
        number = len(self.requests)
        referee = FakeReferee(ARENA, gain=self.gains.get(request.candidate.content_hash, FAST), number=number)
        referee.attempt_id = request.attempt_id
        attempt = self.measures.get(request.candidate.content_hash, FakeReferee.measure)(referee)
        attempt = msgspec.structs.replace(attempt, role=request.role, previous_attempt=request.previous_attempt)
        for at, bundle in [("candidate", request.candidate), *(("baseline", one.bundle) for one in request.stack)]:
            if bundle.content_hash in self.broken:
                incident = Incident("block", 0, at, self.broken[bundle.content_hash], "made up")
                attempt = msgspec.structs.replace(attempt, launches=(), incidents=(incident,), ending="incident")
        parts = [Part(one.target_id, one.bundle.content_hash) for one in request.stack]
        tree = EngineTree.of(self.context.terms.catalog, parts)
        replaced = tree.replaced(Part(request.target_id, request.candidate.content_hash))
        identity = msgspec.structs.replace(
            attempt.identity,
            content_hash=request.candidate.content_hash,
            reservation=request.reservation,
            incumbent_digest=tree.digest,
            candidate_tree_digest=replaced.digest,
        )
        cores = (0, 1) if request.role == "primary" else (1, 0)
        environment = msgspec.structs.replace(attempt.environment, cores=cores)
        if cores == (1, 0):
            attempt = _on_other_cores(attempt)
        commitment = referee_commitment(referee)
        await on_sealed(commitment)
        took = max([0, *(launch.end_ns for launch in attempt.launches)])
        attempt = msgspec.structs.replace(
            attempt,
            identity=identity,
            environment=environment,
            seed=msgspec.structs.replace(attempt.seed, commitment=commitment),
            **{"started_unix_ns": number * 10**12, "ended_unix_ns": number * 10**12 + 1 + took, **self.changes},
        )
        data = encode_attempt(attempt)
        digest = sha256_hex(data)
        folder.mkdir(parents=True)
        path = folder / f"{digest}.json.gz"
        path.write_bytes(gzip.compress(data))
        return Evidence(str(path), digest, attempt)

    async def queue(self, *found: Submission, target: str = TARGET) -> None:
        """Record submissions and bring their jobs to `queued`."""
        await record(self.store, *found)
        for one in found:
            job = await self.job(one)
            for state in (JobState.FETCHING, JobState.READY, JobState.SCREENING):
                job = await self.move(job, state)
            await self.move(job, JobState.QUEUED, target_id=target, fingerprint=sha256_hex(one.content_hash.encode()))
            await self.store.write(
                record_bundle,
                BundleRow(one.content_hash, "bundle", target, ""),
            )

    async def move(self, job: Job, to: JobState, **changes: Any) -> Job:
        """Move a job."""
        return await self.store.write(save, job, transition(job, to, job.token, **changes))

    async def job(self, one: Submission) -> Job:
        """Return a submission's job."""
        return await self.store.read(load_job, one.submission_id)

    async def measure(self) -> bool:
        """Measure the next attempt; return whether there was one."""
        chosen = await self.store.write(choose_next, self.context.terms)
        if chosen is not None:
            await self.qualification.measure(chosen)
        return chosen is not None

    async def work(self) -> None:
        """Measure and settle until nothing is left to do."""
        for _ in range(50):
            measured = await self.measure()
            if not await self.settlement.settle_once() and not measured:
                return
        raise AssertionError("the node never comes to rest")

    async def states(self) -> list[str]:
        """Return the states of all jobs, in chain order, with the code of failed ones."""
        return [
            f"{entry.job.state}:{entry.job.code}" if entry.job.code else str(entry.job.state)
            for entry in await self.store.read(entries)
        ]


def referee_commitment(referee: FakeReferee) -> str:
    """Return the commitment to the referee's seed."""
    return sealing.commitment(referee.seed, referee.attempt_id)


def _on_other_cores(attempt: Any) -> Any:
    launches = tuple(
        msgspec.structs.replace(
            launch,
            baseline=msgspec.structs.replace(launch.baseline, core=1 - launch.baseline.core),
            candidate=msgspec.structs.replace(launch.candidate, core=1 - launch.candidate.core),
        )
        for launch in attempt.launches
    )
    return msgspec.structs.replace(attempt, launches=launches)
