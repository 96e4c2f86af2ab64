"""A port that a test gives up and takes again: nobody else may get it in between."""

from __future__ import annotations

import random
import socket
from pathlib import Path

_LOWEST = 10_000


def reserved_port() -> int:
    """Return a free loopback port that nobody is given who asks the kernel for any port, as every other test does.

    It lies below the range from which the kernel picks, so another worker of the test run cannot come by it.
    """
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text("ascii").split()[0])
    chooser = random.SystemRandom()
    while True:
        port = chooser.randrange(min(_LOWEST, first - 1000), first)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
