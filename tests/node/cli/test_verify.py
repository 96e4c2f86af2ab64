"""`cacheon verify` and `cacheon bench`: what a validator will do, on the miner's own machine."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

from config.errors import HostError
from config.target_catalog import load_catalog
from intake.package import package_bundle
from node.cli import bench_stand, main
from node.cli.actions import verify
from qualify.arm_server import start_arm_server
from qualify.engine_tree import EngineTree, Part
from qualify.sandbox.client import Zygote
from qualify.screens.base import encode_receipt, read_receipt
from tests.node.cli.conftest import Ran, plain_environment
from tests.node.cli.referees import judge_inside
from tests.qualify.support import write_arena

if TYPE_CHECKING:
    from tests.node.cli.conftest import RunCli

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
SILU = str(EXAMPLES / "silu_fast")
SCREENS = ["static", "build", "abi", "correctness", "graph"]


@pytest.fixture(scope="module")
def arms() -> Iterator[Zygote]:
    """One fork server of arms for all commands that run inside the test process."""
    with start_arm_server() as server:
        yield server


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arms: Zygote) -> RunCli:
    """Run `cacheon ARGUMENTS...` in this process."""
    judge_inside(monkeypatch, arms)

    def run(*arguments: str, env: dict[str, str] | None = None) -> Ran:
        for name, text in (env or {}).items():
            monkeypatch.setenv(name, text)
        code = main.run(arguments)
        out, err = capsys.readouterr()
        return Ran(code, out, err)

    return run


@pytest.fixture
def arena(tmp_path: Path) -> str:
    """A tiny arena of two launches."""
    return write_arena(tmp_path)


@pytest.fixture
def edited(tmp_path: Path) -> Callable[[str], str]:
    """Copy silu_fast with another kernel and return its folder."""

    def edit(kernel: str) -> str:
        tree = tmp_path / "bundle"
        shutil.copytree(SILU, tree)
        (tree / "kernels" / "silu_and_mul.py").write_text(kernel)
        return str(tree)

    return edit


def test_a_good_bundle_passes_with_every_case_told(cli: RunCli, arena: str, tmp_path: Path) -> None:
    """One line of JSON with receipts, cases and the seed; standard error stays silent and nothing is left behind."""
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    ran = cli("verify", SILU, "--arena", arena, "--json", env={"TMPDIR": str(scratch)})
    assert (ran.code, ran.err) == (0, "")
    assert ran.document["schema"] == "cacheon.verify.v1"
    data = ran.document["data"]
    assert data["passed"] is True
    assert [receipt["screen"] for receipt in data["screens"]] == SCREENS
    for receipt in data["screens"]:
        canonical = json.dumps(receipt, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
        assert encode_receipt(read_receipt(canonical)) == canonical
    assert data["cases"]
    assert all(case["code"] == "" and 0 <= case["worst_ppm"] <= 1_000_000 for case in data["cases"])
    assert data["seed"]
    assert "no promise" in data["notice"]
    assert list(scratch.iterdir()) == []


def test_a_wrong_kernel_is_told_where_and_how_wrong_it_is(inside: RunCli, arena: str) -> None:
    """The table names the screen and its code, every wrong case its worst element; the exit code is 3."""
    ran = inside("verify", str(EXAMPLES / "silu_wrong"), "--arena", arena)
    assert ran.code == 3
    assert ran.out.count("bound=") > 2
    row = next(line for line in ran.out.splitlines() if line.strip().startswith("correctness "))
    assert row.split()[1] == "FAIL"
    assert "hint:" in ran.out
    assert "speed" not in ran.out
    assert "correctness: failed" in ran.err
    assert "no promise" in ran.err


def test_what_raises_is_told_with_file_and_line(inside: RunCli, arena: str, edited: Callable[[str], str]) -> None:
    """A miner sees the place in the bundle, not the place in ours."""
    bundle = edited("def silu_and_mul(x, out):\n    raise ValueError('odd width')\n")
    ran = inside("verify", bundle, "--arena", arena, "--json")
    assert ran.code == 3
    last = ran.document["data"]["screens"][-1]
    assert (last["screen"], last["code"]) == ("abi", "ARM_RAISED")
    assert "kernels/silu_and_mul.py:2: ValueError: odd width" in last["message"]


def test_what_scan_refuses_never_runs(inside: RunCli, edited: Callable[[str], str]) -> None:
    """Findings with file, line and hint; no other screen has a row."""
    ran = inside("verify", edited("import subprocess\nreader = open\n"))
    assert ran.code == 3
    assert "kernels/silu_and_mul.py:1: " in ran.out
    assert "[SCAN_IMPORT]" in ran.out
    assert "[SCAN_NAME]" in ran.out
    assert "abi" not in ran.out


def test_an_archive_is_run_at_the_shapes_asked_for(inside: RunCli, arena: str, tmp_path: Path) -> None:
    """The packed bundle goes the same way; shapes, dtype and incumbent are those of the command line."""
    archive = package_bundle(Path(SILU), tmp_path / "a.tar.gz")
    options = ("--shapes", "num_tokens=3,d=64; num_tokens=5,d=32", "--dtype", "float32", "--seed", "mine", "--speed")
    against = ("--against", str(EXAMPLES / "silu_slow"), "--slot", "activation.silu_and_mul")
    ran = inside("verify", str(archive.path), "--arena", arena, *options, *against, "--json")
    data = ran.document["data"]
    assert (ran.code, data["content_hash"]) == (0, archive.content_hash)
    assert {tuple(case["shape"].values()) for case in data["cases"]} == {(3, 64), (5, 32)}
    assert len({case["inputs"] for case in data["cases"]}) > 1
    assert (data["dtype"], data["seed"]) == ("float32", "mine")
    crowned = package_bundle(EXAMPLES / "silu_slow", tmp_path / "b.tar.gz").content_hash
    stack = EngineTree.of(load_catalog(), [Part("activation.silu_and_mul", crowned)])
    assert data["incumbent_digest"] == stack.digest
    speed = data["screens"][-1]
    assert (speed["screen"], speed["facts"]["launches"]) == ("speed", 2)


@pytest.mark.parametrize(
    ("options", "code", "exit_code"),
    [
        (("--shapes", "num_tokens=0,d=4"), "VERIFY_CHOICE_INVALID", 2),
        (("--shapes", ";"), "VERIFY_CHOICE_INVALID", 2),
        (("--shapes", f"num_tokens={'9' * 5000},d=4"), "VERIFY_CHOICE_INVALID", 2),
        (("--shapes", "num_tokens=\u00b2,d=4"), "VERIFY_CHOICE_INVALID", 2),
        (("--shapes", "num_tokens=4"), "VERIFY_CHOICE_INVALID", 2),
        (("--slot", "norm.rmsnorm"), "VERIFY_CHOICE_INVALID", 2),
        (("--target", "norm.rmsnorm"), "VERIFY_CHOICE_INVALID", 2),
        (("--dtype", "int3"), "VERIFY_CHOICE_INVALID", 2),
        (("--against", str(EXAMPLES / "rmsnorm_fast")), "INCUMBENT_REFUSED", 2),
        (("--arena", "no-such-arena"), "ARENA_NOT_FOUND", 2),
        (("--device", "abacus"), "VERIFY_CHOICE_INVALID", 2),
        (("--device", "cuda:"), "VERIFY_CHOICE_INVALID", 2),
        (("--device", "cuda"), "DEVICE_UNAVAILABLE", 6),
        (("--device", "cuda:1"), "DEVICE_UNAVAILABLE", 6),
    ],
)
def test_options_that_do_not_fit_are_one_error(
    inside: RunCli, options: tuple[str, ...], code: str, exit_code: int
) -> None:
    """The command line is at fault, not the bundle."""
    ran = inside("verify", SILU, *options, "--json")
    assert (ran.code, ran.document["error"]["code"]) == (exit_code, code)


@pytest.mark.parametrize(("driver", "words"), [(False, "no NVIDIA driver is loaded"), (True, "this release runs no")])
def test_a_device_that_cannot_be_used_says_why_and_what_can_be_done(
    inside: RunCli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, driver: bool, words: str
) -> None:
    """With and without a device in the machine; the hint names what is checked without one."""
    file = tmp_path / "version"
    if driver:
        file.touch()
    monkeypatch.setattr(verify, "_DRIVER", file)
    error = inside("verify", SILU, "--device", "cuda", "--json").document["error"]
    assert (error["code"], error["blame"]) == ("DEVICE_UNAVAILABLE", "operator")
    assert words in error["message"]
    assert "'cuda'" in error["message"]
    assert "--device cpu" in error["hint"]


def test_a_machine_that_is_not_ready_is_not_the_bundles_fault(inside: RunCli, arena: str) -> None:
    """Exit code 6, and no verdict."""
    ran = inside("verify", SILU, "--arena", arena, "--json", env={"CACHEON_QUALIFY__ARM_CORES": "4095"})
    assert (ran.code, ran.document["error"]["code"]) == (6, "ARM_CORE_UNAVAILABLE")


def test_a_sandbox_that_cannot_be_had_is_the_hosts_matter(
    inside: RunCli, monkeypatch: pytest.MonkeyPatch, arena: str, tmp_path: Path
) -> None:
    """The missing layer's own error is shown, and nothing is left in the temporary folder."""

    def refused() -> NoReturn:
        raise HostError("SANDBOX_LAYER_MISSING", "no user namespaces")

    monkeypatch.setattr(bench_stand, "start_arm_server", refused)
    monkeypatch.setattr(verify, "WarmReferee", refused)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for command in ("verify", "bench"):
        ran = inside(command, SILU, "--arena", arena, "--json")
        assert (ran.code, ran.document["error"]["code"]) == (6, "SANDBOX_LAYER_MISSING")
    assert not list(tmp_path.glob("cacheon-stand-*"))


