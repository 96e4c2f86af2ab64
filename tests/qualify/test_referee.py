"""The referee on real sandboxed arms: evidence of honest runs, and every fault a bundle can commit by accident."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from config.arena import load_arena
from config.errors import ConfigurationError, HostError
from config.target_catalog import load_catalog
from qualify.engine_tree import EngineTree, Part
from qualify.referee import run_attempt
from qualify.sandbox.client import Zygote
from scoring import sealing
from scoring.attempt import Attempt, encode_attempt, read_attempt
from scoring.grade import grade
from tests.qualify.support import EXAMPLES, describe_bundle, make_request, write_arena

Run = Callable[[Path], Attempt]
Write = Callable[[str], Path]

HONEST = "import torch\ndef silu_and_mul(x, out):\n    d = out.shape[-1]\n    y = x.float()\n"
HONEST += "    out.copy_(torch.nn.functional.silu(y[..., :d]) * y[..., d:])\n"


def test_an_honest_run_leaves_complete_evidence(attempt: Run, arena: str) -> None:
    """The file is canonical, opens its commitment, follows the sealed schedule and can be graded."""
    evidence = attempt(EXAMPLES / "silu_fast")
    assert evidence.incidents == ()
    assert len(evidence.launches) == 2
    assert evidence.stages
    seed = sealing.parse_seed(evidence.seed.revealed)
    assert sealing.commitment(seed, evidence.attempt_id) == evidence.seed.commitment
    for launch in evidence.launches:
        assert launch.candidate_slot == sealing.candidate_slot(seed, evidence.attempt_id, launch.index)
        assert launch.candidate.slot == launch.candidate_slot
    checks = [check for launch in evidence.launches for block in launch.blocks for check in block.candidate.checks] + [
        check for stage in evidence.stages for check in stage.checks
    ]
    assert len({check.input_digest for check in checks}) == len(checks)
    assert all(0 <= check.worst_ppm <= 1_000_000 for check in checks)
    data = encode_attempt(evidence)
    assert read_attempt(data) == evidence
    verdict = grade(evidence, load_arena(arena))
    assert verdict.blame != "miner" or verdict.code == "NOT_FASTER"
    assert {"landlock", "seccomp", "userns"} <= {
        layer.partition(":")[0] for layer in evidence.environment.layers_present
    }


def test_both_roles_answer_the_same_questions(attempt: Run) -> None:
    """Inside a block only the code differs: the contents are equal."""
    evidence = attempt(EXAMPLES / "silu_fast")
    for launch in evidence.launches:
        for block in launch.blocks:
            ours = [check.input_digest for check in block.baseline.checks]
            assert ours == [check.input_digest for check in block.candidate.checks]


def test_every_registered_example_target_runs(tmp_path: Path, arena: str, fork_server: Zygote) -> None:
    """The second slot, with a weight and a scalar argument, goes through the same path."""
    reference = describe_bundle(EXAMPLES / "rmsnorm_fast", tmp_path / "r.json")
    request = make_request(reference, arena, target_id="norm.rmsnorm")
    evidence = run_attempt(request, lambda event: None, fork_server)
    assert evidence.incidents == ()
    assert len(evidence.launches) == 2


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        (HONEST.replace("out.copy_(", "out.copy_(1.05 * "), "wrong_output", "expected="),
        ("def silu_and_mul(x, out):\n    pass\n", "not_executed", "never written"),
        ("def silu_and_mul(x, out):\n    raise ValueError('odd width')\n", "raised", "ValueError: odd width"),
        ("\ndef silu_and_mul(x):\n    pass\n", "signature", "k.py:2: silu_and_mul(x) does not take (x, out)"),
        ("\nasync def silu_and_mul(x, out):\n    pass\n", "signature", "k.py:2: silu_and_mul is an async function"),
        ("def silu_and_mul(x, out):\n    yield 1\n", "signature", "k.py:1: silu_and_mul is a generator"),
        ("async def silu_and_mul(x, out):\n    yield 1\n", "signature", "k.py:1: silu_and_mul is an async generator"),
        (
            "class Lazy:\n    async def __call__(self, x, out):\n        pass\n\nsilu_and_mul = Lazy()\n",
            "signature",
            "silu_and_mul is an async function",
        ),
        ("import math\n\nsilu_and_mul = math.pi\n", "signature", "k.py:3: silu_and_mul is of type float, which"),
        ("def silu_and_mul(x, out):\n    raise SystemExit(0)\n", "raised", "SystemExit"),
        ("def other(x, out):\n    pass\n", "load_failed", "no callable silu_and_mul"),
        ("import not_there\n", "load_failed", "ModuleNotFoundError"),
        ("def silu_and_mul(x, out) pass\n", "load_failed", "SyntaxError"),
        ("raise SystemExit\n", "load_failed", "SystemExit"),
        ("import os\ndef silu_and_mul(x, out):\n    os._exit(0)\n", "crashed", "without an answer"),
        ("import os\nos._exit(3)\n", "crashed", "without an answer"),
        ("def silu_and_mul(x, out):\n    x.zero_()\n", "crashed", "signal"),
        ("import os\ndef silu_and_mul(x, out):\n    os.kill(os.getpid(), 9)\n", "forbidden_call", "SIGSYS"),
        (
            "import torch\ndef silu_and_mul(x, out):\n    torch.empty(1 << 40)\n",
            "resource_limit",
            "memory",
        ),
        (
            HONEST + "    out.as_strided((8,), (1,), out.storage_offset() + out.numel() + 2).zero_()\n",
            "out_of_bounds",
            "",
        ),
        (
            "def silu_and_mul(x, out):\n    while True:\n        print('x' * 100000)\n",
            "resource_limit",
            "",
        ),
    ],
)
def test_faults_are_recorded_with_their_kind(attempt: Run, bundle: Write, text: str, kind: str, words: str) -> None:
    """Whatever the bundle does ends in one incident of the candidate with a kind and a sentence."""
    evidence = attempt(bundle(text))
    assert [(incident.role, incident.kind) for incident in evidence.incidents] == [("candidate", kind)]
    assert words in evidence.incidents[0].detail
    assert evidence.ending == "incident"
    assert read_attempt(encode_attempt(evidence)) == evidence


def test_a_call_that_hangs_meets_its_deadline(tmp_path: Path, bundle: Write, fork_server: Zygote) -> None:
    """The deadline of the arena ends the call and the attempt."""
    arena = write_arena(tmp_path, deadline_ms=100)
    reference = describe_bundle(bundle("def silu_and_mul(x, out):\n    while True: pass\n"), tmp_path / "r.json")
    evidence = run_attempt(make_request(reference, arena), lambda event: None, fork_server)
    assert evidence.incidents[0].kind == "call_deadline"
    assert grade(evidence, load_arena(arena)).code == "CALL_DEADLINE"


def test_a_fault_that_shows_late_is_found_in_the_launches(attempt: Run, bundle: Write) -> None:
    """A kernel that is right at first and wrong after N calls is caught by the check of every timed call."""
    text = HONEST + "    global calls\n    calls += out.shape == (64, 1024)\n    if calls > 3: out[0, 0] += 1\n"
    evidence = attempt(bundle("calls = 0\n" + text))
    assert evidence.incidents[0].kind == "wrong_output"
    assert evidence.incidents[0].stage == "block"
    assert evidence.launches == ()


def test_a_bundle_outside_the_workload_is_never_measured(attempt: Run, bundle: Write) -> None:
    """A domain that holds no shape of the workload is said so, and nothing runs."""
    tree = bundle(HONEST)
    manifest = (tree / "manifest.toml").read_text() + 'dtypes = ["float32"]\n'
    (tree / "manifest.toml").write_text(manifest)
    evidence = attempt(tree)
    assert evidence.incidents[0].stage == "routing"
    assert evidence.stages == ()
    assert evidence.launches == ()


def test_a_crowned_bundle_is_the_baseline(tmp_path: Path, arena: str, bundle: Write, fork_server: Zygote) -> None:
    """The incumbent's arm runs the crowned bundle, and its digest stands in the evidence."""
    incumbent = describe_bundle(EXAMPLES / "silu_fast", tmp_path / "i.json")
    candidate = describe_bundle(bundle(HONEST), tmp_path / "c.json")
    evidence = run_attempt(make_request(candidate, arena, incumbent=incumbent), lambda event: None, fork_server)
    assert evidence.incidents == ()
    catalog, target = load_catalog(), "activation.silu_and_mul"
    stack = EngineTree.of(catalog, [Part(target, incumbent.content_hash)])
    assert evidence.identity.incumbent_digest == stack.digest
    assert evidence.identity.candidate_tree_digest == stack.replaced(Part(target, candidate.content_hash)).digest


