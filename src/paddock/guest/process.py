"""A started program from its first byte of output to the record of its end."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Callable

from . import disk, spawn, terminal
from .children import Exit
from .pipes import Inlet, Outlet
from .spawn import Command
from .tree import Tree, send

if TYPE_CHECKING:
    from .state import GuestState

_QUIET = 0.2
_LONGEST_TAIL = 2.0
_LOOK_EVERY = 0.1

OnData = Callable[[str, bytes], None]


@dataclass(frozen=True)
class Ending:
    """How a program ended, and why."""

    exit_code: int
    reason: str
    signal: int | None
    started_at: float
    ended_at: float
    cpu_seconds: float
    max_rss_bytes: int

    def as_dict(self) -> dict[str, object]:
        return {
            "exitCode": self.exit_code,
            "reason": self.reason,
            "startedAt": self.started_at,
            "endedAt": self.ended_at,
            "usage": {"cpuSeconds": self.cpu_seconds, "maxRssBytes": self.max_rss_bytes},
        }


class Process:
    """A program that runs, or has just ended.

    `on_data` gets every piece of output with the name of its stream. `done` holds the Ending once
    the program and, after a deadline or a kill, everything it started is gone; output that
    arrives later, from children it left behind, is read and thrown away.
    """

    def __init__(
        self,
        state: GuestState,
        command: Command,
        on_data: OnData,
        timeout: float | None = None,
        *,
        grace: float | None = None,
    ) -> None:
        self._state = state
        self._grace = state.config.kill_grace if grace is None else grace
        self._loop = asyncio.get_running_loop()
        self._oom_kills = state.accounting.oom_kills()
        spawned = state.spawner.spawn(command)
        self.pid = spawned.pid
        self.command = command
        self.started_at = time.time()
        self.done: asyncio.Future[Ending] = self._loop.create_future()
        self._exit: Exit | None = None
        self._exited = asyncio.Event()
        self._reason: str | None = None
        self._signals: set[int] = set()
        self._holds = 0
        self._ending: asyncio.Task[None] | None = None
        self._terminal = spawned.terminal
        self.stdin = _open_inlet(spawned)
        self.outlets = _open_outlets(spawned, on_data)
        state.children.watch(self.pid, self._on_exit)
        state.live.add(self)
        self._deadline = (
            None if timeout is None else self._loop.call_later(timeout, self._on_deadline)
        )

    @property
    def is_running(self) -> bool:
        return self._exit is None

    def pause_output(self) -> None:
        for outlet in self.outlets.values():
            outlet.pause()

    def resume_output(self) -> None:
        for outlet in self.outlets.values():
            outlet.resume()

    async def signal(self, number: int) -> None:
        """To the program and what shares its process group; SIGKILL, SIGSTOP and SIGCONT are for
        the whole tree. Of two that want it to stand still and to go on, the last one counts."""
        if number == signal.SIGKILL:
            self.kill("cancelled")
        elif number in (signal.SIGSTOP, signal.SIGCONT):
            self._signals.add(number)
            self._holds = count = self._holds + 1
            tree = Tree(self.pid, self._state.children)
            try:
                if number == signal.SIGCONT:
                    tree.let_go()
                else:
                    await tree.hold(lambda: self._holds == count and self.is_running)
            finally:
                tree.close()
        else:
            self._send_signal(number)

    def _send_signal(self, number: int) -> None:
        self._signals.add(number)
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            send(self.pid, number)

    def resize(self, size: tuple[int, int]) -> None:
        outlet = self.outlets.get("pty")
        if outlet is not None and not outlet.ended:
            terminal.resize(self._terminal, size)

    def kill(self, reason: str) -> None:
        """End the whole tree at once. Returns before it is gone; `done` says when."""
        self.end(reason, 0.0)

    def end(self, reason: str, grace: float) -> None:
        """SIGTERM, `grace` seconds, then the whole tree for certain."""
        if self.done.done():
            return
        if self._ending is not None:
            if grace > 0:
                return
            self._ending.cancel()
        self._reason = self._reason or reason
        self._ending = self._state.tasks.start(self._end_tree(grace))

    def _on_deadline(self) -> None:
        self.end("deadline", self._grace)

    async def _end_tree(self, grace: float) -> None:
        tree = Tree(self.pid, self._state.children)
        try:
            if grace > 0 and self.is_running:
                self._send_signal(signal.SIGTERM)
                await self._wait_for_exit(tree, grace)
            await tree.kill()
        finally:
            tree.close()
            if self._ending is asyncio.current_task():
                self._ending = None
                if self._exit is not None:
                    self._settle()

    async def _wait_for_exit(self, tree: Tree, grace: float) -> None:
        end = self._loop.time() + grace
        while self.is_running and self._loop.time() < end:
            timer = self._loop.call_later(_LOOK_EVERY, self._exited.set)
            await self._exited.wait()
            timer.cancel()
            if self.is_running:
                self._exited.clear()
                tree.look()

    def _on_exit(self, exit_: Exit) -> None:
        self._exit = exit_
        self._exited.set()
        if self._deadline is not None:
            self._deadline.cancel()
        for outlet in self.outlets.values():
            outlet.drain()
        if self._ending is None:
            self._settle()

    def _settle(self) -> None:
        """Finish when the output has ended, or when whoever holds it open has gone quiet."""
        if self.done.done():
            return
        open_outlets = [o for o in self.outlets.values() if not o.ended]
        if not open_outlets:
            self._finish()
            return
        limit = self._loop.time() + _LONGEST_TAIL
        for outlet in open_outlets:
            outlet.on_end = self._finish_if_ended
        self._loop.call_later(_QUIET, self._finish_if_quiet, limit)

    def _finish_if_ended(self) -> None:
        if all(outlet.ended for outlet in self.outlets.values()):
            self._finish()

    def _finish_if_quiet(self, limit: float) -> None:
        if self.done.done():
            return
        now = self._loop.time()
        last = max(outlet.last_data for outlet in self.outlets.values())
        if now >= limit or now - last >= _QUIET:
            self._finish()
        else:
            self._loop.call_later(_QUIET, self._finish_if_quiet, limit)

    def _finish(self) -> None:
        if self.done.done():
            return
        for outlet in self.outlets.values():
            if not outlet.ended:
                outlet.discard()
        if self.stdin is not None:
            self.stdin.abandon()
        self._state.live.discard(self)
        self.done.set_result(self._describe())

    def _describe(self) -> Ending:
        assert self._exit is not None
        code = 124 if self._reason == "deadline" else self._exit.code
        return Ending(
            code,
            self._reason or self._explain(self._exit),
            self._exit.signal,
            self.started_at,
            time.time(),
            self._exit.cpu_seconds,
            self._exit.max_rss_bytes,
        )

    def _explain(self, exit_: Exit) -> str:
        if exit_.code - 128 in self._signals:
            return "cancelled"
        if exit_.code == 128 + signal.SIGKILL and self._oom_kills < (
            self._state.accounting.oom_kills()
        ):
            return "oom"
        if exit_.code != 0 and disk.is_full(self._state.config.state_dir):
            return "disk_full"
        return "exited" if exit_.signal is None else "crashed"


def _open_inlet(spawned: spawn.Spawned) -> Inlet | None:
    if spawned.terminal >= 0:
        return Inlet(os.dup(spawned.terminal))
    return Inlet(spawned.stdin) if spawned.stdin >= 0 else None


def _open_outlets(spawned: spawn.Spawned, on_data: OnData) -> dict[str, Outlet]:
    ends = {"pty": spawned.terminal, "stdout": spawned.stdout, "stderr": spawned.stderr}

    def sink(name: str) -> Callable[[bytes], None]:
        return lambda data: on_data(name, data)

    return {name: Outlet(fd, sink(name)) for name, fd in ends.items() if fd >= 0}
