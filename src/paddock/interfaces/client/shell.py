"""A command as people write it, and as a program takes it."""

import shlex
from collections.abc import Sequence

from paddock.domain.command_line import WRAPPED
from paddock.domain.errors import InvalidRequest


def argument_vector(cmd: str | Sequence[str], *, login: bool = False) -> list[str]:
    """A string goes to the sandbox's shell, bash where there is one; a list is left as it is.

    Of a command with `login` the server unpacks the script and gives it to the login shell.
    """
    if not cmd:
        raise InvalidRequest(
            "there is no command to run", remediation='give "ls -l" or ["ls", "-l"]'
        )
    if not isinstance(cmd, str):
        return list(cmd)
    return ["sh", "-c", cmd] if login else [*WRAPPED, cmd]


def shown(argv: Sequence[str]) -> str:
    """As it was written."""
    if tuple(argv[:4]) == WRAPPED and len(argv) == 5:
        return argv[4]
    return shlex.join(argv)
