"""Makes sure that a process which means to end does end, whatever thread or call is stuck.

Invariants
1. Python joins its threads at exit, so one thread in a call that never returns keeps a finished process alive for
   ever. Once armed, a timer of its own thread ends the process with `os._exit`; nothing can hold it up.
2. It first writes the stacks of all threads to standard error: what was stuck is what one wants to know.
3. The event loop is watched in the same way while the node runs: a loop that does not turn for `wedged_seconds`
   answers nobody, neither signals nor a watchdog of its own, so the process ends and its supervisor starts it again.
   Time during which the process itself was stopped does not count.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import os
import sys
import threading
from collections.abc import Iterator

from config.errors import ExitCode

STOP_SECONDS = 30.0  # from the wish to stop until the process is gone, come what may
WEDGED_SECONDS = 300.0
_LOOKS = 10  # looks of the watching thread in a row that must find the loop still


class ExitWatch:
    """Ends this process if it does not end by itself."""

    def __init__(self, *, stop_seconds: float = STOP_SECONDS, wedged_seconds: float = WEDGED_SECONDS) -> None:
        self._stop_seconds = stop_seconds
        self._wedged_seconds = wedged_seconds
        self._timer: threading.Timer | None = None

    def arm(self) -> None:
        """Give the process `stop_seconds` to end by itself; a second call changes nothing."""
        if self._timer is None:
            self._timer = threading.Timer(self._stop_seconds, _end, ("the process does not end by itself",))
            self._timer.daemon = True
            self._timer.start()

    @contextlib.contextmanager
    def watching_loop(self) -> Iterator[None]:
        """While inside, end the process when the running event loop stands still. Call it from that loop."""
        loop, pulse, over = asyncio.get_running_loop(), _Pulse(), threading.Event()
        pause = self._wedged_seconds / _LOOKS

        def beat() -> None:
            pulse.count += 1
            pulse.handle = loop.call_later(pause / 2, beat)

        beat()
        thread = threading.Thread(target=_look, args=(pulse, over, pause), name="exit-watch", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            if pulse.handle is not None:
                pulse.handle.cancel()
            thread.join()


class _Pulse:
    count = 0
    handle: asyncio.TimerHandle | None = None


def _look(pulse: _Pulse, over: threading.Event, pause: float) -> None:
    seen, still = -1, 0
    while not over.wait(pause):
        still = still + 1 if pulse.count == seen else 0
        seen = pulse.count
        if still >= _LOOKS:
            _end("the event loop stands still")


def _end(why: str) -> None:
    with contextlib.suppress(Exception):  # a broken stderr must not keep it
        os.write(sys.stderr.fileno(), f"cacheon: {why}; ending it. What its threads were doing:\n".encode())
        faulthandler.dump_traceback(all_threads=True)
    os._exit(ExitCode.INTERNAL)
