"""What every service of the node shares, built once by the daemon and never changed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from importlib import metadata, resources
from pathlib import Path

from config.arena import Arena
from config.canonical import domain_digest
from config.settings import Settings
from config.target_catalog import TargetCatalog
from node.jobs import RetryBudget
from node.services.attempt_choice import Terms
from node.services.wake import Wake
from node.store.engine import Store
from node.store.layout import StateLayout

_WORKER_ROOMS = ("config", "intake", "qualify", "scoring")


@dataclass(frozen=True)
class NodeContext:
    """The node's parts. `worker` is the digest of the arena and of the code that judges (see `worker_digest`);
    `arena_path` is the copy of the arena document that attempts read."""

    settings: Settings
    layout: StateLayout
    store: Store
    arena: Arena
    catalog: TargetCatalog
    worker: str
    arena_path: Path
    wake: Wake = field(default_factory=Wake)

    @property
    def terms(self) -> Terms:
        """What attempts are chosen by."""
        return Terms(self.arena, self.catalog, self.attempt_budget, self.worker)

    @property
    def attempt_budget(self) -> RetryBudget:
        """Budget for faults of ours while screening or measuring one job."""
        base_ms = int(self.settings.qualify.retry_base_seconds * 1000)
        return RetryBudget(self.settings.qualify.attempt_retries, base_ms, base_ms * 64)

    @property
    def transport_budget(self) -> RetryBudget:
        """Budget for fetches of one submission; its cap is the longest delay that a reserved job can have."""
        intake = self.settings.intake
        cap_ms = max(int(intake.retry_cap_seconds * 1000), self.attempt_budget.cap_ms)
        return RetryBudget(intake.transport_attempts, int(intake.retry_base_seconds * 1000), cap_ms)


def worker_digest(arena: Arena) -> str:
    """Return the digest of the arena, the judging code and torch: what decides whether a parked job may work now."""
    sources = {room: _tree_digest(Path(str(resources.files(room)))) for room in _WORKER_ROOMS}
    try:
        torch = metadata.version("torch")
    except metadata.PackageNotFoundError:
        torch = ""
    return domain_digest("cacheon.worker", {"arena": arena.digest, "sources": sources, "torch": torch})


def _tree_digest(root: Path) -> str:
    total = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        if path.suffix in (".py", ".toml"):
            total.update(f"{path.relative_to(root)}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()
