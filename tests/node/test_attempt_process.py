"""The attempt process: minimal surroundings, and nothing but checked evidence comes back."""

from __future__ import annotations

import asyncio
import gzip
import os
import signal
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from config.canonical import sha256_hex
from config.settings import LogSettings
from node import logs
from node.services import attempt_process
from node.services.attempt_process import AttemptFaultError, Evidence, run_attempt
from qualify.request import AttemptRequest, BundleRef, read_request
from scoring.attempt import Reservation, encode_attempt
from tests.node.support import until
from tests.scoring.support import FakeReferee, digest, make_arena

ATTEMPT = FakeReferee(make_arena()).measure()
DATA = encode_attempt(ATTEMPT)

PREAMBLE = """
import json, os, pathlib, sys, time
request, out = pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[4])
def say(**event): print(json.dumps(event), flush=True)
def write(name): (out / name).write_bytes(pathlib.Path({data!r}).read_bytes())
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """Replace the measuring program by a few lines."""
    stored = tmp_path / "attempt.json.gz"
    stored.write_bytes(gzip.compress(DATA))

    def install(body: str) -> None:
        script = tmp_path / "program.py"
        script.write_text(PREAMBLE.format(data=str(stored)) + body)
        monkeypatch.setattr(attempt_process, "_PROGRAM", (str(script),))

    return install


def request(**changes: object) -> AttemptRequest:
    """Return a request for exactly `ATTEMPT`."""
    fields: dict[str, object] = {
        "attempt_id": ATTEMPT.attempt_id,
        "role": "primary",
        "target_id": ATTEMPT.identity.target_id,
        "arena": "test",
        "candidate": BundleRef(ATTEMPT.identity.content_hash, "/bundle", "/report.json"),
        "reservation": Reservation(5, 1, "5Miner"),
    }
    return AttemptRequest(**{**fields, **changes})  # type: ignore[arg-type]


async def run(folder: Path, sealed: list[str], **keywords: object) -> Evidence:
    """Run the installed program."""

    async def on_sealed(commitment: str) -> None:
        sealed.append(commitment)

    deadline = keywords.pop("deadline_seconds", 30.0)
    return await run_attempt(
        request(**keywords),
        folder / "attempt",
        on_sealed=on_sealed,
        deadline_seconds=deadline,  # type: ignore[arg-type]
    )


SEALED = f'say(event="sealed", commitment="{ATTEMPT.seed.commitment}")\n'
DONE = f'write("x.json.gz"); say(event="done", path=str(out / "x.json.gz"), digest="{sha256_hex(DATA)}")\n'


async def test_evidence_comes_back(program, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """A finished attempt gives its checked document; the commitment is handed over before anything else."""
    program(SEALED + 'say(event="launch", index=2, lower_ppm=1, upper_ppm=None)\n' + DONE)
    sealed: list[str] = []
    evidence = await run(tmp_path, sealed)
    assert sealed == [ATTEMPT.seed.commitment]
    assert (evidence.digest, evidence.attempt) == (sha256_hex(DATA), ATTEMPT)
    assert read_request(tmp_path / "attempt" / "request.json") == request()


async def test_screens_are_logged_under_the_names_that_miners_see(program, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """One line per screen that is done, with its outcome and code."""
    failed = 'say(event="screen", screen="abi", outcome="failed", code="LOAD_FAILED")\n'
    program(SEALED + 'say(event="screen", screen="abi", outcome="started", code="")\n' + failed + DONE)
    logs.configure(LogSettings(level="info"))
    with capture_logs() as lines:
        await run(tmp_path, [])
    (line,) = [line for line in lines if line["event"] == "attempt.screen"]
    assert (line["screen"], line["outcome"], line["code"]) == ("abi", "failed", "LOAD_FAILED")


async def test_environment_is_minimal(
    program,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,  # type: ignore[no-untyped-def]
) -> None:
    """The process sees none of our variables, no open descriptors of ours and no input."""
    monkeypatch.setenv("CACHEON_SECRET", "x")
    handle = os.open(tmp_path, os.O_RDONLY)
    program(
        "(out / 'seen').write_text(json.dumps([sorted(os.environ), sorted(os.listdir('/proc/self/fd')),"
        " sys.stdin.read()]))\n" + SEALED + DONE
    )
    await run(tmp_path, [])
    os.close(handle)
    seen = (tmp_path / "attempt" / "seen").read_text()
    assert "CACHEON_SECRET" not in seen
    # 3 is the listing of /proc/self/fd itself.
    assert seen.split("], ", 1)[1] == '["0", "1", "2", "3"], ""]'


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("", "ATTEMPT_PROCESS_FAILED"),
        ("sys.exit(6)", "ATTEMPT_PROCESS_FAILED"),
        ("print('not json', flush=True)", "ATTEMPT_PROCESS_FAILED"),
        ("print('x' * 200000, flush=True)", "ATTEMPT_PROCESS_FAILED"),
        ('say(event="error", error={"code": "X", "message": "no cores"}); sys.exit(6)', "ATTEMPT_PROCESS_FAILED"),
        (SEALED + DONE + "sys.exit(1)", "ATTEMPT_PROCESS_FAILED"),
        (SEALED + 'say(event="done", path=str(out / "x.json.gz"), digest="0" * 64)', "EVIDENCE_REFUSED"),
        (
            SEALED + 'write("x.json.gz"); say(event="done", path=str(out / "x.json.gz"), digest="0" * 64)',
            "EVIDENCE_REFUSED",
        ),
        (SEALED + 'say(event="done", path="/etc/passwd", digest="0" * 64)', "EVIDENCE_REFUSED"),
        (
            SEALED + '(out / "x.json.gz").write_bytes(b"junk"); say(event="done", path=str(out / "x.json.gz"))',
            "EVIDENCE_REFUSED",
        ),
        (DONE, "EVIDENCE_REFUSED"),
        ('say(event="sealed", commitment="0" * 64)\n' + DONE, "EVIDENCE_REFUSED"),
    ],
    ids=[
        "silent",
        "exit",
        "noise",
        "endless line",
        "error",
        "bad exit",
        "no file",
        "wrong digest",
        "outside",
        "junk",
        "never sealed",
        "other commitment",
    ],
)
async def test_everything_else_is_our_fault(
    program,
    tmp_path: Path,
    body: str,
    code: str,  # type: ignore[no-untyped-def]
) -> None:
    """Whatever the process does wrong is a fault of ours with its own code, never a verdict."""
    program(body)
    with pytest.raises(AttemptFaultError) as caught:
        await run(tmp_path, [])
    assert caught.value.code == code


@pytest.mark.parametrize(
    "changes",
    [
        {"attempt_id": "other"},
        {"role": "reproduction", "previous_attempt": digest("x")},
        {"candidate": BundleRef(digest("other"), "/bundle", "/report.json")},
    ],
)
async def test_evidence_of_another_attempt_is_refused(
    program,
    tmp_path: Path,
    changes: dict[str, object],  # type: ignore[no-untyped-def]
) -> None:
    """A valid file that answers another request is not accepted."""
    program(SEALED + DONE)
    with pytest.raises(AttemptFaultError) as caught:
        await run(tmp_path, [], **changes)
    assert caught.value.code == "EVIDENCE_REFUSED"


async def test_deadline_kills_the_whole_group(program, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """A process that does not end is killed together with its children."""
    program("child = os.fork()\nif child: (out / 'pids').write_text(f'{os.getpid()} {child}')\ntime.sleep(600)\n")
    with pytest.raises(AttemptFaultError) as caught:
        await run(tmp_path, [], deadline_seconds=1.0)
    assert caught.value.code == "ATTEMPT_TIMED_OUT"
    await _gone((tmp_path / "attempt" / "pids").read_text().split())


async def test_a_stop_leaves_no_process(program, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """Cancelling an attempt kills its process group before the cancellation goes on."""
    program("(out / 'pids').write_text(str(os.getpid()))\ntime.sleep(600)\n")
    attempt = asyncio.create_task(run(tmp_path, []))
    marker = tmp_path / "attempt" / "pids"
    await until(lambda: marker.exists() and bool(marker.read_text()))
    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attempt
    assert not _alive(marker.read_text())


async def test_the_process_dies_with_the_node(program, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """When the node is killed, so is the process that measures."""
    program("(out / 'pids').write_text(str(os.getpid()))\ntime.sleep(600)\n")
    script = (
        "import asyncio, pathlib, sys\n"
        "from node.services import attempt_process\n"
        "from tests.node.test_attempt_process import run\n"
        f"attempt_process._PROGRAM = {attempt_process._PROGRAM!r}\n"
        f"asyncio.run(run(pathlib.Path({str(tmp_path)!r}), []))\n"
    )
    node = await asyncio.create_subprocess_exec(sys.executable, "-c", script)
    marker = tmp_path / "attempt" / "pids"
    await until(lambda: marker.exists() and bool(marker.read_text()))
    node.send_signal(signal.SIGKILL)
    await node.wait()
    await _gone([marker.read_text()])


async def _gone(pids: list[str]) -> None:
    """Wait until every process is dead (a zombie that nobody reaps counts as dead)."""
    assert pids
    await until(lambda: not any(map(_alive, pids)))


def _alive(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False