def test_a_broken_incumbent_is_never_the_candidates_fault(
    tmp_path: Path, arena: str, bundle: Write, fork_server: Zygote
) -> None:
    """A baseline that fails leads to RETRY."""
    incumbent = describe_bundle(bundle("def silu_and_mul(x, out):\n    out.zero_()\n"), tmp_path / "i.json")
    candidate = describe_bundle(EXAMPLES / "silu_fast", tmp_path / "c.json")
    evidence = run_attempt(make_request(candidate, arena, incumbent=incumbent), lambda event: None, fork_server)
    assert evidence.incidents[0].role == "baseline"
    verdict = grade(evidence, load_arena(arena))
    assert (verdict.outcome, verdict.code) == ("RETRY", "BASELINE_FAILED")


WRONG_WHERE_LARGE = (
    "import torch\ndef silu_and_mul(x, out):\n    d = out.shape[-1]\n"
    "    if len(x) < 128:\n        out.copy_(torch.nn.functional.silu(x[..., :d]) * x[..., d:])\n"
)
MEETS_ANOTHER = (
    "import sys\nassert sum(name.count('.') == 0 and 'cacheon_bundle' in name for name in sys.modules) < 2\n"
    "assert not any(name.startswith('cacheon_stock') for name in sys.modules)\n"
)


