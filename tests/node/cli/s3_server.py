"""A real S3 server (moto) on a free loopback port, in a process of its own; prints its URL when it listens.

It runs until its standard input closes, so it cannot outlive the test that started it.
"""

from __future__ import annotations

import sys

from moto.moto_server.threaded_moto_server import ThreadedMotoServer


def main() -> None:
    """Serve until standard input ends."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    print(f"http://{host}:{port}", flush=True)
    sys.stdin.read()
    server.stop()


if __name__ == "__main__":
    main()
