"""Everything the guest does beyond being there: the services behind one router."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import time
from collections.abc import Awaitable
from typing import Callable

from . import auth, connect, syscalls
from .config import GuestConfig
from .connect import Call
from .door import Letter
from .errors import GuestError
from .http import Exchange
from .state import GuestState
from .tasks import Tasks

Method = Callable[[Call], Awaitable[None]]

# Which module answers to what; the first path that fits counts. Each has `methods(state)`, which
# gives its table from "VERB /path" to a coroutine function. A module is loaded when it is first
# asked for, so that a packed guest is only as large as what is used of it.
_ENVD_WATCH = ("WatchDir", "CreateWatcher", "GetWatcherEvents", "RemoveWatcher")
_SUPERVISOR = (
    *("PutProcess", "StartProcess", "StopProcess", "RestartProcess", "RemoveProcess"),
    *("GetProcess", "ListProcesses", "ProcessLogs"),
)
_DESK = ("OpenDesk", "TakeCalls", "AnswerCall", "CloseDesk")
_HOST = ("ListPorts", "Usage", "Shutdown", "LetGo")
_SERVICES = {
    "/process.Process/": "envd_process",
    **{f"/filesystem.Filesystem/{method}": "envd_watch" for method in _ENVD_WATCH},
    "/filesystem.Filesystem/": "envd_filesystem",
    "/files": "files",
    "/paddock.Files/": "posix_files",
    "/paddock.Guest/Exec": "execute",
    "/paddock.Guest/Unpack": "unpack",
    **{f"/paddock.Guest/{method}": "supervisor" for method in _SUPERVISOR},
    **{f"/paddock.Guest/{method}": "desk" for method in _DESK},
    **{f"/paddock.Guest/{method}": "host" for method in _HOST},
    "/metrics": "host",
    "/paddock.Guest/": "run_service",
    "/": "base",
}


def load_services() -> None:
    for module in set(_SERVICES.values()):
        importlib.import_module(f".{module}", __package__)


class Application:
    """Finds the method for a request, checks who asks, and turns errors into answers."""

    def __init__(
        self, config: GuestConfig, tasks: Tasks, let_go: Callable[[], None] | None = None
    ) -> None:
        _prepare_process()
        self._state = GuestState(config, tasks)
        self._state.let_go = let_go
        self._tables: dict[str, dict[str, Method]] = {}
        self._state.children.install(asyncio.get_running_loop())
        self._state.boot()

    async def handle(self, exchange: Exchange) -> None:
        try:
            await self._find(exchange)(Call(self._state, exchange))
        except GuestError as error:
            _answer_error(exchange, error)

    def adopt(self, letter: Letter) -> None:
        self._state.adopt(letter.token, letter.sandbox_id)

    async def close(self) -> None:
        """The guest was told to end: nothing that it started is left behind."""
        await self._state.shutdown(self._state.config.kill_grace, "cancelled")

    def _find(self, exchange: Exchange) -> Method:
        auth.check(self._state, exchange)
        self._state.last_activity = time.time()
        prefix = next((p for p in _SERVICES if exchange.path.startswith(p)), "/")
        table = self._load(_SERVICES[prefix])
        method = table.get(f"{exchange.method} {exchange.path}")
        if method is not None:
            return method
        if any(known.endswith(f" {exchange.path}") for known in table):
            raise GuestError("unimplemented", f"{exchange.path} does not take {exchange.method}")
        raise GuestError("not_found", f"there is no {exchange.path}")

    def _load(self, name: str) -> dict[str, Method]:
        table = self._tables.get(name)
        if table is None:
            module = importlib.import_module(f".{name}", __package__)
            table = self._tables[name] = module.methods(self._state)
        return table


def _prepare_process() -> None:
    os.umask(0o022)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    syscalls.become_subreaper()
    syscalls.forbid_inspection()


def _answer_error(exchange: Exchange, error: GuestError) -> None:
    if exchange.responding:
        exchange.abort()
        return
    if exchange.path == "/files":
        body = connect.dump({"code": error.status, "message": error.message})
        exchange.respond(error.status, body, ("content-type", "application/json"))
        return
    connect.refuse(exchange, error)
