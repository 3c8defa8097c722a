"""Terminals in a sandbox.

Written by scripts/blocking.py; do not edit.
"""

from collections.abc import Mapping

from paddock.interfaces.client.blocking.command import Command
from paddock.interfaces.client.command import Listener
from paddock.interfaces.client.commands import Cmd
from paddock.interfaces.client.portal import portal
from paddock.interfaces.client.pty import SHELL, AsyncPty


class Pty:
    """Terminals in one sandbox. Each is a command with a terminal: it goes on when the connection
    breaks, and `commands.connect(id)` takes it up."""

    _inner: AsyncPty

    def __init__(self, inner: AsyncPty) -> None:
        self._inner = inner

    def create(
        self,
        size: tuple[int, int] = (80, 24),
        *,
        cmd: Cmd = SHELL,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        user: str = "",
        timeout: float | None = None,
        on_data: Listener | None = None,
    ) -> Command:
        """A terminal of so many columns and rows with a shell, or another program, on it."""
        return Command(
            portal().run(
                self._inner.create(
                    size,
                    cmd=cmd,
                    cwd=cwd,
                    env=env,
                    user=user,
                    timeout=timeout,
                    on_data=portal().back(on_data),
                )
            )
        )
