"""A referee in a process of its own that shares one import of torch with its arms, for `cacheon verify`.

An import of torch takes longer than everything that is asked of a small bundle, and an attempt needs two: one for the
referee, one for the fork server of its arms. Here one process imports it, forks the fork server off itself, and is the
referee from then on. It starts before anything is known about the bundle, so that it warms up beside the intake.

Invariants
1. The process is an exec of its own with an empty environment. It hears about the bundle after the fork, so that
   nothing of it, and no seed, is in memory that arms inherit.
2. One line of JSON goes in; out come events, then one result or one error, a line each. It never writes elsewhere.
3. It ends with this process, whichever way that ends, and takes its arms with it.
4. For a miner's own checks only. An attempt's referee shares no memory layout with the arms it judges.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from config.errors import Blame, CacheonError, ConfigurationError, HostError, InternalError, SourceLocation
from qualify.sandbox.closing import Closing

if TYPE_CHECKING:
    from node.cli.actions.examination import Asked, Examination
    from qualify.screens.base import Emit

_BOOT = """
import json, sys
sys.path[:], parent = json.loads(sys.argv[1])
from node.cli.warm_referee_main import main
main(parent)
"""
_END_SECONDS = 30.0
_LOG_BYTES = 4096
_FAMILIES = {one.__name__: one for one in (ConfigurationError, HostError, InternalError)}


class WarmReferee(Closing):
    """The process. Leaving its `with` block ends it and every arm."""

    def __init__(self) -> None:
        """Start it; it is not warm yet. Raises `HostError` (SANDBOX_ZYGOTE_FAILED)."""
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        path = [root, *(entry for entry in sys.path if os.path.isabs(entry) and entry != root)]
        self._errors = os.memfd_create("referee-errors", os.MFD_CLOEXEC)
        command = [sys.executable, "-I", "-c", _BOOT, json.dumps([path, os.getpid()])]
        try:
            self._process = subprocess.Popen(
                command,
                env={},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                start_new_session=True,
                cwd="/",
            )
        except OSError as error:
            os.close(self._errors)
            raise HostError("SANDBOX_ZYGOTE_FAILED", f"the referee could not start: {error}") from error

    def examine(self, asked: Asked, progress: Emit) -> Examination:
        """Run the screens there. Raises what `node.cli.actions.examination.examine` raises."""
        import msgspec

        from node.cli.actions.examination import Examination

        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise self._gone()
        try:
            stdin.write(msgspec.json.encode(asked) + b"\n")
            stdin.close()
        except OSError:
            raise self._gone() from None
        for line in stdout:
            message: dict[str, Any] = json.loads(line)
            if "result" in message:
                return msgspec.convert(message["result"], Examination)
            if "error" in message:
                raise error_of(message)
            if "defect" in message:
                raise RuntimeError(message["defect"])
            progress(message)
        raise self._gone()

    def close(self) -> None:
        """End it; safe to call more than once."""
        process = self._process
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:  # what was not sent has no reader any more
                    continue
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if self._errors >= 0:
            os.close(self._errors)
            self._errors = -1

    def _gone(self) -> HostError:
        size = os.fstat(self._errors).st_size
        text = os.pread(self._errors, _LOG_BYTES, max(0, size - _LOG_BYTES)).decode("utf-8", "replace").strip()
        why = text.splitlines()[-1] if text else "it ended without a word"
        return HostError(
            "SANDBOX_ZYGOTE_FAILED",
            f"the process that judges and starts arms failed: {why}",
            hint="Run `cacheon doctor`; torch and numpy must import in this environment.",
        )


def message_of(error: CacheonError) -> dict[str, object]:
    """Return the message that tells of `error`: its document, and the family that decides the exit code."""
    document = {name: getattr(error.to_document(), name) for name in ("code", "message", "hint", "blame", "location")}
    family = next((one.__name__ for one in type(error).__mro__ if one.__name__ in _FAMILIES), InternalError.__name__)
    return {"error": document, "family": family}


def error_of(message: dict[str, Any]) -> CacheonError:
    """Return the error that a message of `message_of` tells of."""
    document, place = message["error"], message["error"]["location"]
    return _FAMILIES[message["family"]](
        document["code"],
        document["message"],
        hint=document["hint"],
        blame=Blame(document["blame"]),
        location=SourceLocation.read(place) if place else None,
    )
