"""The calls about supervised processes."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Awaitable
from typing import Callable

from . import connect, disk, fields, leftover
from .connect import Call, Message, StreamOpener
from .errors import GuestError, invalid
from .removal import remove_now
from .state import GuestState
from .supervised import Definition, Supervised

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_POLICIES = ("always", "on_failure", "never")
_CHUNK = 48 << 10
_DEFAULT_TAIL = 64 << 10


class Supervisor:
    """All supervised processes of the sandbox."""

    def __init__(self, state: GuestState) -> None:
        self._state = state
        self._directory = f"{state.config.state_dir}/processes"
        self._all: dict[str, Supervised] = {}
        self._load()

    def _load(self) -> None:
        """Start again what shall run, once what an earlier guest left of it is gone."""
        disk.make_private(self._directory)
        left_over: dict[int, int] = {}
        for name in disk.names(self._directory):
            directory = f"{self._directory}/{name}"
            kept = disk.read_json(f"{directory}/process.json")
            if not isinstance(kept, dict):
                remove_now(directory)
                continue
            left_over |= leftover.find(kept.pop("process", None))
            self._all[name] = Supervised(self._state, directory, Definition(**kept))
        self._state.tasks.start(self._start_wanted(left_over))

    async def stop_all(self, grace: float) -> None:
        """The guest ends; what shall run still shall when it is back."""
        stops = (process.stop(grace, forget_wish=False) for process in self._all.values())
        await asyncio.gather(*stops)

    async def put(self, call: Call, message: Message) -> Message:
        """Define it, or define it anew; a running one takes the change at its next start."""
        name = fields.text(message, "name")
        if not _NAME.match(name):
            raise invalid(f"process name {name!r}: use 1 to 64 of A-Z a-z 0-9 _ -")
        definition = Definition(
            name=name,
            cmd=fields.words(message, "cmd"),
            env=fields.mapping(message, "env"),
            cwd=fields.text(message, "cwd", ""),
            user=fields.text(message, "user", ""),
            restart=fields.text(message, "restart", "always"),
        )
        if not definition.cmd:
            raise invalid("a process needs a command")
        if definition.restart not in _POLICIES:
            raise invalid(f"restart is {definition.restart!r}; use one of {', '.join(_POLICIES)}")
        known = self._all.get(name)
        if known is None:
            directory = f"{self._directory}/{name}"
            disk.make_private(directory)
            known = self._all[name] = Supervised(self._state, directory, definition)
        definition.wanted = known.definition.wanted
        known.definition = definition
        known.keep()
        return {"process": known.describe()}

    async def start(self, call: Call, message: Message) -> Message:
        process = self._find(message)
        await process.start()
        return {"process": process.describe()}

    async def stop(self, call: Call, message: Message) -> Message:
        process = self._find(message)
        await process.stop(self._grace(message))
        return {"process": process.describe()}

    async def restart(self, call: Call, message: Message) -> Message:
        process = self._find(message)
        await process.restart(self._grace(message))
        return {"process": process.describe()}

    async def remove(self, call: Call, message: Message) -> Message:
        """Stopped and forgotten, log and all. Absent is success."""
        process = self._all.pop(fields.text(message, "name"), None)
        if process is not None:
            await process.stop(self._grace(message))
            process.removed = True
            process.journal.close()
            remove_now(process.directory)
            process.changed.tell()
        return {}

    async def get(self, call: Call, message: Message) -> Message:
        return {"process": self._find(message).describe()}

    async def list(self, call: Call, message: Message) -> Message:
        return {"processes": [process.describe() for process in self._all.values()]}

    async def logs(self, call: Call, message: Message, opener: StreamOpener) -> None:
        """From an offset, or the last `tailBytes`; with `follow` until it is removed."""
        process = self._find(message)
        journal = process.journal
        tail = fields.number(message, "tailBytes", _DEFAULT_TAIL)
        offset = fields.number(message, "offset", max(journal.first, journal.end - tail))
        follow = fields.flag(message, "follow")
        stream = opener.open()
        while not process.removed:
            if offset < journal.first:
                stream.send({"gap": {"from": offset, "to": journal.first}})
                offset = journal.first
            data = journal.read(offset, _CHUNK)
            if data:
                stream.send({"offset": offset, "data": base64.b64encode(data).decode("ascii")})
                offset += len(data)
                await stream.drain()
            elif follow:
                await process.changed.wait()
            else:
                return

    def _find(self, message: Message) -> Supervised:
        name = fields.text(message, "name")
        if name not in self._all:
            raise GuestError("not_found", f"there is no process {name}")
        return self._all[name]

    def _grace(self, message: Message) -> float:
        default = round(self._state.config.kill_grace * 1000)
        return fields.number(message, "graceMs", default) / 1000

    async def _start_wanted(self, left_over: dict[int, int]) -> None:
        await leftover.end(self._state.children, left_over)
        for process in self._all.values():
            if process.definition.wanted:
                await process.start()


def methods(state: GuestState) -> dict[str, Callable[[Call], Awaitable[None]]]:
    supervisor = state.supervisor
    table = {
        "PutProcess": connect.unary(supervisor.put),
        "StartProcess": connect.unary(supervisor.start),
        "StopProcess": connect.unary(supervisor.stop),
        "RestartProcess": connect.unary(supervisor.restart),
        "RemoveProcess": connect.unary(supervisor.remove),
        "GetProcess": connect.unary(supervisor.get),
        "ListProcesses": connect.unary(supervisor.list),
        "ProcessLogs": connect.server_stream(supervisor.logs, {"keepalive": {}}),
    }
    return {f"POST /paddock.Guest/{name}": method for name, method in table.items()}
