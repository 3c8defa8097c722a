"""The watching calls of filesystem.Filesystem: a stream, or a watcher that is polled."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Awaitable
from contextlib import suppress
from typing import Callable

from . import connect, fields
from .connect import Call, Message, StreamOpener
from .errors import GuestError, from_path_error
from .inotify import Inotify
from .state import GuestState
from .users import Account
from .watch import LOST, Watcher

_KEEPALIVE: Message = {"keepalive": {}}
_MOST_WAITING = 20_000
_MOST_WATCHERS = 1000


class _Queue:
    """Events that wait to be taken, up to a number that a busy directory reaches."""

    def __init__(self) -> None:
        self.events: deque[Message] = deque()
        self.lost = False
        self.arrived = asyncio.Event()

    def put(self, event: Message) -> None:
        if len(self.events) >= _MOST_WAITING:
            self.lose()
            return
        self.events.append(event)
        self.arrived.set()

    def lose(self) -> None:
        self.lost = True
        self.events.clear()
        self.arrived.set()

    def take(self) -> list[Message]:
        if self.lost:
            raise LOST
        taken = list(self.events)
        self.events.clear()
        self.arrived.clear()
        return taken


class WatchService:
    """All watchers of this guest."""

    def __init__(self, state: GuestState) -> None:
        self._state = state
        self._source = Inotify()
        self._polled: dict[str, tuple[Watcher, _Queue]] = {}

    async def watch_dir(self, call: Call, message: Message, opener: StreamOpener) -> None:
        watcher, queue = await self._open(call, message)
        timer = None
        try:
            stream = opener.open()
            stream.send({"start": {}})
            if call.timeout is not None:
                loop = asyncio.get_running_loop()
                timer = loop.call_later(call.timeout, queue.arrived.set)
                ends = loop.time() + call.timeout
            while True:
                await queue.arrived.wait()
                for event in queue.take():
                    stream.send({"filesystem": event})
                    await stream.drain()
                if timer is not None and asyncio.get_running_loop().time() >= ends:
                    raise GuestError("deadline_exceeded", "the stream reached its time limit")
        finally:
            watcher.close()
            if timer is not None:
                timer.cancel()

    async def create(self, call: Call, message: Message) -> Message:
        if len(self._polled) >= _MOST_WATCHERS:
            raise GuestError("resource_exhausted", f"there are {_MOST_WATCHERS} watchers already")
        name = os.urandom(8).hex()
        self._polled[name] = await self._open(call, message)
        return {"watcherId": name}

    async def events(self, call: Call, message: Message) -> Message:
        _, queue = self._find(message)
        self._source.deliver()
        return {"events": queue.take()}

    async def remove(self, call: Call, message: Message) -> Message:
        watcher, _ = self._find(message)
        watcher.close()
        del self._polled[fields.text(message, "watcherId")]
        return {}

    async def _open(self, call: Call, message: Message) -> tuple[Watcher, _Queue]:
        account = call.account
        path = self._state.absolute(fields.text(message, "path"), account)
        accounts = call.file_accounts(account)
        try:
            for each in accounts[:-1]:
                with suppress(PermissionError):
                    return await self._watch(message, path, each)
            return await self._watch(message, path, accounts[-1])
        except OSError as error:
            raise from_path_error(error, path) from None

    async def _watch(
        self, message: Message, path: bytes, account: Account
    ) -> tuple[Watcher, _Queue]:
        queue = _Queue()
        watcher = Watcher(
            self._source,
            self._state.accounts,
            account,
            path.rstrip(b"/") or b"/",
            recursive=fields.flag(message, "recursive"),
            include_entry=fields.flag(message, "includeEntry"),
            on_event=queue.put,
            on_lost=queue.lose,
        )
        try:
            await watcher.open()
        except OSError:
            watcher.close()
            raise
        return watcher, queue

    def _find(self, message: Message) -> tuple[Watcher, _Queue]:
        name = fields.text(message, "watcherId")
        if name not in self._polled:
            raise GuestError("not_found", f"there is no watcher {name}")
        return self._polled[name]


def methods(state: GuestState) -> dict[str, Callable[[Call], Awaitable[None]]]:
    service = WatchService(state)
    table = {
        "WatchDir": connect.server_stream(service.watch_dir, _KEEPALIVE),
        "CreateWatcher": connect.unary(service.create),
        "GetWatcherEvents": connect.unary(service.events),
        "RemoveWatcher": connect.unary(service.remove),
    }
    return {f"POST /filesystem.Filesystem/{name}": method for name, method in table.items()}
