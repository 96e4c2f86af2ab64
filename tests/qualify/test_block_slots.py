"""Slots with a load-time half, fixed dtypes and padded outputs, on real sandboxed arms."""

from __future__ import annotations

from pathlib import Path

import pytest

from qualify.referee import run_attempt
from qualify.sandbox.client import Zygote
from scoring.attempt import Attempt
from tests.qualify.support import describe_bundle, make_request

EXPERTS = """import torch


def prepare(w13, w2):
    return w13.transpose(1, 2).contiguous(), w2.transpose(1, 2).contiguous()


def fused_experts(x, topk_ids, topk_weights, prepared, out):
    first, second = prepared
    total = torch.zeros(x.shape, dtype=torch.float32)
    for expert in topk_ids.unique().tolist():
        token, choice = torch.nonzero(topk_ids == expert, as_tuple=True)
        gate, up = torch.mm(x[token], first[expert]).chunk(2, dim=-1)
        part = torch.mm(torch.nn.functional.silu(gate) * up, second[expert]).float()
        total.index_add_(0, token, part * topk_weights[token, choice].unsqueeze(-1))
    out.copy_(total)
"""
SCORES = """import torch


def msa_prefill_block_score(q, index_k, prefix_len, scale, block_size, out):
    scores = torch.mm(q.float(), index_k.float().T).mul_(scale)
    rows, keys = scores.shape
    last = prefix_len + torch.arange(rows)
    scores.masked_fill_(torch.arange(keys)[None, :] > last[:, None], float("-inf"))
    for block in range(out.shape[1]):
        out[:, block] = scores[:, block * block_size : (block + 1) * block_size].amax(dim=-1)
"""
MANIFEST = """bundle_id = "block"
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


class Bench:
    """Runs one source text as the candidate of a target."""

    def __init__(self, folder: Path, arena: str, fork_server: Zygote) -> None:
        self._folder, self._arena, self._fork_server = folder, arena, fork_server

    def run(self, target: str, text: str, rest: str = "") -> Attempt:
        """Write the bundle and measure it."""
        tree = self._folder / "bundle"
        (tree / "kernels").mkdir(parents=True)
        entry = target.rpartition(".")[2]
        (tree / "manifest.toml").write_text(MANIFEST.format(target=target, entry=entry, rest=rest))
        (tree / "kernels" / "k.py").write_text(text)
        reference = describe_bundle(tree, self._folder / "report.json")
        request = make_request(reference, self._arena, target_id=target)
        return run_attempt(request, lambda event: None, self._fork_server)


@pytest.fixture
def bench(tmp_path: Path, arena: str, fork_server: Zygote) -> Bench:
    """Return a bench for one candidate."""
    return Bench(tmp_path, arena, fork_server)


def test_experts_with_repacked_weights_are_right(bench: Bench) -> None:
    """`prepare` runs in both roles, its time stands beside the calls', and weights differ from launch to launch."""
    evidence = bench.run("moe.fused_experts", EXPERTS, 'prepare = "prepare"')
    assert evidence.incidents == ()
    assert len(evidence.launches) == 2
    assert all(arm.prepare_ns > 0 for launch in evidence.launches for arm in (launch.baseline, launch.candidate))


def test_without_a_prepare_of_its_own_an_entry_gets_the_weights(bench: Bench) -> None:
    """The load-time half is optional for a bundle."""
    text = EXPERTS.replace("first, second = prepared", "first, second = (one.transpose(1, 2) for one in prepared)")
    assert bench.run("moe.fused_experts", text).incidents == ()


@pytest.mark.parametrize(
    ("old", "new", "kind", "words"),
    [
        ("return w13.tr", "w13.zero_()\n    return w13.tr", "crashed", "read-only"),
        ("return w13.tr", "raise ValueError('odd')\n    return w13.tr", "prepare_failed", "k.py:5: ValueError: odd"),
        ("prepare(w13, w2)", "prepare(w13)", "signature", "does not take (w13, w2)"),
        ("second = prepared", "second = prepared[1], prepared[0]", "raised", "RuntimeError"),
        ("total.index_add_(0, token, part *", "total.index_add_(0, token, 1.2 * part *", "wrong_output", "expected="),
    ],
)
def test_faults_of_a_load_time_half_have_their_kind(bench: Bench, old: str, new: str, kind: str, words: str) -> None:
    """Weights cannot be written to, and what `prepare` does wrong is told apart from what a call does wrong."""
    assert old in EXPERTS
    evidence = bench.run("moe.fused_experts", EXPERTS.replace(old, new), 'prepare = "prepare"')
    assert [(incident.role, incident.kind) for incident in evidence.incidents] == [("candidate", kind)]
    assert words in evidence.incidents[0].detail


def test_padded_rows_are_written_where_they_belong(bench: Bench) -> None:
    """Scores go into rows with a pitch; the elements between them stay as they were."""
    assert bench.run("attention.msa_prefill_block_score", SCORES).incidents == ()


def test_writing_between_padded_rows_is_out_of_bounds(bench: Bench) -> None:
    """An output treated as if it were contiguous is found out even where the scores themselves are right."""
    text = (
        SCORES
        + "    out.as_strided((out.shape[0], 7), (out.stride(0), 1), out.storage_offset() + out.shape[1]).zero_()\n"
    )
    evidence = bench.run("attention.msa_prefill_block_score", text)
    assert [incident.kind for incident in evidence.incidents] == ["out_of_bounds"]
