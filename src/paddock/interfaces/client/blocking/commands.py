"""The commands of a sandbox: run to their end, or started and followed.

Written by scripts/blocking.py; do not edit.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, overload

from paddock.interfaces.client.blocking.command import Command
from paddock.interfaces.client.command import AsyncCommand, Listener
from paddock.interfaces.client.commands import DEFAULT_TIMEOUT_S, AsyncCommands, Cmd
from paddock.interfaces.client.portal import portal
from paddock.interfaces.client.results import CommandInfo, CommandResult


class Commands:
    """What runs in a sandbox."""

    _inner: AsyncCommands

    def __init__(self, inner: AsyncCommands) -> None:
        self._inner = inner

    @overload
    def run(
        self,
        cmd: Cmd,
        *,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        user: str = "",
        timeout: float | None = DEFAULT_TIMEOUT_S,
        stdin: bytes | str = b"",
        login: bool = False,
        on_stdout: Listener | None = None,
        on_stderr: Listener | None = None,
        check: bool = False,
        durable: bool = True,
        background: Literal[False] = False,
    ) -> CommandResult: ...

    @overload
    def run(
        self,
        cmd: Cmd,
        *,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        user: str = "",
        timeout: float | None = None,
        stdin: bytes | str = b"",
        login: bool = False,
        on_stdout: Listener | None = None,
        on_stderr: Listener | None = None,
        background: Literal[True],
    ) -> Command: ...

    @overload
    def run(self, cmd: Cmd, *, background: bool, **how: Any) -> CommandResult | Command: ...

    def run(
        self,
        cmd: Cmd,
        *,
        on_stdout: Listener | None = None,
        on_stderr: Listener | None = None,
        check: bool = False,
        durable: bool = True,
        background: bool = False,
        **how: Any,
    ) -> CommandResult | Command:
        """Run a command. A string goes to the sandbox's shell, a list runs as it is.

        It is waited for, and ended when its time is up (exit code 124) or when the wait is
        cancelled. With `background` it is only started and goes on alone. With `login` it has
        what a person's terminal has, version managers included. One that is not `durable` costs
        less, tells nothing before its end, and ends with the connection.
        """
        ran = portal().run(
            self._inner.run(
                cmd,
                on_stdout=portal().back(on_stdout),
                on_stderr=portal().back(on_stderr),
                check=check,
                durable=durable,
                background=background,
                **how,
            )
        )
        return Command(ran) if isinstance(ran, AsyncCommand) else ran

    def start(
        self,
        cmd: Cmd,
        *,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        user: str = "",
        timeout: float | None = None,
        stdin: bytes | str = b"",
        login: bool = False,
        keep_stdin_open: bool = False,
        terminal: tuple[int, int] | None = None,
        on_stdout: Listener | None = None,
        on_stderr: Listener | None = None,
    ) -> Command:
        """Start a command that goes on by itself; the same as `run(…, background=True)`.

        `keep_stdin_open` leaves its input to `send_input`; `terminal` gives it one of so many
        columns and rows.
        """
        return Command(
            portal().run(
                self._inner.start(
                    cmd,
                    cwd=cwd,
                    env=env,
                    user=user,
                    timeout=timeout,
                    stdin=stdin,
                    login=login,
                    keep_stdin_open=keep_stdin_open,
                    terminal=terminal,
                    on_stdout=portal().back(on_stdout),
                    on_stderr=portal().back(on_stderr),
                )
            )
        )

    def connect(
        self,
        command_id: str,
        *,
        cursor: str = "",
        on_stdout: Listener | None = None,
        on_stderr: Listener | None = None,
    ) -> Command:
        """A command that was started before, by its id; its output from the cursor on."""
        return Command(
            portal().run(
                self._inner.connect(
                    command_id,
                    cursor=cursor,
                    on_stdout=portal().back(on_stdout),
                    on_stderr=portal().back(on_stderr),
                )
            )
        )

    def get(self, command_id: str) -> CommandInfo:
        return portal().run(self._inner.get(command_id))

    def list(self) -> Sequence[CommandInfo]:
        """Those that run, and those that ended and were not forgotten."""
        return portal().run(self._inner.list())
