"""The referee process of `cacheon verify`: one import of torch, errors that keep their family, and no trace left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from config.errors import Blame, ConfigurationError, HostError, SourceLocation
from node.cli import warm_referee
from node.cli.actions.examination import Asked
from node.cli.warm_referee import WarmReferee, error_of, message_of
from qualify.request import AttemptRequest, BundleRef
from qualify.sandbox.client import SandboxRefused
from qualify.sandbox.outcome import Outcome, OutcomeKind
from scoring.attempt import Reservation
from tests.node.cli.conftest import plain_environment

SILU = str(Path(__file__).parents[3] / "examples" / "silu_fast")
PATIENCE_SECONDS = 120


def _asked(target: str = "no.such.target") -> Asked:
    nowhere = BundleRef("0" * 64, "/nowhere", "/nowhere")
    request = AttemptRequest("verify", "primary", target, "cpu-small", nowhere, Reservation(0, 0, "local"))
    return Asked(request, "/nowhere", "seed")


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += [int(child), *_children(int(child))]
    return found


def _wait_for_the_end(pids: list[int]) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < until:
        time.sleep(0.05)
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_what_does_not_fit_is_refused_there_and_raised_here() -> None:
    """The error of the other process arrives with its code; both processes are gone afterwards."""
    events: list[dict[str, object]] = []
    with WarmReferee() as referee:
        pid = referee._process.pid
        with pytest.raises(ConfigurationError, match="does not judge target") as caught:
            referee.examine(_asked(), events.append)
    assert caught.value.code == "TARGET_NOT_MEASURABLE"
    assert caught.value.hint
    assert events == []
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize(
    "error",
    [
        ConfigurationError("USAGE", "one", hint="two", blame=Blame.MINER, location=SourceLocation("a.py", 3)),
        HostError("ARM_CORE_BUSY", "one"),
        SandboxRefused(Outcome(OutcomeKind.REFUSED, layer="seccomp", detail="no")),
    ],
)
def test_an_error_keeps_its_family_on_the_way(error: ConfigurationError | HostError) -> None:
    """Code, words, blame, place and exit code are those of the error that was raised."""
    told = error_of(message_of(error))
    assert told.to_document() == error.to_document()
    assert told.exit_code == error.exit_code


def test_a_referee_that_cannot_import_is_the_hosts_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last line of its traceback is quoted."""
    monkeypatch.setattr(warm_referee, "_BOOT", "import no_such_module_anywhere")
    with WarmReferee() as referee, pytest.raises(HostError, match="no_such_module_anywhere") as caught:
        referee.examine(_asked(), print)
    assert caught.value.code == "SANDBOX_ZYGOTE_FAILED"


def test_a_referee_that_is_not_asked_ends_quietly() -> None:
    """A refused bundle needs no referee; closing twice changes nothing."""
    referee = WarmReferee()
    referee.close()
    referee.close()
    assert not Path(f"/proc/{referee._process.pid}").exists()


@pytest.mark.usefixtures("listens")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_command_that_is_stopped_takes_everything_with_it(tmp_path: Path, number: signal.Signals) -> None:
    """No process survives any signal, no file one that can be heard; and none of them saw the command's environment."""
    command = [sys.executable, "-m", "node.cli.main", "verify", SILU, "--shapes", "num_tokens=2048,d=4096"]
    environment = plain_environment(TMPDIR=str(tmp_path), TOKEN_OF_MINE="secret")
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert any(line.startswith("build:") for line in process.stderr)
        children = _children(process.pid)
        told = [pid for pid in children if b"TOKEN_OF_MINE" in Path(f"/proc/{pid}/environ").read_bytes()]
        process.send_signal(number)
        code = process.wait(PATIENCE_SECONDS)
    assert children
    assert told == [], "an arm inherits its fork server's environment"
    _wait_for_the_end(children)
    if number == signal.SIGKILL:
        assert code == -signal.SIGKILL
    else:
        assert code == 130
        assert os.listdir(tmp_path) == []
