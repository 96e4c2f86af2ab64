"""Where the pages are served: the socket, the names they answer to, and connections that cannot be held.

Invariants
1. The address is bound before the node serves, or the start fails with one error.
2. At most `CONNECTIONS` are open, each for at most `CONNECTION_SECONDS`: whoever sends slowly, or nothing, or reads
   nothing, costs a bounded amount of memory for a bounded time.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable

from aiohttp import web

from config.errors import CacheonError, ConfigurationError, HostError, InternalError
from config.settings import HttpSettings
from config.urls import is_loopback_host
from node.envelope import failure_line

CONNECTIONS = 128
CONNECTION_SECONDS = 60.0
_BACKLOG = 128
_REQUEST_LINE, _HEADER_BYTES = 4096, 8190


def bind(listen: str) -> socket.socket:
    """Return a listening socket for "host:port"; port 0 takes a free one. Raises `HostError` (HTTP_LISTEN_FAILED)."""
    host, _, port = listen.rpartition(":")
    try:
        number = int(port)
        if number > 65535:
            raise OverflowError("a port is at most 65535")
        family, kind, protocol, _, address = socket.getaddrinfo(
            host.strip("[]"), number, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
    except (OSError, OverflowError) as error:
        raise _unusable(listen, str(error)) from error
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(_BACKLOG)
        listening.setblocking(False)
    except (OSError, OverflowError) as error:
        listening.close()
        raise _unusable(listen, str(error)) from error
    return listening


def url_of(listening: socket.socket) -> str:
    """Return the address of a listening socket as a URL."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def own_names(settings: HttpSettings, listening: socket.socket) -> Callable[[str], bool]:
    """Return the test of a request's `Host`.

    Loopback's names and those in `http.hosts` are always ours. On an address that others reach, and without such a
    list, every name is: which names lead here is then decided elsewhere.
    """
    named = {name.lower() for name in settings.hosts}
    is_open = not named and not ipaddress.ip_address(listening.getsockname()[0]).is_loopback

    def is_own(host: str) -> bool:
        name = _without_port(host).lower()
        return is_open or name in named or is_loopback_host(name)

    return is_own


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host


class Connection(web.RequestHandler):
    """One connection, closed when its time is over, and at once when there are too many."""

    def __init__(self, server: web.Server, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(
            server,
            loop=loop,
            access_log=None,  # type: ignore[arg-type]  # which the library takes for "none"
            keepalive_timeout=15.0,
            lingering_time=1.0,
            max_line_size=_REQUEST_LINE,
            max_field_size=_HEADER_BYTES,
        )
        self._life: asyncio.TimerHandle | None = None
        self._server_of = server
        self._event_loop = loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the clock."""
        super().connection_made(transport)
        if len(self._server_of.connections) > CONNECTIONS:
            self._abort(transport)
            return
        self._life = self._event_loop.call_later(CONNECTION_SECONDS, self._abort, transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop the clock."""
        if self._life is not None:
            self._life.cancel()
        super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,  # noqa: ARG002 - the library's signature
        status: int = 500,
        exc: BaseException | None = None,  # noqa: ARG002 - as above
        message: str | None = None,  # noqa: ARG002 - quotes what was sent
    ) -> web.StreamResponse:
        """Answer what is no HTTP request, or what failed outside of the guard, without repeating any of it."""
        self.force_close()
        if status >= 500:
            error: CacheonError = InternalError("HTTP_FAILED", "the node failed to answer")
        else:
            error = ConfigurationError("HTTP_PARAMETER_INVALID", f"this is no request that can be read ({status})")
        body = failure_line("", error.to_document())
        return web.Response(body=body, status=status, content_type="application/json", headers={"Server": "cacheon"})

    @staticmethod
    def _abort(transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.Transport):
            transport.abort()


def _unusable(listen: str, reason: str) -> HostError:
    return HostError(
        "HTTP_LISTEN_FAILED",
        f"the pages cannot be served at {listen}: {reason}",
        hint='free the port, or set `http.listen` to another address of this machine, or to "" to serve no pages',
    )
