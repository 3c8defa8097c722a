"""One supervised process: kept running as its definition says, with its log across restarts."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

from . import disk, leftover
from .connect import Message
from .errors import GuestError
from .journal import Journal
from .notify import Change
from .process import Ending, Process
from .state import GuestState

_LOG_CAP = 4 << 20
_FAST = 10.0
_HEALTHY = 60.0
_GIVE_UP_AFTER = 5
_FIRST_DELAY, _LONGEST_DELAY = 1.0, 30.0


@dataclass
class Definition:
    """What shall run; kept on disk as `process.json`."""

    name: str
    cmd: list[str]
    env: dict[str, str] = field(default_factory=dict)
    cwd: str = ""
    user: str = ""
    restart: str = "always"
    wanted: bool = False
    """It shall run, also after the guest was started again."""


class Backoff:
    """Decides when to restart a process that ended unexpectedly: back-off, then giving up."""

    def __init__(self) -> None:
        self.failures = 0
        """Quick exits since the process was started on request or was last healthy."""
        self._delay = _FIRST_DELAY

    def after(self, lasted: float) -> float | None:
        """Return the delay before the next start, or None to give up."""
        if lasted >= _HEALTHY:
            self.reset()
        elif lasted < _FAST:
            self.failures += 1
        if self.failures >= _GIVE_UP_AFTER:
            return None
        delay, self._delay = self._delay, min(self._delay * 2, _LONGEST_DELAY)
        return delay

    def reset(self) -> None:
        self.failures = 0
        self._delay = _FIRST_DELAY


class Supervised:
    """A process by name. Its states: stopped, running, backoff, exited, gave_up."""

    def __init__(self, state: GuestState, directory: str, definition: Definition) -> None:
        self._state = state
        self.directory = directory
        self.definition = definition
        self.journal = Journal(directory, "log", _LOG_CAP)
        self.changed = Change()
        self.state = "stopped"
        self.removed = False
        self.restarts = 0
        self._backoff = Backoff()
        self._process: Process | None = None
        self._lock = asyncio.Lock()
        self._stopping = False
        self._timer: asyncio.TimerHandle | None = None
        self._last: Ending | None = None

    def keep(self) -> None:
        """Write the definition down, and which program is its present one."""
        kept: dict[str, Any] = dict(vars(self.definition))
        if self._process is not None:
            kept["process"] = leftover.remember(self._process.pid)
        disk.write_json(f"{self.directory}/process.json", kept)

    async def start(self) -> None:
        """Run it from now on; also the way out of `gave_up`. Running already is success."""
        async with self._lock:
            self._start()

    async def stop(self, grace: float, *, forget_wish: bool = True) -> None:
        """SIGTERM, `grace` seconds, then the whole tree. Stopped already is success."""
        async with self._lock:
            await self._stop(grace, forget_wish=forget_wish)

    async def restart(self, grace: float) -> None:
        """Asked for, so it counts neither as a restart nor as a failure."""
        async with self._lock:
            await self._stop(grace, forget_wish=False)
            self._start()

    def describe(self) -> Message:
        definition = self.definition
        described: Message = {
            "name": definition.name,
            "cmd": definition.cmd,
            "cwd": definition.cwd,
            "user": definition.user,
            "restart": definition.restart,
            "wanted": definition.wanted,
            "state": self.state,
            "restarts": self.restarts,
            "failures": self._backoff.failures,
            "log": {"first": self.journal.first, "end": self.journal.end},
        }
        if self._process is not None:
            described |= {"pid": self._process.pid, "startedAt": self._process.started_at}
        if self._last is not None:
            described["lastExit"] = self._last.as_dict()
        return described

    def _start(self) -> None:
        self.definition.wanted = True
        if self._process is None:
            self._reset()
            self._spawn()
        self.keep()

    async def _stop(self, grace: float, *, forget_wish: bool) -> None:
        if forget_wish:
            self.definition.wanted = False
        self._cancel_timer()
        self._stopping = True
        try:
            if self._process is not None:
                self._process.end("user", grace)
                await asyncio.shield(self._process.done)
                self._process = None
        finally:
            self._stopping = False
        self._become("stopped")
        self.keep()

    def _spawn(self) -> None:
        self._timer = None
        definition = self.definition
        try:
            command = self._state.command(
                definition.cmd,
                account=self._state.account(definition.user),
                env={**definition.env, "PADDOCK_PROCESS": definition.name},
                cwd=definition.cwd,
            )
            self._process = Process(self._state, command, self._on_output)
        except GuestError as error:
            self._on_output("", f"paddock: {error.message}\n".encode("utf-8", "replace"))
            self._failed(0.0)
            return
        self._become("running")
        self._state.tasks.start(self._wait(self._process))

    async def _wait(self, process: Process) -> None:
        began = time.monotonic()
        self._last = await asyncio.shield(process.done)
        if self._process is not process or self._stopping:
            return
        self._process = None
        policy = self.definition.restart
        if policy == "never" or (policy == "on_failure" and self._last.exit_code == 0):
            self._become("exited")
            return
        self._failed(time.monotonic() - began)

    def _failed(self, lasted: float) -> None:
        """It ended unasked: wait and start it again, or give up on it."""
        delay = self._backoff.after(lasted)
        if delay is None:
            self._become("gave_up")
            return
        self._become("backoff")
        self._timer = asyncio.get_running_loop().call_later(delay, self._start_again)

    def _start_again(self) -> None:
        self.restarts += 1
        self._spawn()
        self.keep()

    def _on_output(self, _: str, data: bytes) -> None:
        if self.removed:
            return
        self.journal.append(data)  # what a full disk does not take is not worth stopping it for
        self.journal.shrink(_LOG_CAP)
        self.changed.tell()

    def _become(self, state: str) -> None:
        self.state = state
        self.changed.tell()

    def _reset(self) -> None:
        self._cancel_timer()
        self._backoff.reset()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
