"""One durable run: started once, its output on disk, its end recorded until acknowledged."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

from . import disk
from .connect import Message
from .journal import Journal
from .notify import Change
from .process import Process
from .removal import remove_now
from .spawn import Command
from .state import GuestState
from .tasks import warn

_RETRY_FULL_DISK = 1.0
_FULL_DISK_RETRIES = 10
LOST_EXIT_CODE = -1


@dataclass(frozen=True)
class Terms:
    """What was agreed when the run was started; kept on disk as `run.json`."""

    key: str
    digest: str
    cmd: list[str]
    cwd: str
    user: str
    terminal: bool
    log_cap: int
    drops: bool
    """When the log is full: let go of the oldest output instead of holding the program up."""
    started_at: float
    has_inbox: bool = True

    @property
    def streams(self) -> tuple[str, ...]:
        return ("pty",) if self.terminal else ("stdout", "stderr")

    def as_dict(self) -> dict[str, Any]:
        return dict(vars(self))


class Log:
    """One stream of a run: the journal, what of it was acknowledged, and what was let go."""

    def __init__(self, directory: str, name: str, terms: Terms, kept: Message) -> None:
        self.journal = Journal(directory, name, terms.log_cap)
        self.acked = min(int(kept.get("acked", 0)), self.journal.end)
        self.gaps: list[list[int]] = kept.get("gaps", [])
        self._cap = terms.log_cap
        self._drops = terms.drops

    @property
    def is_full(self) -> bool:
        return not self._drops and self.journal.end - self.acked >= self._cap

    def append(self, data: bytes) -> bytes:
        """What could not be written: the disk is full."""
        rest = data[self.journal.append(data) :]
        if self._drops:
            self._shrink()
            rest = b""
        return rest

    def acknowledge(self, offset: int) -> None:
        self.acked = max(self.acked, min(offset, self.journal.end))
        self.journal.release(self.acked)

    def as_dict(self) -> Message:
        return {"acked": self.acked, "gaps": [list(gap) for gap in self.gaps]}

    def lose(self, count: int) -> None:
        """So much came after the end and could not be kept."""
        self.gaps.append([self.journal.end, self.journal.end + count])

    def describe(self) -> Message:
        journal = self.journal
        gaps = [{"from": start, "to": end} for start, end in self.gaps]
        return {"first": journal.first, "end": journal.end, "acked": self.acked, "gaps": gaps}

    def _shrink(self) -> None:
        self.journal.shrink(self._cap)
        first = self.journal.first
        if first <= self.acked:
            return
        if self.gaps and self.gaps[-1][1] >= self.acked:
            self.gaps[-1][1] = first
        else:
            self.gaps.append([self.acked, first])


class Run:
    """A run as it is now. `directory` holds its terms, its logs and, in the end, its exit."""

    def __init__(self, state: GuestState, directory: str, terms: Terms) -> None:
        self._state = state
        self.directory = directory
        self.terms = terms
        kept = disk.read_json(f"{directory}/logs.json") or {}
        self.logs = {
            name: Log(directory, name, terms, kept.get(name, {})) for name in terms.streams
        }
        self.process: Process | None = None
        self.exit: Message | None = disk.read_json(f"{directory}/exit.json")
        self.changed = Change()
        self.forgotten = False
        self.inputs = 0
        """How many numbered inputs it has taken. It dies with the guest, as does the run."""
        self.writing: dict[int, asyncio.Future[None]] = {}
        """Numbered inputs that its pipe has not taken whole."""
        self._unwritten: dict[str, bytes] = {}
        self._kept = self._log_state()

    @property
    def is_running(self) -> bool:
        return self.exit is None

    def start(self, command: Command, timeout: float | None) -> None:
        """Raises GuestError when the command cannot be started."""
        self.process = Process(self._state, command, self._on_output, timeout)
        self._state.tasks.start(self._wait_for_end(self.process))

    def acknowledge(self, offsets: dict[str, int]) -> None:
        """These bytes were read and may go; a program held up by a full log goes on."""
        for name, offset in offsets.items():
            self.logs[name].acknowledge(offset)
        self._keep_log_state()
        self._resume()

    def note_written(self, seq: int, written: asyncio.Future[None]) -> None:
        """Also that nobody waits for it any more is no fault of anybody's."""
        self.writing.pop(seq, None)
        if not written.cancelled() and written.exception() is None:
            self.inputs = max(self.inputs, seq)

    def record_loss(self) -> None:
        """The guest that ran it died with it: it is over, and nobody knows how it ended."""
        now = time.time()
        usage = {"cpuSeconds": 0.0, "maxRssBytes": 0}
        self._record(
            {
                "exitCode": LOST_EXIT_CODE,
                "reason": "provider_lost",
                "startedAt": self.terms.started_at,
                "endedAt": now,
                "usage": usage,
            }
        )

    def forget(self) -> None:
        """Nothing of it is kept; a program that still runs is ended."""
        self.forgotten = True
        if self.process is not None and self.is_running:
            self.process.kill("cancelled")
        for log in self.logs.values():
            log.journal.close()
        remove_now(self.directory)
        self.changed.tell()

    def describe(self) -> Message:
        terms = self.terms
        described: Message = {
            "key": terms.key,
            "cmd": terms.cmd,
            "cwd": terms.cwd,
            "user": terms.user,
            "state": "running" if self.is_running else "ended",
            "startedAt": terms.started_at,
            "streams": {name: log.describe() for name, log in self.logs.items()},
        }
        if self.process is not None and self.is_running:
            described["pid"] = self.process.pid
        if self.exit is not None:
            described["exit"] = self.exit
        return described

    def _on_output(self, name: str, data: bytes) -> None:
        if self.forgotten:
            return
        log = self.logs[name]
        rest = log.append(self._unwritten.pop(name, b"") + data)
        if log.gaps:
            self._keep_log_state()
        if rest:
            self._unwritten[name] = rest
            asyncio.get_running_loop().call_later(_RETRY_FULL_DISK, self._retry, name)
        if (rest or log.is_full) and self.process is not None:
            self.process.outlets[name].pause()
        self.changed.tell()

    def _retry(self, name: str) -> None:
        if name in self._unwritten:
            self._on_output(name, b"")
            self._resume()

    def _resume(self) -> None:
        if self.process is None:
            return
        for name, outlet in self.process.outlets.items():
            if name not in self._unwritten and not self.logs[name].is_full:
                outlet.resume()

    async def _wait_for_end(self, process: Process) -> None:
        ending = await asyncio.shield(process.done)
        for _ in range(_FULL_DISK_RETRIES):
            if not self._unwritten:
                break
            await asyncio.sleep(_RETRY_FULL_DISK)
        for name, data in self._unwritten.items():
            self.logs[name].lose(len(data))
        self.process = None
        if not self.forgotten:
            self._record(ending.as_dict())

    def _record(self, record: Message) -> None:
        try:
            disk.write_json(f"{self.directory}/exit.json", record)
            self._keep_log_state()
        except OSError as error:  # a full disk; who asks this guest is told all the same
            warn(f"the end of run {self.terms.key} could not be written: {error}")
        self.exit = record
        for log in self.logs.values():
            log.journal.close()
        self.changed.tell()

    def _log_state(self) -> Message:
        return {name: log.as_dict() for name, log in self.logs.items()}

    def _keep_log_state(self) -> None:
        now = self._log_state()
        if now != self._kept:
            disk.write_json(f"{self.directory}/logs.json", now)
            self._kept = now
