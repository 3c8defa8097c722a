"""The application behind a server, on a socket that only the front reaches."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from paddock.interfaces.api.app import create_app
from paddock.interfaces.api.context import Services
from paddock.interfaces.api.middleware import Bind, Observe


@asynccontextmanager
async def serving(services: Services, place: Path, log: Observe, bind: Bind) -> AsyncIterator[None]:
    """As long as this is open, the API answers there; every request is told to `log`."""
    started = asyncio.Event()

    def observe(method: str, route: str, status: int, seconds: float) -> None:
        log(method, route, status, seconds)
        services.metrics.observe_request(method, route, status, seconds)

    app = create_app(services, observe, bind)
    server = _Server(app, place, started)
    task = asyncio.create_task(server.serve(), name="api")
    try:
        await started.wait()
        await _first_request(place)
        yield
    finally:
        server.should_exit = True
        await task


async def _first_request(place: Path) -> None:
    """FastAPI makes its routes ready for whoever asks first, which takes a while: be the one."""
    reader, writer = await asyncio.open_unix_connection(str(place))
    try:
        writer.write(b"GET /healthz HTTP/1.1\r\nhost: paddock\r\nconnection: close\r\n\r\n")
        await reader.read()
    finally:
        writer.close()


class _Server(uvicorn.Server):
    """The ASGI server, which leaves signals to whoever runs it and says when it listens."""

    def __init__(self, app: ASGIApp, place: Path, started: asyncio.Event) -> None:
        config = uvicorn.Config(
            app,
            uds=str(place),
            loop="none",
            http="httptools",
            ws="websockets-sansio",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=5,
            # Only the front can reach it, and the front says who is behind it.
            forwarded_allow_ips="*",
        )
        super().__init__(config)
        self._started = started

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._started.set()
