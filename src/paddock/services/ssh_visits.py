"""What somebody who came in by SSH does in the sandbox: programs, files, connections."""

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    aclosing,
    asynccontextmanager,
    suppress,
)
from dataclasses import dataclass, field

from paddock.domain.audit import AuditEntry
from paddock.domain.errors import Broken, Conflict, NotFound, PaddockError, TimedOut
from paddock.domain.quarantine import check_open
from paddock.domain.records import SandboxRecord
from paddock.domain.sandbox import SandboxState
from paddock.guest_client.commands import CommandEvent, Ended, Output, Started
from paddock.ports.clock import Clock
from paddock.ports.store import Store
from paddock.services.activity import Activity
from paddock.services.changes import Changes
from paddock.services.guests import check_runs
from paddock.services.inside import Entered, Inside
from paddock.services.policies import Policies
from paddock.services.previews import Previews
from paddock.services.shells import SHELL
from paddock.services.ssh_access import Admitted
from paddock.services.transfers import TransferGuest

_WAKING_S = 120.0
_LOOK_EVERY_S = 0.05
_HANG_UP_S = 2.0
_WAITED_FOR = (
    SandboxState.CREATING,
    SandboxState.STOPPED,
    SandboxState.PAUSED,
    SandboxState.ARCHIVED,
)
_RUN = 'command -v bash >/dev/null && exec bash -c "$0"; exec sh -c "$0"'
"""As an SSH server does it: the shell gets the line as it was sent."""

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ProgramWish:
    """A program that somebody sits at."""

    line: str = ""
    """For a shell to run; the shell itself where there is none."""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    terminal: tuple[int, int] | None = None
    """Columns and rows."""

    @property
    def argv(self) -> tuple[str, ...]:
        return ("sh", "-c", _RUN, self.line) if self.line else SHELL

    @property
    def asked_for(self) -> tuple[str, ...]:
        """The same as a policy reads it."""
        return ("sh", "-c", self.line) if self.line else SHELL


class Program:
    """One that runs, and ends with who started it."""

    def __init__(
        self,
        guest: TransferGuest,
        pid: int,
        events: AsyncIterator[CommandEvent],
        *,
        terminal: bool,
    ) -> None:
        self._guest = guest
        self._pid = pid
        self._events = events
        self._terminal = terminal
        self.ended = False

    async def output(self) -> AsyncIterator[Output | Ended]:
        """All of it, and at last how it ended."""
        async for event in self._events:
            if isinstance(event, Ended):
                self.ended = True
            if not isinstance(event, Started):
                yield event
            if self.ended:
                return

    async def feed(self, pieces: AsyncIterator[bytes]) -> None:
        """To its input, as fast as it reads, and then the end of it. It may stop reading."""
        commands = self._guest.commands
        with suppress(NotFound, Conflict, Broken):
            await commands.stream_input(self._pid, pieces, terminal=self._terminal)
            if not self._terminal:
                await commands.close_input(self._pid)

    async def resize(self, columns: int, rows: int) -> None:
        if self._terminal and not self.ended:
            await self._guest.commands.resize(self._pid, columns, rows)

    async def signal(self, name: str) -> None:
        if not self.ended:
            await self._guest.commands.signal(self._pid, name)

    async def hang_up(self) -> None:
        """What a terminal that goes away tells its programs; `nohup` is for those that stay.

        One that has ended is left in peace.
        """
        with suppress(PaddockError, TimeoutError):
            async with asyncio.timeout(_HANG_UP_S):
                await self.signal("SIGHUP")


class SshVisits:
    """Everything here is done with the rights of who was let in."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        inside: Inside,
        changes: Changes,
        previews: Previews,
        activity: Activity,
        policies: Policies,
    ) -> None:
        self._policies = policies
        self._store = store
        self._clock = clock
        self._inside = inside
        self._changes = changes
        self._previews = previews
        self._activity = activity

    def staying(self, admitted: Admitted) -> AbstractContextManager[None]:
        """While this is open the sandbox is at work."""
        return self._activity.working(admitted.sandbox.id, "ssh")

    async def awake(self, admitted: Admitted, tell: Tell) -> SandboxRecord:
        """The sandbox, running: a sleeping one is woken, and `tell` hears of that."""
        waits = False
        ends = self._clock.now() + _WAKING_S
        while True:
            sandbox = await self._changes.find(admitted.access.team_id, admitted.sandbox.id)
            check_open(sandbox.quarantine, sandbox.name, admitted.principal)
            if sandbox.state not in _WAITED_FOR:
                check_runs(sandbox)
                return sandbox
            if (failed := self._previews.wake(sandbox)) is not None:
                raise failed
            if not waits:
                tell(f"sandbox {sandbox.name} is {sandbox.state}; it is being started")
            waits = True
            if self._clock.now() >= ends:
                raise TimedOut(
                    f"sandbox {sandbox.name} did not start within {_WAKING_S:g} s",
                    remediation=f"`paddock inspect {sandbox.name}` says what became of it",
                )
            await self._clock.sleep(_LOOK_EVERY_S)

    @asynccontextmanager
    async def program(self, admitted: Admitted, wish: ProgramWish) -> AsyncIterator[Program]:
        """Started, if the policies allow it; hung up in the end if it has not ended by itself."""
        async with self.enter(admitted) as entered:
            await self._policies.check(
                admitted.principal, entered.sandbox, wish.asked_for, wish.env
            )
            await self.note(admitted, "ssh.run", what="command" if wish.line else "shell")
            events = entered.guest.start(
                wish.argv,
                user=admitted.access.user or None,
                cwd="~",
                env=wish.env,
                terminal=wish.terminal,
                stdin=True,
            )
            assert isinstance(events, AsyncGenerator)
            async with aclosing(events):
                started = await anext(events)
                if not isinstance(started, Started):
                    raise Broken("the guest did not say that the program has started")
                terminal = wish.terminal is not None
                program = Program(entered.guest, started.pid, events, terminal=terminal)
                try:
                    yield program
                finally:
                    await program.hang_up()

    def enter(self, admitted: Admitted) -> AbstractAsyncContextManager[Entered]:
        return self._inside.enter(admitted.principal, admitted.sandbox.id, "ssh")

    async def connect(self, admitted: Admitted, port: int, tell: Tell) -> socket.socket:
        """A connection to a port inside; OSError when nobody listens there."""
        sandbox = await self.awake(admitted, tell)
        return await self._previews.connect(sandbox, port)

    async def note(self, admitted: Admitted, action: str, **detail: object) -> None:
        """In the audit log. What was typed is not: it may hold what nobody should read later."""
        entry = AuditEntry(
            team_id=admitted.access.team_id,
            actor=admitted.principal.actor,
            action=action,
            subject=admitted.sandbox.id,
            at=self._clock.wall(),
            detail={"access": admitted.access.id, **detail},
        )
        await self._store.write(lambda tx: tx.audit.append([entry]))
