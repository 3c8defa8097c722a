"""Commands in the log of events: when each began, by whom, and how it ended."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from paddock.domain.audit import AuditEntry
from paddock.domain.errors import PaddockError
from paddock.domain.event import Event, EventKind
from paddock.domain.ids import new_id
from paddock.domain.records import SandboxRecord, app_in
from paddock.domain.team import Principal
from paddock.ports.clock import Clock
from paddock.ports.store import Store, Transaction

_log = logging.getLogger(__name__)
_MOST_REMEMBERED = 10_000
_FIRST_LOOK_S = 1.0
_LONGEST_LOOK_S = 15.0


class CommandLog:
    """Nobody waits for an end to be written: a command's caller has better things to do."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._told: set[str] = set()
        self._writing: set[asyncio.Task[None]] = set()
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
        self, principal: Principal, sandbox: SandboxRecord, command_id: str, **how: object
    ) -> None:
        """Whoever sees the end first tells of it; that may be long after, or after a restart."""
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
        task = asyncio.create_task(self._write(event, command_id), name=f"end of {command_id}")
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    def attend(self, command_id: str, look: Callable[[], Awaitable[bool]]) -> None:
        """Look after a command that nobody may follow, from time to time, until its end is told."""
        task = asyncio.create_task(self._attend(command_id, look), name=f"attend {command_id}")
        self._attending.add(task)
        task.add_done_callback(self._attending.discard)

    async def _attend(self, command_id: str, look: Callable[[], Awaitable[bool]]) -> None:
        pause = _FIRST_LOOK_S
        with suppress(PaddockError):  # it went with its sandbox, or was forgotten
            while command_id not in self._told:
                await self._clock.sleep(pause)
                pause = min(2 * pause, _LONGEST_LOOK_S)
                if command_id in self._told or await look():
                    return

    async def aclose(self) -> None:
        for task in self._attending:
            task.cancel()
        await asyncio.gather(*self._attending, *self._writing, return_exceptions=True)

    async def _write(self, event: Event, command_id: str) -> None:
        mine = new_id("evt")

        def once(tx: Transaction) -> None:
            claimed = tx.keys.claim(
                event.team_id,
                f"end of {command_id}",
                fingerprint="",
                object_id=mine,
                now=event.at,
            )
            if claimed == mine:
                tx.events.append([event])

        try:
            await self._store.write(once)
        except PaddockError as error:
            _log.warning("end not told", extra={"id": command_id, "error": error.message})
