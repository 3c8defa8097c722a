"""Commands in the log of events: when each began, by whom, and how it ended."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from paddock.domain.audit import AuditEntry
from paddock.domain.errors import NotFound, PaddockError
from paddock.domain.event import Event, EventKind
from paddock.domain.ids import new_id
from paddock.domain.records import SandboxRecord, app_in
from paddock.domain.team import Principal
from paddock.ports.clock import Clock
from paddock.ports.store import Store, Transaction

_log = logging.getLogger(__name__)
_MOST_REMEMBERED = 10_000
_TOGETHER_S = 0.02
"""Ends that come within this time are written at once: each commit costs as much as a command."""
_FIRST_LOOK_S = 1.0
_LONGEST_LOOK_S = 15.0


@dataclass(frozen=True, slots=True)
class _End:
    event: Event
    key: str
    """By which only one tells of it; empty where there is no other."""


class CommandLog:
    """Nobody waits for an end to be written: a command's caller has better things to do."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._told: set[str] = set()
        self._ends: list[_End] = []
        self._writing: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()
        self._attending: set[asyncio.Task[None]] = set()

    async def began(
        self,
        principal: Principal,
        sandbox: SandboxRecord,
        command_id: str,
        *,
        action: str,
        detail: Mapping[str, object],
    ) -> None:
        """The act and the event, in one transaction."""
        now = self._clock.wall()
        entry = AuditEntry(principal.team_id, principal.actor, action, sandbox.id, now, detail)
        event = Event(
            sandbox.team_id,
            EventKind.COMMAND_STARTED,
            sandbox.id,
            now,
            {"command": command_id, **detail, **app_in(sandbox)},
            principal.actor,
        )
        await self._store.write(lambda tx: (tx.audit.append([entry]), tx.events.append([event])))

    def ended(
        self,
        principal: Principal,
        sandbox: SandboxRecord,
        command_id: str,
        how: Mapping[str, object],
        *,
        seen_by_all: bool = False,
    ) -> None:
        """Whoever sees the end first tells of it; that may be long after, or after a restart.
        Unless all can see it, nobody else can tell."""
        if command_id in self._told:
            return
        if len(self._told) >= _MOST_REMEMBERED:
            self._told.clear()
        self._told.add(command_id)
        event = Event(
            sandbox.team_id,
            EventKind.COMMAND_ENDED,
            sandbox.id,
            self._clock.wall(),
            {"command": command_id, **how, **app_in(sandbox)},
            principal.actor,
        )
        self._ends.append(_End(event, f"end of {command_id}" if seen_by_all else ""))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_ends(), name="ends of commands")

    def attend(self, command_id: str, look: Callable[[], Awaitable[bool]]) -> None:
        """Look after a command that nobody may follow, from time to time, until its end is told."""
        task = asyncio.create_task(self._attend(command_id, look), name=f"attend {command_id}")
        self._attending.add(task)
        task.add_done_callback(self._attending.discard)

    async def _attend(self, command_id: str, look: Callable[[], Awaitable[bool]]) -> None:
        pause = _FIRST_LOOK_S
        while command_id not in self._told:
            await self._clock.sleep(pause)
            pause = min(2 * pause, _LONGEST_LOOK_S)
            try:
                if command_id in self._told or await look():
                    return
            except NotFound:  # it went with its sandbox, or was forgotten
                return
            except PaddockError:  # who is paused or out of reach may come back
                pause = _LONGEST_LOOK_S

    async def aclose(self) -> None:
        for task in self._attending:
            task.cancel()
        self._hurry.set()
        await asyncio.gather(*self._attending, return_exceptions=True)
        if self._writing is not None:
            await self._writing

    async def _write_ends(self) -> None:
        while self._ends:
            with suppress(TimeoutError):
                async with asyncio.timeout(_TOGETHER_S):
                    await self._hurry.wait()
            ends, self._ends = self._ends, []
            try:
                await self._store.write(partial(_tell, ends))
            except PaddockError as error:
                _log.warning("ends not told", extra={"count": len(ends), "error": error.message})


def _tell(ends: Sequence[_End], tx: Transaction) -> None:
    tx.events.append([end.event for end in ends if not end.key or _is_first(end, tx)])


def _is_first(end: _End, tx: Transaction) -> bool:
    mine, event = new_id("evt"), end.event
    claimed = tx.keys.claim(event.team_id, end.key, fingerprint="", object_id=mine, now=event.at)
    return claimed == mine
