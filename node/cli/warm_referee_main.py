"""The process behind `node.cli.warm_referee`: import, fork the fork server off, read one request, judge, end.

Invariants
1. Until the fork server is forked off, nothing is read from the channel.
2. Standard output carries the messages; what anything else prints there goes to standard error.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from typing import BinaryIO

import msgspec

from config.errors import CacheonError
from node.cli.warm_referee import message_of
from qualify.arm_server import PRELOAD
from qualify.sandbox import syscalls
from qualify.sandbox.client import Zygote


def main(parent: int) -> None:
    """Serve one request of process `parent`."""
    syscalls.set_process_name(b"cacheon-referee")
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is for the parent, who ends us in order
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    _import_everything()
    try:
        server = Zygote.fork_off(PRELOAD)
    except CacheonError as error:
        _send(out, message_of(error))
        return
    with server:
        signal.signal(signal.SIGTERM, _interrupt)
        try:
            _serve(server, out)
        except (KeyboardInterrupt, BrokenPipeError):
            return


def _import_everything() -> None:
    """Import what the fork server preloads and what judging needs; the fork server inherits it."""
    import torch  # noqa: F401 - imported for its effect

    import qualify.arm
    import qualify.docket
    import qualify.screens.abi
    import qualify.screens.bench
    import qualify.screens.correctness
    import qualify.screens.speed  # noqa: F401 - all of these too


def _serve(server: Zygote, out: BinaryIO) -> None:
    from node.cli.actions.examination import Asked, examine

    line = sys.stdin.buffer.readline()
    if not line:  # the bundle was refused before
        return
    try:
        result = examine(msgspec.json.decode(line, type=Asked), server, lambda event: _send(out, event))
    except CacheonError as error:
        _send(out, message_of(error))
    except (KeyboardInterrupt, BrokenPipeError):
        raise
    except Exception:  # noqa: BLE001 - the boundary of a process: a defect of ours is shown by the parent
        _send(out, {"defect": traceback.format_exc()})
    else:
        _send(out, {"result": msgspec.to_builtins(result)})


def _send(out: BinaryIO, message: dict[str, object]) -> None:
    view = memoryview(msgspec.json.encode(message) + b"\n")
    while view:
        view = view[out.write(view) :]


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt
