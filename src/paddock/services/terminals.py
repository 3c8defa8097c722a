"""Terminals in a sandbox: a durable command with a screen, which outlives whoever looks at it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from paddock.domain.errors import InvalidRequest
from paddock.domain.team import Principal
from paddock.guest_client.runs import Run, RunExit
from paddock.services.commands import Background, Command, Commands, Piece
from paddock.services.inside import Entered, Inside
from paddock.services.shells import SHELL

_TERM = "xterm-256color"


@dataclass(frozen=True, slots=True)
class TerminalWish:
    """A terminal that is to be, or the one that was left."""

    size: tuple[int, int] | None = None
    """Columns and rows; None keeps what is, or 80 by 24."""
    command: Command | None = None
    """A shell unless said."""
    command_id: str = ""
    """Go back to this one."""
    offset: int = 0
    """What was seen of it already."""


class Terminal:
    """One that somebody sits at."""

    def __init__(self, entered: Entered, run: Run, commands: Commands, who: Principal) -> None:
        self._entered = entered
        self._commands = commands
        self._who = who
        self.id = run.key

    def output(self, offset: int) -> AsyncIterator[Piece | RunExit]:
        sandbox = self._entered.sandbox.id
        return self._commands.follow(self._who, sandbox, self.id, {"pty": offset})

    async def send(self, data: bytes) -> None:
        await self._entered.guest.runs.send_input(self.id, data)

    async def resize(self, columns: int, rows: int) -> None:
        await self._entered.guest.runs.resize(self.id, columns, rows)


class Terminals:
    """While somebody sits at one, it counts as work."""

    def __init__(self, inside: Inside, commands: Commands) -> None:
        self._inside = inside
        self._commands = commands

    @asynccontextmanager
    async def open(
        self, principal: Principal, name: str, wish: TerminalWish
    ) -> AsyncIterator[Terminal]:
        """Started, or found again. It goes on when this ends."""
        async with self._inside.enter(principal, name, "terminal") as entered:
            sandbox = entered.sandbox.id
            if wish.command_id:
                run = await self._commands.get(principal, sandbox, wish.command_id)
                _check_terminal(run, wish.offset)
            else:
                run = await self._start(principal, sandbox, wish)
            terminal = Terminal(entered, run, self._commands, principal)
            if wish.command_id and wish.size and run.exit is None:
                await terminal.resize(*wish.size)
            yield terminal

    async def _start(self, principal: Principal, sandbox: str, wish: TerminalWish) -> Run:
        asked = wish.command or Command(SHELL)
        command = Command(
            argv=asked.argv or SHELL,
            cwd=asked.cwd,
            user=asked.user,
            login=asked.login,
            env={"TERM": _TERM, **asked.env},
        )
        background = Background(terminal=wish.size or (80, 24), keep_stdin_open=True)
        return (await self._commands.start(principal, sandbox, command, background))[1]


def _check_terminal(run: Run, offset: int) -> None:
    if "pty" not in run.streams:
        raise InvalidRequest(
            f"command {run.key} was started without a terminal",
            remediation="follow it with /commands/{id}/output",
        )
    if offset > run.streams["pty"].end:
        raise InvalidRequest(
            f"the cursor is at {offset}, past the end of the output, {run.streams['pty'].end}",
            remediation="use the last cursor that this command has told, or none",
        )