def narrow_bundle(tmp_path: Path) -> Path:
    """Write a right and fast bundle for fewer than 128 rows."""
    tree = tmp_path / "narrow"
    shutil.copytree(EXAMPLES / "silu_fast", tree)
    (tree / "metadata" / "silu.json").write_text('{"capabilities": {"num_tokens": {"max": 127}}}')
    return tree


def two_shapes(arena: str) -> None:
    """Give the silu workload a second shape, with 256 rows."""
    path = Path(arena)
    path.write_text(path.read_text().replace("d = 1024 }]", "d = 1024 }, { num_tokens = 256, d = 1024 }]", 1))


def test_a_wide_incumbent_answers_for_itself_beside_a_narrow_candidate(
    tmp_path: Path, arena: str, bundle: Write, fork_server: Zygote
) -> None:
    """Shapes that the candidate leaves out are asked of the incumbent's own arm; its faults there are its own."""
    two_shapes(arena)
    incumbent = describe_bundle(bundle(WRONG_WHERE_LARGE), tmp_path / "i.json")
    candidate = describe_bundle(narrow_bundle(tmp_path), tmp_path / "c.json")
    evidence = run_attempt(make_request(candidate, arena, incumbent=incumbent), lambda event: None, fork_server)
    verdict = grade(evidence, load_arena(arena))
    assert (verdict.outcome, verdict.code) == ("RETRY", "BASELINE_FAILED")
    assert [(incident.role, incident.stage) for incident in evidence.incidents] == [("baseline", "warmup")]


@pytest.mark.parametrize("crowned", [False, True])
def test_no_process_holds_the_code_of_two_bundles(
    tmp_path: Path, arena: str, fork_server: Zygote, crowned: bool
) -> None:
    """A narrow candidate does not meet the crowned bundle in its process, and that does not meet the candidate."""
    two_shapes(arena)
    tree = narrow_bundle(tmp_path)
    kernel = tree / "kernels" / "silu_and_mul.py"
    kernel.write_text(MEETS_ANOTHER + kernel.read_text())
    wide = tmp_path / "wide"
    shutil.copytree(EXAMPLES / "silu_fast", wide)
    kernel = wide / "kernels" / "silu_and_mul.py"
    kernel.write_text(MEETS_ANOTHER + kernel.read_text())
    incumbent = describe_bundle(wide, tmp_path / "i.json") if crowned else None
    request = make_request(describe_bundle(tree, tmp_path / "c.json"), arena, incumbent=incumbent)
    evidence = run_attempt(request, lambda event: None, fork_server)
    assert evidence.incidents == ()
    assert evidence.identity.gaps == (() if crowned else (1,))
    assert [block.case for block in evidence.launches[0].blocks] == ([0, 1] if crowned else [0, 0])


