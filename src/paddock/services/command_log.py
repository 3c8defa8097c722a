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
    command_id: str
    seen_by_all: bool
    """Others may tell of it too, and only one shall."""


class CommandLog:
    """Nobody waits for an end to be written: a command's caller has better things to do."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._told: set[tuple[str, str]] = set()
        """By team as well: who starts a command may choose its id."""
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
        known = (sandbox.team_id, command_id)
        if known in self._told:
            return
        if len(self._told) >= _MOST_REMEMBERED:
            self._told.clear()
        self._told.add(known)
        event = Event(
            sandbox.team_id,
            EventKind.COMMAND_ENDED,
            sandbox.id,
            self._clock.wall(),
            {"command": command_id, **how, **app_in(sandbox)},
            principal.actor,
        )
        self._ends.append(_End(event, command_id, seen_by_all))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_ends(), name="ends of commands")

    def attend(
        self, sandbox: SandboxRecord, command_id: str, look: Callable[[], Awaitable[bool]]
    ) -> None:
        """Look after a command that nobody may follow, from time to time, until its end is told or
        `look` says that there is nothing to wait for."""
        known = (sandbox.team_id, command_id)
        task = asyncio.create_task(self._attend(known, look), name=f"attend {command_id}")
        self._attending.add(task)
        task.add_done_callback(self._attending.discard)

    async def _attend(self, known: tuple[str, str], look: Callable[[], Awaitable[bool]]) -> None:
        pause = _FIRST_LOOK_S
        while known not in self._told:
            await self._clock.sleep(pause)
            pause = min(2 * pause, _LONGEST_LOOK_S)
            try:
                if known in self._told or await look():
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
            await self._write(ends)

    async def _write(self, ends: Sequence[_End]) -> None:
        try:
            await self._store.write(partial(_tell, ends))
        except PaddockError as error:
            if len(ends) > 1 and not error.retryable:  # what one of them says is no other's fault
                for end in ends:
                    await self._write([end])
                return
            _log.warning("ends not told", extra={"count": len(ends), "error": error.message})


def _tell(ends: Sequence[_End], tx: Transaction) -> None:
    tx.events.append([end.event for end in ends if not end.seen_by_all or _is_first(end, tx)])


def _is_first(end: _End, tx: Transaction) -> bool:
    return tx.ends.note_told(end.event.team_id, end.event.subject, end.command_id)
