"""The application behind a server, on a socket that only the front reaches."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from paddock.domain.errors import Broken

_PATIENCE_S = 1
"""For requests whose clients are gone: the front has waited for the others before."""
_PUTTING_AWAY_S = 3.0


@asynccontextmanager
async def serving(app: ASGIApp, place: Path, warm: Sequence[str]) -> AsyncIterator[None]:
    """As long as this is open, the application answers there. `warm` are paths that anybody may
    ask for, one in each part that has to be made ready."""
    started = asyncio.Event()
    server = _Server(app, place, started)
    task = asyncio.create_task(server.serve(), name="api")
    try:
        await _first(started, task)
        for path in warm:
            await _first_request(place, path)
        yield
    finally:
        server.should_exit = True
        await task


async def _first(started: asyncio.Event, serving: "asyncio.Task[None]") -> None:
    """Until it listens; what keeps it from doing so is raised."""
    waiting = asyncio.ensure_future(started.wait())
    await asyncio.wait({waiting, serving}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if serving.done():
        serving.result()
        raise Broken("the server ended before it listened")


async def _first_request(place: Path, path: str) -> None:
    """FastAPI makes its routes ready for whoever asks first, which takes a while: be the one."""
    reader, writer = await asyncio.open_unix_connection(str(place))
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode())
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
            timeout_graceful_shutdown=_PATIENCE_S,
            # Only the front can reach it, and the front says who is behind it.
            forwarded_allow_ips="*",
        )
        super().__init__(config)
        logging.getLogger("uvicorn.error").addFilter(_is_no_cancellation)
        self._started = started

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._started.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Returns when nobody uses the services behind the application any more: requests that
        took too long have been cancelled by then, and have put away what they had begun."""
        await super().shutdown(sockets)
        if self.server_state.tasks:
            await asyncio.wait(self.server_state.tasks, timeout=_PUTTING_AWAY_S)


def _is_no_cancellation(record: logging.LogRecord) -> bool:
    """Only a server that stops cancels requests, which is nothing that went wrong."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))