def test_a_damaged_store_is_not_the_miners_fault(tmp_path: Path, arena: str, fork_server: Zygote) -> None:
    """A tree that no longer hashes to its name raises, and leaves no evidence."""
    tree = tmp_path / "tree"
    shutil.copytree(EXAMPLES / "silu_fast", tree)
    reference = describe_bundle(tree, tmp_path / "r.json")
    (tree / "README.md").write_text("changed")
    with pytest.raises(HostError) as caught:
        run_attempt(make_request(reference, arena), lambda event: None, fork_server)
    assert caught.value.code == "BUNDLE_UNUSABLE"


def test_requests_this_build_cannot_serve_are_refused(tmp_path: Path, arena: str, fork_server: Zygote) -> None:
    """Unknown targets and cores are configuration and host errors."""
    reference = describe_bundle(EXAMPLES / "silu_fast", tmp_path / "r.json")
    with pytest.raises(ConfigurationError) as caught:
        run_attempt(make_request(reference, arena, target_id="attention.sdpa"), lambda event: None, fork_server)
    assert caught.value.code == "TARGET_NOT_MEASURABLE"


def test_an_arena_with_a_shape_that_no_call_has_is_refused(tmp_path: Path, fork_server: Zygote) -> None:
    """It is the arena's fault, said before anything runs and with the shape."""
    reference = describe_bundle(EXAMPLES / "attention_blocks", tmp_path / "r.json")
    shape = "{ num_tokens = 8, num_q_heads = 3, num_kv_heads = 2, head_dim = 8, causal = 1 }"
    arena = tmp_path / "arena.toml"
    head, _, _ = (Path(__file__).parents[1] / "hostile" / "arena_short.toml").read_text().partition("[[workloads]]")
    arena.write_text(f'{head}[[workloads]]\ntarget = "attention.sdpa"\ndtype = "bfloat16"\nshapes = [{shape}]\n')
    with pytest.raises(ConfigurationError) as caught:
        run_attempt(make_request(reference, str(arena), target_id="attention.sdpa"), lambda event: None, fork_server)
    assert caught.value.code == "TARGET_NOT_MEASURABLE"
    assert "num_q_heads=3" in caught.value.message


def test_an_attempt_leaves_the_process_as_it_was(attempt: Run) -> None:
    """Cores, threads, gradients, descriptors and scheduling are restored; no arm survives."""

    def state() -> tuple[object, ...]:
        return (
            os.sched_getaffinity(0),
            os.sched_getscheduler(0),
            torch.get_num_threads(),
            torch.is_grad_enabled(),
            len(os.listdir("/proc/self/fd")),
        )

    before = state()
    evidence = attempt(EXAMPLES / "silu_fast")
    assert state() == before
    for launch in evidence.launches:
        for arm in (launch.baseline, launch.candidate):
            pid, _, started = arm.process.partition(":")
            stat = Path(f"/proc/{pid}/stat")
            assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[19] != started


def test_events_tell_the_seed_commitment_before_anything_runs(tmp_path: Path, arena: str, fork_server: Zygote) -> None:
    """The commitment is announced first; launches report bounds."""
    events: list[dict[str, object]] = []
    reference = describe_bundle(EXAMPLES / "silu_fast", tmp_path / "r.json")
    evidence = run_attempt(make_request(reference, arena), events.append, fork_server)
    assert events[0] == {"event": "sealed", "commitment": evidence.seed.commitment}
    assert [event["index"] for event in events if event["event"] == "launch"] == [0, 1]
