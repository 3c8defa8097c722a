"""Terminals in a sandbox."""

from collections.abc import Mapping

from paddock.interfaces.client.command import AsyncCommand, Listener
from paddock.interfaces.client.commands import AsyncCommands, Cmd
from paddock.interfaces.client.server import Server

SHELL = ("/bin/sh", "-c", "command -v bash >/dev/null 2>&1 && exec bash -l; exec sh -l")


class AsyncPty:
    """Terminals in one sandbox. Each is a command with a terminal: it goes on when the connection
    breaks, and `commands.connect(id)` takes it up."""

    def __init__(self, server: Server, sandbox: str) -> None:
        self._commands = AsyncCommands(server, sandbox)

    async def create(
        self,
        size: tuple[int, int] = (80, 24),
        *,
        cmd: Cmd = SHELL,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        user: str = "",
        timeout: float | None = None,
        on_data: Listener | None = None,
    ) -> AsyncCommand:
        """A terminal of so many columns and rows with a shell, or another program, on it."""
        return await self._commands.start(
            cmd,
            cwd=cwd,
            env={"TERM": "xterm-256color", **(env or {})},
            user=user,
            timeout=timeout,
            keep_stdin_open=True,
            terminal=size,
            on_stdout=on_data,
        )