def test_a_bundle_that_is_not_there_is_one_error(inside: RunCli, tmp_path: Path) -> None:
    """Both commands say so in the same words, also for a name that is no text and for a pipe nobody writes to."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for command, bundle in (("verify", "nowhere"), ("bench", "no\udcffwhere"), ("verify", str(pipe))):
        assert inside(command, bundle, "--json").document["error"]["code"] == "BUNDLE_FOLDER_MISSING"


def test_a_bench_is_graded_as_an_attempt_and_can_be_graded_again(inside: RunCli, arena: str, tmp_path: Path) -> None:
    """The kept file regrades to the same verdict and exit code; every launch is a sample in the plot."""
    ran = inside("bench", SILU, "--arena", arena, "--out", str(tmp_path / "kept"), "--json")
    data = ran.document["data"]
    assert [receipt["screen"] for receipt in data["screens"]] == [*SCREENS, "speed"]
    assert [sample["launch"] for sample in data["samples"]] == [0, 1]
    again = inside("regrade", data["attempt_path"], "--arena", arena, "--json")
    assert again.code == ran.code
    for name in ("outcome", "code", "lower_ppm", "upper_ppm", "reason"):
        assert again.document["data"][name] == data[name]
    assert again.document["data"]["digest"] == data["attempt_digest"]


def test_a_bench_of_a_faulty_bundle_fails_with_its_code(inside: RunCli, arena: str) -> None:
    """The verdict is the validator's; nothing is kept that was not asked for."""
    ran = inside("bench", str(EXAMPLES / "silu_late"), "--arena", arena)
    assert ran.code == 3
    assert "FAIL LATE_WRITE" in ran.out
    assert "not kept" in ran.out


