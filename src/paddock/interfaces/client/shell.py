"""A command as people write it, and as a program takes it."""

import shlex
from collections.abc import Sequence

from paddock.domain.errors import InvalidRequest

# Not a login shell: /etc/profile would replace the PATH that image, template and caller have set.
_SCRIPT = 'command -v bash >/dev/null 2>&1 && exec bash -c "$1"; exec sh -c "$1"'
_WRAPPED = ("/bin/sh", "-c", _SCRIPT, "sh")


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
    return ["sh", "-c", cmd] if login else [*_WRAPPED, cmd]


def shown(argv: Sequence[str]) -> str:
    """As it was written."""
    if tuple(argv[:4]) == _WRAPPED and len(argv) == 5:
        return argv[4]
    return shlex.join(argv)
