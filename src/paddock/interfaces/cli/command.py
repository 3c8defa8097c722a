"""A command in a sandbox: what to run, how it is run, and what its end means."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import click

from paddock.domain.guest import CommandResult
from paddock.domain.reason import Reason
from paddock.interfaces.cli import terminal

STDIN, STDOUT, STDERR = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Wish:
    """What to run, and how."""

    argv: Sequence[str]
    user: str = ""
    workdir: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float | None = None
    tty: bool | None = None
    """None decides by what this process's streams are."""
    login: bool = False

    @property
    def wants_terminal(self) -> bool:
        if self.tty is not None:
            return self.tty
        at_terminal = terminal.is_terminal(STDIN, STDOUT, STDERR)
        return at_terminal and terminal.is_readable(STDIN)


def explain(result: CommandResult, wish: Wish, memory_mib: int | None = None) -> None:
    """Say on stderr what an exit code alone does not."""
    if result.reason is Reason.DEADLINE:
        click.echo(f"note: ended at its deadline of {wish.timeout_s:g} s", err=True)
    elif result.reason is Reason.OOM:
        limit = f"; the limit is {memory_mib} MiB, --memory raises it" if memory_mib else ""
        click.echo(f"note: killed because memory ran out (oom){limit}", err=True)
