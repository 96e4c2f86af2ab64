"""Helpers of the qualification tests: bundles as a request refers to them, with the static scan switched off."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import tomli

from intake.content_hash import hash_tree
from intake.report import FileEntry, IntakeReport, ResolvedVariant, encode_report
from qualify.request import AttemptRequest, BundleRef, Holding
from scoring.attempt import Reservation

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

TINY_ARENA = """
schema = "cacheon.arena.v1"
id = "tiny"
kind = "cpu"
timing_method = "outside-monotonic-per-call"
alpha_ppm = 5000
margin_ppm = 50000
launches_min = {launches}
launches_max = {launches}
blocks_per_launch = 2
calls_per_block = 2
warmup_calls = 1
call_deadline_ms = {deadline_ms}
attempt_budget_seconds = 60
arm_memory_bytes = {memory}
arm_threads = 1
implausible_speedup_ppm = 20000000

[[workloads]]
target = "activation.silu_and_mul"
dtype = "bfloat16"
shapes = [{{ num_tokens = 64, d = 1024 }}]

[[workloads]]
target = "norm.rmsnorm"
dtype = "bfloat16"
shapes = [{{ num_tokens = 64, hidden_dim = 1024 }}]

[[workloads]]
target = "moe.fused_experts"
dtype = "bfloat16"
shapes = [{{ num_tokens = 16, num_experts = 4, hidden = 256, inter = 128, topk = 2 }}]

[[workloads]]
target = "attention.msa_prefill_block_score"
dtype = "bfloat16"
shapes = [{{ q_len = 32, prefix_blocks = 12, head_dim = 64, block_size = 64, causal_probe = 0 }}]
"""


def write_arena(folder: Path, *, launches: int = 2, deadline_ms: int = 2000, memory: int = 2 << 30) -> str:
    """Write a tiny arena document and return its path."""
    path = folder / "tiny.toml"
    path.write_text(TINY_ARENA.format(launches=launches, deadline_ms=deadline_ms, memory=memory))
    return str(path)


def describe_bundle(tree: Path, report_path: Path) -> BundleRef:
    """Write an intake report for a bundle tree without scanning it, and return the reference to both."""
    manifest = tomli.loads((tree / "manifest.toml").read_text())
    variants = []
    for row in manifest["ops"]:
        metadata = json.loads((tree / row["metadata"]).read_text()) if "metadata" in row else {}
        variants.append(
            ResolvedVariant(
                slot=row["slot"],
                variant=row.get("variant", "default"),
                source=row["source"],
                entry=row["entry"],
                prepare=row.get("prepare"),
                dtypes=tuple(row.get("dtypes", ())),
                architectures=tuple(row.get("architectures", ())),
                metadata=metadata,
                override_point=row.get("override_point"),
            )
        )
    content = hash_tree(tree)
    report = IntakeReport(
        schema="cacheon.intake-report.v1",
        content_hash=content.hex,
        bundle_id=manifest["bundle_id"],
        abi_version=manifest["abi_version"],
        target_id=manifest["competition"]["target"],
        target_kind="slot",
        features=("entry",),
        variants=tuple(variants),
        fingerprint="0" * 64,
        pieces=(),
        files=tuple(FileEntry(file.path, file.size, "0" * 64) for file in content.files),
        closure=(),
        findings=(),
        error=None,
    )
    report_path.write_bytes(encode_report(report))
    return BundleRef(content.hex, str(tree), str(report_path))


def make_request(
    candidate: BundleRef,
    arena: str,
    *,
    target_id: str = "activation.silu_and_mul",
    incumbent: BundleRef | None = None,
) -> AttemptRequest:
    """Return a primary attempt request."""
    return AttemptRequest(
        attempt_id=f"test-{uuid.uuid4().hex}",
        role="primary",
        target_id=target_id,
        arena=arena,
        candidate=candidate,
        stack=() if incumbent is None else (Holding(target_id, incumbent),),
        reservation=Reservation(1, 0, "5Test"),
    )
