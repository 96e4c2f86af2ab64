"""The attempt process: events on stdout, evidence on disk, exit codes a supervisor can act on."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from qualify import attempt_main
from qualify.attempt_main import write_attempt
from qualify.request import AttemptRequest, encode_request
from scoring.attempt import attempt_digest, read_attempt
from tests.qualify.support import EXAMPLES, describe_bundle, make_request, write_arena

ROOT = Path(__file__).resolve().parents[2]


def start(request: AttemptRequest, folder: Path) -> subprocess.Popen[bytes]:
    """Start one attempt process."""
    path = folder / "request.json"
    path.write_bytes(encode_request(request))
    command = [sys.executable, "-m", "qualify.attempt_main", "--request", str(path), "--out", str(folder / "out")]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def finish(process: subprocess.Popen[bytes]) -> tuple[int, list[dict[str, Any]], bytes]:
    """Return exit status, events and log of a process."""
    out, err = process.communicate(timeout=300)
    return process.returncode, [json.loads(line) for line in out.splitlines()], err


def test_a_finished_attempt_is_on_disk_under_its_digest(tmp_path: Path) -> None:
    """Exit 0, the seed's commitment first, the file last; the digest is that of the uncompressed bytes."""
    request = make_request(describe_bundle(EXAMPLES / "silu_fast", tmp_path / "r.json"), write_arena(tmp_path))
    status, events, log = finish(start(request, tmp_path))
    assert (status, log) == (0, b"")
    assert [events[0]["event"], events[-1]["event"]] == ["sealed", "done"]
    path = Path(events[-1]["path"])
    data = gzip.decompress(path.read_bytes())
    assert path.name == f"{events[-1]['digest']}.json.gz"
    assert attempt_digest(data) == events[-1]["digest"]
    assert read_attempt(data).attempt_id == request.attempt_id
    assert [item.name for item in path.parent.iterdir()] == [path.name]


TELL_TALE = """
with open("/proc/self/mountinfo") as file:
    [place] = [line.split()[3] for line in file if " /engine/" in line]
raise RuntimeError(place)
"""


def test_an_arm_does_not_learn_whose_attempt_it_is_in(tmp_path: Path) -> None:
    """The mount table shows where on the host a bundle lies; neither attempt nor request are named there."""
    bundle = tmp_path / "bundle"
    shutil.copytree(EXAMPLES / "silu_fast", bundle)
    source = next((bundle / "kernels").glob("*.py"))
    source.write_text(TELL_TALE + source.read_text())
    request = make_request(describe_bundle(bundle, tmp_path / "r.json"), write_arena(tmp_path))
    out = tmp_path / "attempts" / request.attempt_id
    path = tmp_path / "request.json"
    path.write_bytes(encode_request(request))
    command = [sys.executable, "-m", "qualify.attempt_main", "--request", str(path), "--out", str(out)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    written = Path(json.loads(ran.stdout.splitlines()[-1])["path"])
    attempt = read_attempt(gzip.decompress(written.read_bytes()))
    assert "/trees-" in attempt.incidents[0].detail
    assert request.attempt_id not in attempt.incidents[0].detail
    assert [item.name for item in out.parent.iterdir()] == [request.attempt_id]


def test_an_arena_that_does_not_exist_is_a_usage_error(tmp_path: Path) -> None:
    """Exit 2 and one error event with a code."""
    request = make_request(describe_bundle(EXAMPLES / "silu_fast", tmp_path / "r.json"), "no-such-arena")
    status, events, _ = finish(start(request, tmp_path))
    assert status == 2
    assert events[-1]["error"]["code"] == "ARENA_NOT_FOUND"
    assert not (tmp_path / "out").exists()


def test_a_core_that_does_not_exist_is_the_hosts_fault(tmp_path: Path) -> None:
    """Exit 6: the node retries elsewhere or parks, the miner is not blamed."""
    request = make_request(describe_bundle(EXAMPLES / "silu_fast", tmp_path / "r.json"), write_arena(tmp_path))
    status, events, _ = finish(start(msgspec.structs.replace(request, arm_cores=(4095,)), tmp_path))
    assert status == 6
    assert events[-1]["error"]["code"] == "ARM_CORE_UNAVAILABLE"


def test_a_stopped_attempt_leaves_nothing(tmp_path: Path) -> None:
    """SIGTERM ends the process at once with exit 130, without evidence and without children."""
    arena = write_arena(tmp_path, launches=200)
    request = make_request(describe_bundle(EXAMPLES / "silu_fast", tmp_path / "r.json"), arena)
    process = start(request, tmp_path)
    assert process.stdout is not None
    while b'"launch"' not in process.stdout.readline():
        pass
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    process.send_signal(signal.SIGTERM)
    status, events, _ = finish(process)
    assert status == 130
    assert events[-1]["error"]["code"] == "ATTEMPT_STOPPED"
    assert not (tmp_path / "out").exists()
    assert children
    for pid in children:
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)


def test_our_own_defects_are_reported_without_their_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An unexpected exception becomes one error event and exit 1."""

    def broken(*_: object) -> None:
        raise RuntimeError("secret detail")

    path = tmp_path / "request.json"
    path.write_bytes(
        encode_request(make_request(describe_bundle(EXAMPLES / "silu_fast", tmp_path / "r.json"), "cpu-small"))
    )
    monkeypatch.setattr(attempt_main, "run_attempt", broken)
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert attempt_main.main(["--request", str(path), "--out", str(tmp_path / "out")]) == 1
    finally:
        signal.signal(signal.SIGTERM, before)
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "REFEREE_FAILED"
    assert "secret" not in error["message"]


def test_evidence_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    """The same bytes twice give the same file; an unwritable folder is a host error."""
    first = write_attempt(tmp_path / "a", "d" * 64, b"{}")
    assert write_attempt(tmp_path / "a", "d" * 64, b"{}") == first
    assert gzip.decompress(first.read_bytes()) == b"{}"
    assert [item.name for item in first.parent.iterdir()] == [first.name]
    (tmp_path / "file").write_text("")
    with pytest.raises(attempt_main.HostError) as caught:
        write_attempt(tmp_path / "file", "d" * 64, b"{}")
    assert caught.value.code == "ATTEMPT_NOT_WRITTEN"
