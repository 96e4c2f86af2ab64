"""Collectives on real groups of sandboxed ranks: what is right passes, and every fault names its rank."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from config.errors import ConfigurationError
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
    "norm.rmsnorm": "num_tokens = 8, hidden_dim = 1024",
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
        text: str,
        target: str = "collective.all_reduce",
        ranks: int = 2,
        rest: str = "",
        metadata: dict[str, object] | None = None,
    ) -> Attempt:
        arena = Path(write_arena(tmp_path, deadline_ms=1500))
        head = arena.read_text().partition("[[workloads]]")[0]
        arena.write_text(head + WORKLOAD.format(target=target, dtype="float32", ranks=ranks, shape=SHAPES[target]))
        tree = tmp_path / "bundle"
        (tree / "kernels").mkdir(parents=True, exist_ok=True)
        if metadata is not None:
            rest += 'metadata = "kernels/k.json"'
            (tree / "kernels" / "k.json").write_text(json.dumps(metadata))
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


def test_four_ranks_pass(run: Run) -> None:
    """A group may be larger; a bundle sees its rank and the size of its group, and may say where it applies."""
    text = SUM.replace(
        "    total =", "    assert (group.size(), 0 <= group.rank() < 4, torch.distributed.get_rank(group)) == "
        "(4, True, group.rank())\n    total =",
    )  # fmt: skip
    evidence = run(text, ranks=4)
    assert evidence.incidents == ()


def on_rank_1(statement: str) -> str:
    """Return the sum with a statement that rank 1 runs first."""
    return SUM.replace("    total =", f"    if group.rank() == 1:\n        {statement}\n    total =")


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        (SUM.replace("torch.distributed.all_reduce(total, group=group)", "pass"), "wrong_output", "rank 0 out"),
        (SUM + "    if group.rank() == 1:\n        out[0, 7] += 1\n", "wrong_output", "rank 1 out"),
        (on_rank_1("raise ValueError('odd')"), "raised", "rank 1: kernels/k.py:6: ValueError: odd"),
        (on_rank_1("__import__('os')._exit(3)"), "crashed", "rank 1 exited with status 3"),
        (on_rank_1("__import__('os').kill(2, 9)"), "raised", "rank 1: kernels/k.py:6: PermissionError"),
        (
            on_rank_1("__import__('os').kill(__import__('os').getpid(), 9)"),
            "forbidden_call",
            "rank 1 was killed by signal SIGSYS",
        ),
        (on_rank_1("__import__('ctypes').CDLL(None).syscall(101, 0, 1, 0, 0)"), "forbidden_call", "rank 1 was killed"),
        (on_rank_1("x.zero_()"), "crashed", "rank 1 was killed by signal SIGSEGV (inputs are mapped read-only)"),
        (on_rank_1("__import__('time').sleep(9)"), "call_deadline", "no answer from any rank within 1500 ms"),
        (on_rank_1("return"), "call_deadline", "no answer from rank 0 within 1500 ms"),
        (on_rank_1("__import__('os').close(3)"), "crashed", "rank 1"),
        (on_rank_1("__import__('os').write(3, b'ready')"), "protocol", "rank 1: message of 5 bytes"),
        (
            "import torch\nif torch.distributed.get_rank() == 1:\n    raise OSError('no')\n" + SUM,
            "load_failed",
            "rank 1",
        ),
    ],
    ids=[
        "unsummed",
        "one",
        "raises",
        "exits",
        "kills",
        "killed",
        "traces",
        "faults",
        "hangs",
        "leaves",
        "hangs-up",
        "babbles",
        "unloadable",
    ],
)
def test_a_fault_of_one_rank_is_the_candidates_and_is_named(run: Run, text: str, kind: str, words: str) -> None:
    """Nobody waits for ranks that wait for the one at fault."""
    evidence = run(text)
    assert [(incident.role, incident.kind) for incident in evidence.incidents] == [("candidate", kind)]
    assert words in evidence.incidents[0].detail


def test_weights_of_a_group_differ_and_are_prepared_by_every_rank(run: Run) -> None:
    """Every rank prepares its own weights; swapping what `prepare` made with another rank's is wrong."""
    text = """import torch


def prepare(w13, w2):
    return w13.contiguous(), w2.contiguous()


def fused_experts_reduce(x, topk_ids, topk_weights, prepared, out, group):
    w13, w2 = prepared
    total = torch.zeros(x.shape)
    for token in range(len(x)):
        for expert, weight in zip(topk_ids[token].tolist(), topk_weights[token]):
            gate, up = (w13[expert] @ x[token]).chunk(2)
            total[token] += weight * (w2[expert] @ (torch.nn.functional.silu(gate) * up))
    torch.distributed.all_reduce(total, group=group)
    out.copy_(total)
"""
    evidence = run(text, "moe.fused_experts_reduce", rest='prepare = "prepare"')
    assert evidence.incidents == ()
    assert all(launch.candidate.prepare_ns > 0 for launch in evidence.launches)


STATEFUL = """import torch

KEPT = {}


def all_reduce(x, out, group):
    total = KEPT.setdefault(x.shape[1], torch.zeros(512, x.shape[1]))
    part = total[:REACH]
    part[: len(x)] = x
    torch.distributed.all_reduce(part, group=group)
    out.copy_(part[: len(x)])
"""


def test_a_buffer_that_is_kept_and_used_right_passes(run: Run) -> None:
    """State from call to call is no fault."""
    assert run(STATEFUL.replace("REACH", "len(x)")).incidents == ()


def test_what_only_a_sequence_shows_is_found(run: Run) -> None:
    """Every case by itself is right; a count that shrinks and grows again is answered from the first time."""
    text = """import torch

SEEN = {}


def all_reduce(x, out, group):
    total = x.to(torch.float32, copy=True)
    torch.distributed.all_reduce(total, group=group)
    kept, last = SEEN.get(x.shape), SEEN.get("last", len(x))
    SEEN[x.shape], SEEN["last"] = total, len(x)
    out.copy_(kept if kept is not None and len(x) > last else total)
"""
    evidence = run(text)
    assert [incident.kind for incident in evidence.incidents] == ["wrong_output"]
    assert evidence.incidents[0].stage == "correctness"
    assert "of a sequence, after num_tokens=" in evidence.incidents[0].detail


def test_a_bundle_for_groups_of_another_size_is_never_routed(run: Run) -> None:
    """The live descriptor tells the size of the group, and a row that wants another one does not apply."""
    for size, kinds in ((4, ["never_routed"]), (2, [])):
        evidence = run(SUM, metadata={"capabilities": {"world_size": size, "tp_size": size}})
        assert [incident.kind for incident in evidence.incidents] == kinds


@pytest.mark.parametrize(
    ("target", "ranks"), [("collective.all_reduce", 1), ("moe.fused_experts_reduce", 1), ("norm.rmsnorm", 2)]
)
def test_an_arena_gives_groups_to_collectives_alone(run: Run, target: str, ranks: int) -> None:
    """A collective without ranks, or ranks without a collective, is refused before anything runs."""
    with pytest.raises(ConfigurationError) as caught:
        run(SUM, target, ranks=ranks)
    assert caught.value.code == "TARGET_NOT_MEASURABLE"
    assert "world_size" in caught.value.hint
