"""The guest's life: answer at once, load the rest, serve until told to end."""

from __future__ import annotations

import asyncio
import gc
import importlib
import signal
import socket
from typing import TYPE_CHECKING

from .config import GuestConfig
from .http import Connection, Exchange
from .tasks import Tasks

if TYPE_CHECKING:
    from .application import Application

_IDLE_LIMIT = 700.0  # clients pool connections for 300 s and do not retry on one that was closed
_SWEEP_EVERY = 60.0
_LOAD_AFTER = 0.05
_ANSWER_S = 0.02


def preload() -> None:
    """Import everything. A joined guest has another root afterwards and can import nothing."""
    for codec in ("idna", "latin_1", "utf_8", "ascii"):
        importlib.import_module(f"encodings.{codec}")
    import hashlib

    from .application import load_services

    load_services()
    # OpenSSL reads its configuration on first use: it must be the host's and not the sandbox's.
    hashlib.sha256(b"").digest()
    asyncio.new_event_loop().close()  # the selector and the policy are made on first use


def serve(config: GuestConfig, listener: socket.socket) -> None:
    """Answer on the listener until SIGTERM. The process becomes the guest: call it once.

    A packed guest has loaded nothing but this yet and must answer soon, so it loads the rest
    afterwards, or when first asked for something.
    """
    if not config.packed:
        preload()
    asyncio.run(Server(config, listener).run())


class Server:
    """Accepts connections and hands their requests to the application."""

    def __init__(self, config: GuestConfig, listener: socket.socket) -> None:
        self._config = config
        self._listener = listener
        self._trusted = listener.family == socket.AF_UNIX
        self._connections: set[Connection] = set()
        self._tasks = Tasks()
        self._application: Application | None = None
        self._told: asyncio.Event | None = None
        self._stopped = False

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        self._told = asyncio.Event()  # not before: until 3.10 it belongs to the loop it is made in
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        server = await self._open()
        loop.call_later(_LOAD_AFTER if self._config.packed else 0, self._load)
        loop.call_later(_SWEEP_EVERY, self._sweep)
        await self._told.wait()
        while not self._stopped:
            server = await self._leave_and_return(server)
            await self._told.wait()
        server.close()
        for connection in tuple(self._connections):
            connection.abort()
        if self._application is not None:
            await self._application.close()
        await self._tasks.close()

    def stop(self) -> None:
        self._stopped = True
        if self._told is not None:
            self._told.set()

    async def _open(self) -> asyncio.AbstractServer:
        self._listener.setblocking(False)
        loop = asyncio.get_running_loop()
        return await loop.create_server(self._connect, sock=self._listener, backlog=1024)

    def _let_go(self) -> None:
        """Once the answer to whoever has asked for it is out."""
        if self._told is not None:
            asyncio.get_running_loop().call_later(_ANSWER_S, self._told.set)

    async def _leave_and_return(self, server: asyncio.AbstractServer) -> asyncio.AbstractServer:
        """Hold nothing of the host's until a letter is there, then be who it says."""
        from . import door

        assert self._told is not None
        self._told.clear()
        server.close()
        for connection in tuple(self._connections):
            connection.let_go()
        while self._connections:  # noqa: ASYNC110 - each goes in the loop's next round
            await asyncio.sleep(0)
        door.say_left(self._config.state_dir)
        letter = await door.wait_for_letter(self._config.state_dir, lambda: self._stopped)
        if letter is not None:
            self._load().adopt(letter)
            self._listener = door.listen_again(self._config.state_dir)
            return await self._open()
        self._told.set()
        return server

    def _load(self) -> Application:
        if self._application is None:
            from .application import Application

            let_go = self._let_go if self._config.packed and self._trusted else None
            self._application = Application(self._config, self._tasks, let_go)
            gc.collect()
            gc.freeze()  # what is loaded now stays, and need not be looked at again
            gc.enable()
        return self._application

    async def _handle(self, exchange: Exchange) -> None:
        if exchange.path == "/health":
            exchange.respond(204)
        else:
            await self._load().handle(exchange)

    def _connect(self) -> Connection:
        return Connection(self._handle, self._tasks.start, self._connections, trusted=self._trusted)

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        oldest = loop.time() - _IDLE_LIMIT
        for connection in tuple(self._connections):
            if connection.is_idle and connection.last_used < oldest:
                connection.close()
        loop.call_later(_SWEEP_EVERY, self._sweep)
