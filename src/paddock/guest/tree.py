"""The processes that come from one program, and how all of them are ended for certain."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import dataclass
from typing import Callable

from .children import Children

_MOST_PASSES = 200
_GONE_AFTER = 10.0
_STILL_AFTER = 5.0
_STILL_LOOKS = 2


@dataclass(frozen=True)
class Proc:
    """One line of the process table. The start time tells a reused pid from the old one."""

    pid: int
    parent: int
    session: int
    state: str
    start: int

    @property
    def is_dead(self) -> bool:
        return self.state in "ZX"

    @property
    def is_stopped(self) -> bool:
        return self.state in "Tt"

    @property
    def is_still(self) -> bool:
        """Stopped, or deep in the kernel; what is stopped there stops before it does a thing."""
        return self.is_stopped or self.state == "D"


class Tree:
    """A program's descendants, also those that try not to be.

    The program is a child subreaper, so while it lives every descendant stays below it, however
    often it forks away. When it dies they become the guest's: whatever the guest adopts at that
    moment and did not have just before is theirs.
    """

    def __init__(
        self, root: int, children: Children, left_over: dict[int, int] | None = None
    ) -> None:
        """`left_over`: pids and start times of what a guest before this one started."""
        self._root = root
        self._root_ended = False
        self._seen_alive = False
        self._children = children
        self._guest = os.getpid()
        self._members = dict(left_over or {})
        self._strangers: set[tuple[int, int]] = set()
        self.look()
        children.listeners.add(self._on_reap)

    def close(self) -> None:
        self._children.listeners.discard(self._on_reap)

    def look(self) -> list[Proc]:
        """The live members now; remembers who belongs and who does not."""
        table = snapshot()
        # Remembered, because the pid may come back as another program's.
        self._root_ended = self._root_ended or not self._children.is_ours(self._root)
        root = None if self._root_ended else table.get(self._root)
        root_lives = root is not None and not root.is_dead
        if root is not None and root_lives:
            self._seen_alive = True
            self._members[root.pid] = root.start
        for proc in table.values():
            if proc.parent == self._guest and not self._children.is_ours(proc.pid):
                self._judge_orphan(proc, root_lives)
        self._members = {
            p: s for p, s in self._members.items() if p in table and table[p].start == s
        }
        self._add_descendants(table)
        return [table[pid] for pid in self._members if not table[pid].is_dead]

    def _on_reap(self) -> None:
        """Look again if the program ended, or there is an orphan whose origin is clear only now.

        A look takes milliseconds, and other commands may end a thousand times a second.
        """
        if not self._root_ended and self._children.is_ours(self._root):
            children = children_of(self._guest)
            known = {pid for pid, _ in self._strangers}
            if children and all(self._children.is_ours(p) or p in known for p in children):
                return
        self.look()

    def let_go(self) -> None:
        """SIGCONT for every member, those too that come while it is given out."""
        told: set[tuple[int, int]] = set()
        for _ in range(_MOST_PASSES):
            fresh = [p for p in self.look() if (p.pid, p.start) not in told]
            if not fresh:
                return
            for proc in fresh:
                send(proc.pid, signal.SIGCONT)
                told.add((proc.pid, proc.start))

    async def hold(self, is_wanted: Callable[[], bool]) -> None:
        """SIGSTOP for every member, until all stand still or it is not wanted any more.

        One that does not stand still yet may let go on another that does. So all are looked at
        until nothing moved for two looks in a row: a single one may have seen each at another time.
        Who waits for a disk is told each time: it would go on when that answers, and what it was
        told before may have been taken back by another that moved still.
        """
        loop = asyncio.get_running_loop()
        give_up, pause, still = loop.time() + _STILL_AFTER, 0.0005, 0
        told: set[tuple[int, int]] = set()
        while still < _STILL_LOOKS and is_wanted():
            awake = [p for p in self.look() if not p.is_stopped or (p.pid, p.start) not in told]
            moving = [p for p in awake if not p.is_still or (p.pid, p.start) not in told]
            for proc in awake:
                send(proc.pid, signal.SIGSTOP)
                told.add((proc.pid, proc.start))
            still = 0 if moving else still + 1
            if loop.time() >= give_up:
                return
            await asyncio.sleep(pause if moving else 0)
            pause = min(pause * 2, 0.02)

    async def kill(self) -> None:
        """When this returns no member is left, whatever they did meanwhile.

        A stopped process cannot fork, so stopping whatever a pass finds until a pass finds nothing
        new leaves a set that cannot grow; the pids limit bounds the number of passes.
        """
        stopped: set[tuple[int, int]] = set()
        for _ in range(_MOST_PASSES):
            self._stop_at_once()
            fresh = [p for p in self.look() if (p.pid, p.start) not in stopped]
            if not fresh:
                break
            for proc in fresh:
                send(proc.pid, signal.SIGSTOP)
                stopped.add((proc.pid, proc.start))
            await asyncio.sleep(0)
        await self._kill_until_gone()

    async def _kill_until_gone(self) -> None:
        loop = asyncio.get_running_loop()
        give_up = loop.time() + _GONE_AFTER
        pause = 0.001
        while loop.time() < give_up:
            alive = self.look()
            if not alive:
                return
            for proc in alive:
                send(proc.pid, signal.SIGKILL)
            await asyncio.sleep(pause)
            pause = min(pause * 2, 0.05)

    def _stop_at_once(self) -> None:
        """Stop the program's direct children without a look at the whole table in between.

        One that forks and exits in a loop is gone before a full pass reaches it, but it always
        is a child of the program, and this takes only microseconds from reading to stopping.
        """
        if not self._root_ended and self._children.is_ours(self._root):
            send(self._root, signal.SIGSTOP)
            for pid in children_of(self._root):
                send(pid, signal.SIGSTOP)

    def _judge_orphan(self, proc: Proc, root_lives: bool) -> None:
        """Whether something that the guest has adopted came from the program.

        It did if it is still in the program's session, or if it turned up when the program died:
        which can only be said if we looked before, and no other program is known to be its origin.
        """
        key = (proc.pid, proc.start)
        is_new = self._seen_alive and not root_lives and key not in self._strangers
        if proc.session == self._root or (is_new and not self._children.was_ours(proc.session)):
            self._members[proc.pid] = proc.start
        else:
            self._strangers.add(key)

    def _add_descendants(self, table: dict[int, Proc]) -> None:
        below: dict[int, list[Proc]] = {}
        for proc in table.values():
            below.setdefault(proc.parent, []).append(proc)
        todo = list(self._members)
        while todo:
            for proc in below.get(todo.pop(), ()):
                if proc.pid not in self._members:
                    self._members[proc.pid] = proc.start
                    todo.append(proc.pid)


def snapshot() -> dict[int, Proc]:
    """The process table. Who ends while it is read may be missing."""
    table = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            proc = read_proc(int(name))
            if proc is not None:
                table[proc.pid] = proc
    return table


def read_proc(pid: int) -> Proc | None:
    text = read_small(f"/proc/{pid}/stat")
    # The command name is in parentheses and may hold any byte, parentheses too.
    fields = text[text.rfind(b")") + 2 :].split()
    if len(fields) < 20:
        return None
    return Proc(pid, int(fields[1]), int(fields[3]), fields[0].decode("ascii"), int(fields[19]))


def children_of(pid: int) -> list[int]:
    """Direct children, from the kernel's own list; empty where it keeps none."""
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    lists = (read_small(f"/proc/{pid}/task/{task}/children") for task in tasks)
    return [int(child) for text in lists for child in text.split()]


def read_small(path: str) -> bytes:
    """A small file of /proc or /sys; empty when it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, 65536)
    except OSError:
        return b""
    finally:
        os.close(fd)


def send(pid: int, number: int) -> bool:
    """False when there is no such process any more."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True
