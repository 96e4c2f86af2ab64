"""The screens that run a bundle, on real sandboxed arms: what passes, and what fails with which code."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from config.arena import load_arena
from qualify.docket import open_docket
from qualify.referee import ATTEMPT_SCREENS, measure_docket
from qualify.sandbox.client import Zygote
from qualify.screens.abi import Abi
from qualify.screens.base import encode_receipt, read_receipt
from qualify.screens.build import Build
from qualify.screens.correctness import Correctness
from qualify.screens.graph import Graph
from qualify.screens.pipeline import run_screens
from qualify.screens.speed import Speed
from scoring.grade import grade
from tests.qualify.screens.conftest import Sit
from tests.qualify.support import EXAMPLES, describe_bundle, make_request, write_arena

Write = Callable[[str], Path]

SCREENS = (Build(), Abi(), Correctness(), Graph(), Speed(short=True))
HONEST = "import torch\ndef silu_and_mul(x, out):\n    d = out.shape[-1]\n    y = x.float()\n"
HONEST += "    out.copy_(torch.nn.functional.silu(y[..., :d]) * y[..., d:])\n"


def test_a_good_bundle_passes_every_screen(sit: Sit, arena: str) -> None:
    """Receipts name bundle, target, arena, incumbent and machine; what does not apply says why."""
    with sit(EXAMPLES / "silu_fast") as bench:
        receipts = run_screens(SCREENS, bench, lambda event: None)
    outcomes = {receipt.screen: receipt.outcome for receipt in receipts}
    assert outcomes == {
        "build": "not_applicable",
        "abi": "passed",
        "correctness": "passed",
        "graph": "not_applicable",
        "speed": "passed",
    }
    by_name = {receipt.screen: receipt for receipt in receipts}
    assert "Python source" in by_name["build"].message
    assert "no device" in by_name["graph"].message
    assert by_name["abi"].facts["entries"] == 1
    assert by_name["correctness"].facts["calls"] == 2 * int(by_name["correctness"].facts["cases"])
    assert by_name["speed"].facts["launches"] == 2
    assert by_name["speed"].facts["decision"] == "undecided"
    assert int(by_name["speed"].facts["estimate_ppm"]) > 0
    for receipt in receipts:
        assert read_receipt(encode_receipt(receipt)) == receipt
        assert receipt.content_hash == bench.docket.candidate.content_hash
        assert receipt.arena_digest == load_arena(arena).digest
        assert receipt.environment_digest == receipts[0].environment_digest != ""
    assert bench.findings.incidents == []


@pytest.mark.parametrize(
    ("text", "screen", "code", "words"),
    [
        ("import not_there\n", "abi", "LOAD_FAILED", "not_there"),
        ("def other(x, out):\n    pass\n", "abi", "LOAD_FAILED", "no callable silu_and_mul"),
        ("silu_and_mul = 3\n", "abi", "ENTRY_SIGNATURE", ":1: silu_and_mul is of type int"),
        ("def silu_and_mul(x):\n    pass\n", "abi", "ENTRY_SIGNATURE", "out"),
        ("def silu_and_mul(x, out, *, mode):\n    pass\n", "abi", "ENTRY_SIGNATURE", "mode"),
        ("def silu_and_mul(x, out):\n    raise ValueError('odd width')\n", "abi", "ARM_RAISED", "odd width"),
        ("import os\ndef silu_and_mul(x, out):\n    os._exit(0)\n", "abi", "ARM_CRASHED", "without an answer"),
        ("def silu_and_mul(x, out):\n    pass\n", "correctness", "NOT_EXECUTED", "never written"),
        (HONEST.replace("out.copy_(", "out.copy_(1.05 * "), "correctness", "WRONG_OUTPUT", "expected="),
        (HONEST + "    if out.shape == (64, 1024): out.mul_(2)\n", "correctness", "WRONG_OUTPUT", "num_tokens=64"),
    ],
)
def test_a_faulty_bundle_fails_one_screen(
    sit: Sit, bundle: Write, text: str, screen: str, code: str, words: str
) -> None:
    """The code is the verdict's, the fault is the miner's, there is a hint, and nothing runs after it."""
    with sit(bundle(text)) as bench:
        receipts = run_screens(SCREENS, bench, lambda event: None)
    last = receipts[-1]
    assert (last.screen, last.outcome, last.code, last.blame) == (screen, "failed", code, "miner")
    assert words in last.message
    assert last.hint
    assert all(receipt.outcome in ("passed", "not_applicable") for receipt in receipts[:-1])
    assert [incident.stage for incident in bench.findings.incidents] == [screen]


@pytest.mark.parametrize(("name", "code"), [("silu_wrong", "WRONG_OUTPUT"), ("silu_late", "LATE_WRITE")])
def test_faulty_examples_fail_correctness(sit: Sit, name: str, code: str) -> None:
    """They load and return; what they compute is wrong, or too late."""
    with sit(EXAMPLES / name) as bench:
        receipts = run_screens(SCREENS, bench, lambda event: None)
    assert [receipt.outcome for receipt in receipts] == ["not_applicable", "passed", "failed"]
    assert receipts[-1].code == code


def test_a_bundle_outside_the_workload_fails_before_anything_runs(sit: Sit, bundle: Write) -> None:
    """No call would ever reach it; the incident stands under routing, as it does in an attempt."""
    tree = bundle(HONEST)
    (tree / "manifest.toml").write_text((tree / "manifest.toml").read_text() + 'dtypes = ["float32"]\n')
    with sit(tree) as bench:
        receipts = run_screens(SCREENS, bench, lambda event: None)
    assert (receipts[-1].screen, receipts[-1].code) == ("abi", "NEVER_ROUTED")
    assert [incident.stage for incident in bench.findings.incidents] == ["routing"]


def test_every_variant_is_called_once(sit: Sit, bundle: Write) -> None:
    """A row that serves only some shapes is loaded and called at one of them."""
    tree = bundle(HONEST + "def wide(x, out):\n    raise RuntimeError('wide')\n")
    manifest = (tree / "manifest.toml").read_text()
    (tree / "small.json").write_text('{"capabilities": {"num_tokens": {"max": 4}}}')
    (tree / "large.json").write_text('{"capabilities": {"num_tokens": {"min": 5}}}')
    row = manifest[manifest.index("[[ops]]") :]
    manifest += 'variant = "small"\nmetadata = "small.json"\n' + row.replace('"silu_and_mul"\n', '"wide"\n')
    (tree / "manifest.toml").write_text(manifest + 'variant = "large"\nmetadata = "large.json"\n')
    with sit(tree) as bench:
        receipt = Abi().run(bench)
    assert (receipt.code, "wide" in receipt.message) == ("ARM_RAISED", True)


def test_a_miner_may_ask_for_every_case(sit: Sit, bundle: Write) -> None:
    """Wrong answers at several shapes are all told; the first one decides and is the only incident."""
    told: list[dict[str, object]] = []
    with sit(bundle(HONEST + "    if out.shape[0] > 20: out.mul_(2)\n"), emit=told.append) as bench:
        receipt = Correctness(every_case=True).run(bench)
    cases = [event for event in told if event["event"] == "stage"]
    assert [event["index"] for event in cases] == list(range(len(bench.cases)))
    wrong = [event for event in cases if event["kind"]]
    assert len(wrong) > 1
    worst = re.compile(r"row=\d+ (.* )?column=\d+ expected=\S+ got=\S+ bound=\S+")
    assert all(worst.search(str(event["detail"])) for event in wrong)
    assert str(wrong[0]["detail"]) in receipt.message
    assert [incident.kind for incident in bench.findings.incidents] == ["wrong_output"]


@pytest.mark.quiet
def test_a_clearly_slower_kernel_fails_the_short_measurement(sit: Sit, bundle: Write, tmp_path: Path) -> None:
    """As many launches as can decide are enough to say so, and the receipt holds bounds and an estimate.

    Other work on the core may leave a measurement undecided; it is made again until one decides, and that one is right.
    """
    slow = bundle(HONEST + 20 * HONEST.splitlines(keepends=True)[-1])
    decision = "undecided"
    while decision == "undecided":
        with sit(slow, arena=write_arena(tmp_path, launches=10)) as bench:
            receipt = Speed(short=True).run(bench)
        decision = receipt.facts["decision"]
    assert (receipt.outcome, receipt.code, receipt.blame) == ("failed", "NOT_FASTER", "miner")
    facts = {name: value for name, value in receipt.facts.items() if isinstance(value, int)}
    assert facts["upper_ppm"] <= facts["needed_ppm"] == 1_050_000
    assert facts["estimate_ppm"] < 1_000_000
    assert decision == "not_faster"
    assert bench.findings.incidents == []


def test_a_broken_incumbent_decides_nothing(sit: Sit, bundle: Write) -> None:
    """The candidate is not charged with it."""
    broken = bundle("def silu_and_mul(x, out):\n    out.zero_()\n")
    with sit(EXAMPLES / "silu_fast", against=broken) as bench:
        receipt = Speed(short=True).run(bench)
    assert (receipt.outcome, receipt.code, receipt.blame) == ("undecided", "BASELINE_FAILED", "internal")
    assert receipt.ends


def test_the_same_seed_asks_the_same_questions(sit: Sit) -> None:
    """Hidden shapes and inputs follow from the seed; another seed asks others."""

    def told(seed: bytes) -> list[dict[str, object]]:
        events: list[dict[str, object]] = []
        with sit(EXAMPLES / "silu_fast", seed=seed, emit=events.append) as bench:
            Correctness().run(bench)
        return [event for event in events if event["event"] == "stage"]

    first = told(bytes(32))
    assert first == told(bytes(32))
    assert first != told(b"\1" * 32)


def test_an_attempt_is_made_of_the_same_screens(tmp_path: Path, arena: str, bundle: Write, fork_server: Zygote) -> None:
    """The failed screen of an attempt has the code of the attempt's verdict."""
    reference = describe_bundle(bundle(HONEST.replace("out.copy_(", "out.copy_(2 * ")), tmp_path / "r.json")
    docket = open_docket(make_request(reference, arena))
    measured = measure_docket(docket, lambda event: None, fork_server)
    assert [screen.name for screen in ATTEMPT_SCREENS] == ["build", "abi", "correctness", "graph", "speed"]
    assert [receipt.screen for receipt in measured.receipts] == ["build", "abi", "correctness"]
    assert measured.receipts[-1].code == grade(measured.attempt, load_arena(arena)).code == "WRONG_OUTPUT"
    assert measured.receipts[-1].message == grade(measured.attempt, load_arena(arena)).reason
