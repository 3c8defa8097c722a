"""The one public listener: previews to their sandboxes, everything else to the API."""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Hashable
from types import TracebackType
from typing import Self

from paddock.interfaces.preview.client import ClientConnection
from paddock.interfaces.preview.config import FrontConfig
from paddock.interfaces.preview.contract import Resolve
from paddock.interfaces.preview.hub import Counts, Hub
from paddock.interfaces.preview.pages import Pages

_BACKLOG = 1024
_ABORT_S = 1.0
_TCP = (
    (socket.TCP_NODELAY, 1),
    (socket.TCP_KEEPIDLE, 60),
    (socket.TCP_KEEPINTVL, 15),
    (socket.TCP_KEEPCNT, 4),
)

_log = logging.getLogger(__name__)


class Front:
    """An HTTP/1.1 reverse proxy that asks `resolve` about every request.

    Used as `async with Front(resolve) as front`. Leaving it stops accepting, closes what is idle,
    gives what is under way `grace_s` to finish, and then ends everything. Upgraded connections are
    ended when the others are: nobody can say when they are done. It knows no service.
    """

    def __init__(
        self, resolve: Resolve, config: FrontConfig | None = None, pages: Pages | None = None
    ) -> None:
        self._resolve = resolve
        self._config = config or FrontConfig()
        self._pages = pages or Pages()
        self._servers: list[asyncio.Server] = []
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        self._hub = Hub(self._resolve, self._config, self._pages)
        self._sweep()
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def counts(self) -> Counts:
        return self._hub.counts

    @property
    def open_connections(self) -> int:
        """Clients that are connected, upgraded ones included."""
        return len(self._hub.clients) + len(self._hub.splices)

    async def listen(
        self, host: str, port: int, tls: ssl.SSLContext | None = None
    ) -> tuple[str, int]:
        """Accept connections there, by TLS where a context is given; port 0 takes a free one. Gives
        the address that it became."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        await self.listen_on(listener, tls)
        address, bound = listener.getsockname()[:2]
        return address, bound

    async def listen_on(self, listener: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        """Accept connections on a bound socket, which then belongs to the front."""
        listener.setblocking(False)
        if listener.family != socket.AF_UNIX:
            # Connections inherit it. A silent client that is gone must not count as activity.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in _TCP:
                listener.setsockopt(socket.IPPROTO_TCP, option, value)
        loop = self._hub.loop
        make = self._make_client
        if listener.family == socket.AF_UNIX:
            server = await loop.create_unix_server(make, sock=listener, backlog=_BACKLOG)
        else:
            timeout = self._config.head_timeout_s if tls else None
            server = await loop.create_server(
                make, sock=listener, backlog=_BACKLOG, ssl=tls, ssl_handshake_timeout=timeout
            )
        self._servers.append(server)

    def forget(self, key: Hashable) -> None:
        """Close idle connections to an upstream that is no more."""
        self._hub.pool.forget(key)

    async def close(self) -> None:
        """As leaving the context does; again is harmless."""
        hub = self._hub
        hub.stopping = True
        for server in self._servers:
            server.close()
        for client in list(hub.clients):
            client.end(gently=True)
        hub.pool.clear()
        await self._drain(lambda: not hub.clients, self._config.grace_s)
        for connection in [*hub.clients, *hub.splices]:
            connection.end(gently=False)
        if self._timer is not None:
            self._timer.cancel()
        await hub.finish_tasks()
        for upstream in list(hub.upstreams):
            upstream.abort()
        # The loop may be closed next, which uvloop refuses while a socket is half gone.
        await self._drain(lambda: not (hub.clients or hub.splices or hub.upstreams), _ABORT_S)
        for server in self._servers:
            await server.wait_closed()
        self._servers.clear()

    def _make_client(self) -> ClientConnection:
        return ClientConnection(self._hub)

    async def _drain(self, is_empty: Callable[[], bool], seconds: float) -> None:
        until = self._hub.loop.time() + seconds
        while not is_empty() and self._hub.loop.time() < until:  # noqa: ASYNC110 - at the end only
            await asyncio.sleep(0.01)

    def _sweep(self) -> None:
        hub = self._hub
        try:
            hub.sweep()
        except Exception:  # noqa: BLE001 - one bad connection must not end all deadlines
            _log.exception("looking after connections failed")
        self._timer = hub.loop.call_later(self._tick(), self._sweep)

    def _tick(self) -> float:
        """A fraction of the shortest deadline, so that none is missed by much."""
        config = self._config
        shortest = min(
            config.head_timeout_s,
            config.idle_timeout_s,
            config.body_timeout_s,
            config.send_timeout_s,
            config.half_close_s,
            config.response_timeout_s,
            config.upstream_idle_s,
        )
        return min(0.5, max(0.02, shortest / 8))
