"""One channel of a visitor: a shell, a command, or a transfer of files."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, cast

import asyncssh
from asyncssh.channel import SSHChannel
from asyncssh.stream import SSHServerStreamSession

from paddock.domain.errors import PaddockError
from paddock.guest_client.commands import Ended
from paddock.interfaces.ssh.endings import FAILED, Ending, ending_of
from paddock.interfaces.ssh.sftp import SandboxFiles
from paddock.interfaces.ssh.words import said
from paddock.services.ssh_access import Admitted
from paddock.services.ssh_visits import Program, ProgramWish, SshVisits

_PIECE = 64 << 10
_SFTP_VERSION = 3
_MOST_VARIABLES = 100
_LONGEST_VARIABLE = 32 << 10
_LARGEST_SIDE = 4096


class Session(SSHServerStreamSession[bytes]):
    """Its program ends when the channel does."""

    def __init__(
        self, visits: SshVisits, admitted: Admitted, left: Callable[["Session"], None]
    ) -> None:
        super().__init__(self._serve, self._open_files, _SFTP_VERSION, allow_scp=True)
        self._visits = visits
        self._admitted = admitted
        self._left = left
        self._program: Program | None = None
        self._runs = False
        self.task: asyncio.Task[Any] | None = None
        """What serves it, while it does."""

    def say(self, text: str) -> None:
        """To the person, beside what the program says."""
        channel = cast("asyncssh.SSHServerChannel[bytes] | None", self._chan)
        if channel is not None and not channel.is_closing():
            terminal = channel.get_terminal_type() is not None
            channel.write_stderr(said(text, terminal=terminal))

    def subsystem_requested(self, subsystem: str) -> bool:
        return subsystem == "sftp"

    def signal_received(self, signal: str) -> None:
        self._pass_on(lambda program: program.signal(f"SIG{signal}"))

    def break_received(self, msec: int) -> bool:
        del msec
        self._pass_on(lambda program: program.signal("SIGINT"))
        return True

    def terminal_size_changed(self, width: int, height: int, pixwidth: int, pixheight: int) -> None:
        del pixwidth, pixheight
        size = _size(width, height)
        self._pass_on(lambda program: program.resize(*size))

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        # A transfer hears of it where it reads, and closes its files.
        if self.task is not None and self._runs:
            self.task.cancel()
        self._left(self)

    def _pass_on(self, act: Callable[[Program], Coroutine[Any, Any, None]]) -> None:
        if self._program is None or self._conn is None:
            return
        self._conn.create_task(_quietly(partial(act, self._program)))

    async def _serve(
        self,
        stdin: "asyncssh.SSHReader[bytes]",
        stdout: "asyncssh.SSHWriter[bytes]",
        stderr: "asyncssh.SSHWriter[bytes]",
    ) -> None:
        self.task, self._runs = asyncio.current_task(), True
        channel = cast("asyncssh.SSHServerChannel[bytes]", stdout.channel)
        try:
            await self._visits.awake(self._admitted, self.say)
            async with self._visits.program(self._admitted, _wish(channel)) as program:
                self._program = program
                ending = await _converse(program, stdin, stdout, stderr)
        except PaddockError as error:
            self.say(str(error))
            ending = Ending(status=FAILED)
        except (OSError, asyncssh.Error):
            return  # the channel has gone
        finally:
            self._program = None
        if ending.signal:
            channel.exit_with_signal(ending.signal)
        else:
            channel.exit(ending.status)

    async def _open_files(self, opened: "SSHChannel[bytes]") -> SandboxFiles:
        self.task = asyncio.current_task()
        channel = cast("asyncssh.SSHServerChannel[bytes]", opened)
        try:
            await self._visits.awake(self._admitted, self.say)
            await self._visits.note(self._admitted, "ssh.files")
        except PaddockError as error:
            self.say(str(error))
            channel.exit(FAILED)
        return SandboxFiles(channel, self._visits, self._admitted)


async def _converse(
    program: Program,
    stdin: "asyncssh.SSHReader[bytes]",
    stdout: "asyncssh.SSHWriter[bytes]",
    stderr: "asyncssh.SSHWriter[bytes]",
) -> Ending:
    """Until the program has ended and all that it said is on its way."""
    feeding = asyncio.create_task(
        _quietly(lambda: program.feed(_pieces(stdin))), name="input by ssh"
    )
    try:
        async for event in program.output():
            if isinstance(event, Ended):
                return ending_of(event)
            writer = stderr if event.stream == "stderr" else stdout
            writer.write(event.data)
            await writer.drain()
    finally:
        feeding.cancel()
        with suppress(asyncio.CancelledError):
            await feeding
    return Ending(status=FAILED)


async def _pieces(stdin: "asyncssh.SSHReader[bytes]") -> AsyncIterator[bytes]:
    while data := await stdin.read(_PIECE):
        yield data


async def _quietly(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """What fails beside the conversation shows in the conversation itself."""
    with suppress(PaddockError, OSError, asyncssh.Error):
        await work()


def _wish(channel: "asyncssh.SSHServerChannel[bytes]") -> ProgramWish:
    term = channel.get_terminal_type()
    env = accepted(channel.get_environment())
    if term is None:
        return ProgramWish(channel.get_command() or "", env)
    width, height, *_ = channel.get_terminal_size()
    return ProgramWish(
        channel.get_command() or "", {**env, "TERM": term or "xterm"}, _size(width, height)
    )


def accepted(env: Mapping[str, str]) -> dict[str, str]:
    """Whoever is in the sandbox may set any variable there, so only nonsense is left out."""
    return {
        name: value
        for name, value in list(env.items())[:_MOST_VARIABLES]
        if name.isidentifier() and "\0" not in value and len(value) <= _LONGEST_VARIABLE
    }


def _size(width: int, height: int) -> tuple[int, int]:
    return min(width or 80, _LARGEST_SIDE), min(height or 24, _LARGEST_SIDE)
