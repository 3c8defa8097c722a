"""The desk of a run: programs of the sandbox ask here by HTTP, and the control plane answers.

Nothing that is asked is understood here. It waits until whoever has opened the desk has taken it
and said what to answer; after a while without, the program is told to try again.
"""

from __future__ import annotations

import asyncio
import base64
import os
import socket
import time
from collections.abc import Awaitable
from typing import Callable

from . import connect, fields
from .body import Disconnected
from .connect import Call, Message
from .errors import GuestError, invalid
from .http import Connection, Exchange
from .notify import Change
from .state import GuestState

ADDRESS = "127.0.0.1"
_LARGEST = 64 << 10
_MOST_CALLS = 16
_MOST_CONNECTIONS = 64
_MOST_DESKS = 16
_PATIENCE_S = 60.0
_LONGEST_WAIT_MS = 60_000
_TOLD = ("authorization", "content-type", "accept", "mcp-protocol-version")
_JSON = ("content-type", "application/json")


class Desk:
    """One listener, and the calls that nobody has answered yet."""

    def __init__(self, state: GuestState, key: str) -> None:
        self._state = state
        self.key = key
        self.port = 0
        self.calls: dict[str, tuple[Message, asyncio.Future[Message]]] = {}
        self.changed = Change()
        self._count = 0
        self._connections: set[Connection] = set()
        self._server: asyncio.AbstractServer | None = None

    async def open(self) -> None:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            listener.bind((ADDRESS, 0))
            listener.setblocking(False)
            self.port = listener.getsockname()[1]
            loop = asyncio.get_running_loop()
            self._server = await loop.create_server(self._connect, sock=listener, backlog=64)
        except BaseException:
            listener.close()
            raise

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for connection in tuple(self._connections):
            connection.abort()
        self.changed.tell()

    def _connect(self) -> asyncio.Protocol:
        if len(self._connections) >= _MOST_CONNECTIONS:
            return _Full()
        start = self._state.tasks.start
        return Connection(self._handle, start, self._connections, trusted=False)

    async def _handle(self, exchange: Exchange) -> None:
        try:
            answer = await self._answered(exchange, await exchange.read_all(_LARGEST))
        except GuestError as error:
            body = connect.dump({"error": {"code": error.code, "message": error.message}})
            exchange.respond(error.status, body, _JSON)
            return
        body = fields.binary(answer, "body")
        headers = [_JSON] if body else []
        exchange.respond(fields.number(answer, "status", 200), body, *headers)

    async def _answered(self, exchange: Exchange, body: bytes) -> Message:
        if len(self.calls) >= _MOST_CALLS:
            raise GuestError("resource_exhausted", f"{_MOST_CALLS} calls wait for an answer")
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._count += 1
        identifier = os.urandom(12).hex()
        told = {
            "id": identifier,
            "number": self._count,
            "method": exchange.method,
            "path": exchange.path,
            "headers": {name: exchange.headers.get(name, "") for name in _TOLD},
            "body": base64.b64encode(body).decode("ascii"),
        }
        self.calls[identifier] = (told, future)
        self.changed.tell()
        exchange.on_disconnect = lambda: _leave(future)
        try:
            return await asyncio.wait_for(future, _PATIENCE_S)
        except asyncio.TimeoutError:
            raise GuestError("unavailable", "nobody is at the desk: try again") from None
        finally:
            self.calls.pop(identifier, None)


def _leave(future: asyncio.Future[Message]) -> None:
    """Who asked has gone."""
    if not future.done():
        future.set_exception(Disconnected())


class _Full(asyncio.Protocol):
    """Who comes when there are too many already."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()


class Desks:
    """All that were opened."""

    def __init__(self, state: GuestState) -> None:
        self._state = state

    async def open(self, call: Call, message: Message) -> Message:
        """The port of the desk; one that is open is the same as before."""
        key, desks = fields.text(message, "key"), self._state.desks
        if key not in desks:
            if len(desks) >= _MOST_DESKS and not self._close_one_of_the_past():
                raise GuestError("resource_exhausted", f"{_MOST_DESKS} desks are open")
            desks[key] = desk = Desk(self._state, key)
            try:
                await desk.open()
            except BaseException:
                del desks[key]
                raise
        return {"port": desks[key].port}

    def _close_one_of_the_past(self) -> bool:
        """Whoever opened it may have died before it could be closed."""
        running = {run.terms.key for run in self._state.runs.running}
        for key, desk in self._state.desks.items():
            if key not in running:
                del self._state.desks[key]
                desk.close()
                return True
        return False

    async def take(self, call: Call, message: Message) -> Message:
        """Calls that nobody has answered, beyond a number; an empty answer waits for `waitMs`."""
        desk = self._find(message)
        after = fields.number(message, "after", 0)
        wait = fields.number(message, "waitMs", 0, _LONGEST_WAIT_MS) / 1000
        deadline = time.monotonic() + wait
        call.exchange.on_disconnect = desk.changed.tell
        while True:
            found = [told for told, _ in desk.calls.values() if told["number"] > after]
            wait = deadline - time.monotonic()
            if found or wait <= 0 or not call.exchange.is_connected:
                return {"calls": found}
            await desk.changed.wait(wait)
            self._find(message)

    async def answer(self, call: Call, message: Message) -> Message:
        """Who has gone meanwhile needs none."""
        found = self._find(message).calls.get(fields.text(message, "id"))
        status = fields.number(message, "status", 200, 599)
        if status < 200:
            raise invalid(f"{status} is no answer")
        fields.binary(message, "body")
        if found is not None and not found[1].done():
            found[1].set_result(message)
        return {}

    async def close(self, call: Call, message: Message) -> Message:
        """Absent is success."""
        desk = self._state.desks.pop(fields.text(message, "key"), None)
        if desk is not None:
            desk.close()
        return {}

    def _find(self, message: Message) -> Desk:
        key = fields.text(message, "key")
        desk = self._state.desks.get(key)
        if desk is None:
            raise GuestError("not_found", f"run {key} has no desk")
        return desk


def methods(state: GuestState) -> dict[str, Callable[[Call], Awaitable[None]]]:
    desks = Desks(state)
    table = {
        "OpenDesk": desks.open,
        "TakeCalls": desks.take,
        "AnswerCall": desks.answer,
        "CloseDesk": desks.close,
    }
    return {f"POST /paddock.Guest/{name}": connect.unary(method) for name, method in table.items()}