def test_a_bench_needs_a_folder_it_can_write_before_it_measures(inside: RunCli, tmp_path: Path) -> None:
    """Nobody waits for a measurement that cannot be kept."""
    (tmp_path / "file").touch()
    ran = inside("bench", SILU, "--out", str(tmp_path / "file"), "--json")
    assert (ran.code, ran.document["error"]["code"]) == (6, "ATTEMPT_NOT_WRITTEN")


@pytest.mark.usefixtures("listens")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_bench_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    """No process of its session and no file survive; the exit code is 130."""
    command = [sys.executable, "-m", "node.cli.main", "bench", SILU]
    environment = plain_environment(TMPDIR=str(tmp_path))
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("speed: launch 1 "):
                break
        children = _descendants(process.pid)
        process.send_signal(number)
        assert process.wait(120) == 130
    assert children
    until = time.monotonic() + 120
    while any(Path(f"/proc/{pid}").exists() for pid in children) and time.monotonic() < until:
        time.sleep(0.05)
    assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]
    assert list(tmp_path.iterdir()) == []


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    for task in os.listdir(f"/proc/{pid}/task"):
        for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split():
            found += [int(child), *_descendants(int(child))]
    return found


@pytest.mark.parametrize(
    ("example", "shape", "nearest"),
    [
        ("attention_blocks", "num_tokens=4,num_q_heads=3,num_kv_heads=2,head_dim=8,causal=1", "num_q_heads=4"),
        ("attention_blocks", "num_tokens=4,num_q_heads=2,num_kv_heads=2,head_dim=8,causal=7", "causal=1"),
        ("experts_sorted", "num_tokens=4,num_experts=2,hidden=8,inter=4,topk=3", "topk=2"),
        ("finalize_narrow", "num_tokens=5,exp_tokens=4,topk=2,hidden=64", "exp_tokens=5"),
    ],
)
def test_a_shape_that_no_call_has_comes_with_the_nearest(
    inside: RunCli, example: str, shape: str, nearest: str
) -> None:
    """Extents that do not fit each other are the command line's fault, and nothing of ours breaks."""
    ran = inside("verify", str(EXAMPLES / example), "--shapes", shape, "--json")
    assert (ran.code, ran.document["error"]["code"]) == (2, "VERIFY_CHOICE_INVALID")
    assert nearest in ran.document["error"]["message"].rpartition("nearest is")[2].split()


def test_a_flag_of_a_shape_may_be_nought(inside: RunCli) -> None:
    """Attention without a mask can be asked for."""
    shape = "num_tokens=4,num_q_heads=2,num_kv_heads=2,head_dim=8,causal=0"
    ran = inside("verify", str(EXAMPLES / "attention_blocks"), "--shapes", shape, "--json")
    assert ran.code == 0
    assert {case["shape"]["causal"] for case in ran.document["data"]["cases"]} == {0}
