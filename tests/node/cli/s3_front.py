"""A reverse proxy before an S3 server that behaves as real stores and networks do on bad days."""

from __future__ import annotations

import http.client
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

_SKEW_LIMIT = timedelta(minutes=15)  # as documented for the real service


@dataclass
class Front:
    """What the proxy does wrong; counts go down with each use. `seen` lists method and path of every request."""

    upstream: str
    clock_ahead: timedelta = timedelta()
    break_uploads: int = 0  # resets the connection in the middle of so many uploads
    lose_answers: int = 0  # does so many uploads, and hangs up before the answer
    knows_conditions: bool = True
    url: str = ""
    seen: list[str] = field(default_factory=list)

    def now(self) -> datetime:
        """The store's clock."""
        return datetime.now(UTC) + self.clock_ahead


@contextmanager
def serve(front: Front) -> Iterator[Front]:
    """Serve `front` on a free loopback port; `front.url` says where."""

    class Handler(_Handler):
        behaviour = front

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    front.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield front
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    behaviour: Front
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._forward(b"")

    def do_PUT(self) -> None:
        front = self.behaviour
        length = int(self.headers.get("Content-Length", "0"))
        if front.break_uploads > 0:
            front.break_uploads -= 1
            front.seen.append("PUT broken")
            self.rfile.read(length // 2)
            self._reset()
            return
        body = self.rfile.read(length)
        if not front.knows_conditions and "If-None-Match" in self.headers:
            front.seen.append("PUT conditional")
            self._refuse(501, "NotImplemented", "A header you provided implies functionality that is not implemented")
            return
        self._forward(body)

    def _forward(self, body: bytes) -> None:
        front = self.behaviour
        front.seen.append(f"{self.command} {self.path}")
        signed = self.headers.get("X-Amz-Date")
        if signed is not None:
            then = datetime.strptime(signed, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
            if abs(front.now() - then) > _SKEW_LIMIT:
                self._refuse(
                    403,
                    "RequestTimeTooSkewed",
                    "The difference between the request time and the current time is too large.",
                )
                return
        place = urlsplit(front.upstream)
        connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=60)
        try:
            connection.request(self.command, self.path, body, dict(self.headers.items()))
            answer = connection.getresponse()
            data = answer.read()
        finally:
            connection.close()
        if self.command == "PUT" and front.lose_answers > 0:
            front.lose_answers -= 1
            self._reset()
            return
        self._answer(answer.status, data, dict(answer.getheaders()))

    def _refuse(self, status: int, code: str, message: str) -> None:
        body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
        self._answer(status, body, {"Content-Type": "application/xml"})

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response_only(status)
        self.send_header("Date", format_datetime(self.behaviour.now(), usegmt=True))
        for name, value in headers.items():
            if name.lower() not in ("content-length", "connection", "date", "transfer-encoding"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _reset(self) -> None:
        """Close with a reset, as a crashed peer does."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    def log_message(self, *_: object) -> None:
        """Stay silent."""
