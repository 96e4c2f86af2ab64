"""Collectives on real groups of sandboxed ranks: what is right passes, and every fault names its rank."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from qualify.referee import run_attempt
from qualify.sandbox.client import Zygote
from scoring.attempt import Attempt
from tests.qualify.support import describe_bundle, make_request, write_arena

WORKLOAD = """[[workloads]]
target = "{target}"
dtype = "{dtype}"
world_size = {ranks}
shapes = [{{ {shape} }}]
"""
MANIFEST = """bundle_id = "group"
abi_version = "cacheon-op-abi-v0"
[competition]
target = "{target}"
mode = "slot"
[[ops]]
slot = "{target}"
source = "kernels/k.py"
entry = "{entry}"
{rest}
"""
SHAPES = {
    "collective.all_reduce": "num_tokens = 8, hidden = 1024",
    "collective.ar_residual_rmsnorm": "num_tokens = 8, hidden = 1024",
    "collective.moe_finalize_ar_rmsnorm": "num_tokens = 6, exp_tokens = 8, topk = 3, hidden = 1024",
    "moe.fused_experts_reduce": "num_tokens = 8, num_experts = 4, hidden = 256, inter = 128, topk = 2",
}
SUM = """import torch


def all_reduce(x, out, group):
    total = x.to(torch.float32, copy=True)
    torch.distributed.all_reduce(total, group=group)
    out.copy_(total)
"""

Run = Callable[..., Attempt]


@pytest.fixture
def run(tmp_path: Path, fork_server: Zygote) -> Run:
    """Measure one source text as the candidate of a collective."""

    def measure(
        text: str, target: str = "collective.all_reduce", ranks: int = 2, dtype: str = "float32", rest: str = ""
    ) -> Attempt:
        arena = Path(write_arena(tmp_path, deadline_ms=1500))
        head = arena.read_text().partition("[[workloads]]")[0]
        arena.write_text(head + WORKLOAD.format(target=target, dtype=dtype, ranks=ranks, shape=SHAPES[target]))
        tree = tmp_path / "bundle"
        (tree / "kernels").mkdir(parents=True)
        entry = target.rpartition(".")[2]
        (tree / "manifest.toml").write_text(MANIFEST.format(target=target, entry=entry, rest=rest))
        (tree / "kernels" / "k.py").write_text(text)
        request = make_request(describe_bundle(tree, tmp_path / "report.json"), str(arena), target_id=target)
        return run_attempt(request, lambda event: None, fork_server)

    return measure


def test_a_group_that_sums_passes(run: Run) -> None:
    """Both roles run as two ranks, every call is answered by both, and nothing is held against anybody."""
    evidence = run(SUM)
    assert evidence.incidents == ()
    assert len(evidence.launches) == 2
    assert all("+" in arm.process for launch in evidence.launches for arm in (launch.baseline, launch.candidate))
