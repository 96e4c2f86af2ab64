"""Start of the fork server process: warm up, check, serve.

Invariants
1. The process is its own exec with an empty environment and holds one socket; a child inherits a copy of this memory,
   so nothing secret may ever be loaded here.
2. It is single-threaded after the preload, or it refuses to serve.
3. Every failure is reported to the client as a code and a sentence before the process ends.
"""

from __future__ import annotations

import gc
import importlib
import os
import resource
import signal
import socket
import sys
from typing import NoReturn

from qualify.sandbox import syscalls
from qualify.sandbox.entries import ENTRIES
from qualify.sandbox.fork_server import ForkServer
from qualify.sandbox.huge_pages import collapse_own_memory
from qualify.sandbox.layers import LayerMissing
from qualify.sandbox.root_filesystem import automatic_roots
from qualify.sandbox.seccomp import FilterProfile, build_filter
from qualify.sandbox.stage import BASE_ENVIRONMENT
from qualify.sandbox.verify import CHILD_PID
from qualify.sandbox.wire import Started, StartFailed, ZygoteConfig, send


def main(config: ZygoteConfig) -> None:
    """Serve until the client is gone. The exit status is 0 after a start and 1 after a failed one."""
    control = socket.socket(fileno=config.control_descriptor)
    control.set_inheritable(False)
    client_pidfd = os.pidfd_open(config.client_pid)
    if os.getppid() != config.client_pid:
        sys.exit(1)
    try:
        server = _prepare(config, control, client_pidfd)
    except LayerMissing as missing:
        _fail(control, "SANDBOX_LAYER_MISSING", str(missing))
    except Exception as error:  # noqa: BLE001 - boundary of a process: a preloaded module may raise anything
        _fail(control, "SANDBOX_ZYGOTE_FAILED", f"{type(error).__name__}: {error}")
    threads = len(os.listdir("/proc/self/task"))
    if threads != 1:
        _fail(control, "SANDBOX_ZYGOTE_THREADS", f"{threads} threads are running after {', '.join(config.preload)}")
    send(control, Started(os.getpid()))
    server.serve()


def _prepare(config: ZygoteConfig, control: socket.socket, client_pidfd: int) -> ForkServer:
    syscalls.set_process_name(b"cacheon-zygote")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is for the client, who ends us in order
    os.umask(0o077)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    os.environ.clear()
    os.environ.update(BASE_ENVIRONMENT)
    for module in config.preload:
        importlib.import_module(module)
    roots = automatic_roots(config.project_root)
    for profile in FilterProfile:
        build_filter(CHILD_PID, profile)
    gc.collect()
    gc.freeze()  # children share these pages: a collection in a child must not touch and so copy them
    collapse_own_memory()
    entries = {**ENTRIES, **config.entries}
    return ForkServer(control, client_pidfd, roots, entries, ablation=config.ablation)


def _fail(control: socket.socket, code: str, reason: str) -> NoReturn:
    send(control, StartFailed(code, reason[:2000]))
    sys.exit(1)
