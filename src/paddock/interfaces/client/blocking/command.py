"""One command that was started: its output as it comes, its input, its end.

Written by scripts/blocking.py; do not edit.
"""

from collections.abc import Iterator

from paddock.interfaces.client.command import AsyncCommand
from paddock.interfaces.client.portal import portal
from paddock.interfaces.client.results import CommandInfo, CommandResult, Output


class Command:
    """A command that goes on by itself. Iterate over it for its output, or wait for its end.

    It survives this process and the server's restarts: `commands.connect(id)` takes it up again.
    """

    _inner: AsyncCommand

    def __init__(self, inner: AsyncCommand) -> None:
        self._inner = inner

    @property
    def id(self) -> str:
        return self._inner.id

    @property
    def cursor(self) -> str:
        """How far its output was read here; `commands.connect(id, cursor=…)` goes on from it."""
        return self._inner.cursor

    def __iter__(self) -> Iterator[Output]:
        return portal().each(aiter(self._inner))

    def output(self, *, follow: bool = True) -> Iterator[Output]:
        """What it says until it has ended or, without `follow`, what it has said so far."""
        return portal().each(self._inner.output(follow=follow))

    def wait(self, *, check: bool = False) -> CommandResult:
        """How it ended, with the output that has passed through this object.

        With `check`, CommandFailed unless it ended with 0.
        """
        return portal().run(self._inner.wait(check=check))

    def send_input(self, data: bytes | str) -> None:
        """Write to its standard input, or type on its terminal."""
        portal().run(self._inner.send_input(data))

    def close_input(self) -> None:
        """Nothing more will come: what it reads ends there."""
        portal().run(self._inner.close_input())

    def send_signal(self, signal: str = "SIGINT") -> None:
        """To its process group."""
        portal().run(self._inner.send_signal(signal))

    def resize(self, columns: int, rows: int) -> None:
        """Of its terminal."""
        portal().run(self._inner.resize(columns, rows))

    def kill(self, grace: float = 5.0) -> None:
        """End it with everything it started: SIGTERM, and SIGKILL after the grace."""
        portal().run(self._inner.kill(grace))

    def info(self) -> CommandInfo:
        return portal().run(self._inner.info())

    def forget(self) -> None:
        """Let go of the output that is kept of it. It must have ended."""
        portal().run(self._inner.forget())

    def abandon(self) -> None:
        """Whoever waited for it has gone: end it and let go of it, as far as that is possible."""
        portal().run(self._inner.abandon())
