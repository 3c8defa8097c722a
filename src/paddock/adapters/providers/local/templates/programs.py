"""Running other programs so that none of their processes outlives us."""

import asyncio
import os
import re
import shutil
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from paddock.domain.errors import Unavailable

_LAST_LINES = 20
_LINE_END = re.compile(r"[\r\n]+")

_PACKAGES = {
    "bwrap": "bubblewrap",
    "mmdebstrap": "mmdebstrap",
    "skopeo": "skopeo",
    "umoci": "umoci",
    "tar": "tar",
    "zstd": "zstd",
}


class ProgramFailed(Exception):
    """A program ended with another status than 0; callers say what that means."""

    def __init__(self, command: Sequence[str], status: int, tail: Sequence[str]) -> None:
        super().__init__(f"{command[0]} ended with status {status}")
        self.status = status
        self.tail = list(tail)

    def mentions(self, *signs: str) -> str:
        """The last line with one of these signs in it, or nothing."""
        found = [line for line in self.tail if any(sign in line.lower() for sign in signs)]
        return found[-1] if found else ""

    def last_lines(self) -> str:
        return "\n    ".join(self.tail) or "it said nothing"


def need(*names: str) -> None:
    """Raise Unavailable with the way to install what is missing."""
    if missing := [name for name in names if not shutil.which(name)]:
        packages = " ".join(_PACKAGES[name] for name in missing)
        raise Unavailable(
            f"{', '.join(missing)} is needed to build this template and is not installed",
            remediation=f"apt install {packages}",
        )


async def run(
    command: Sequence[str],
    *,
    on_line: Callable[[str], None] | None = None,
    env: Mapping[str, str] | None = None,
    inherit: bool = True,
    pass_fds: Sequence[int] = (),
) -> bytes:
    """The program's standard output; `on_line` sees what it says on standard error.

    Without `inherit` the program gets only the given environment.
    """
    process = await asyncio.create_subprocess_exec(
        *_confined(command),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**(os.environ if inherit else {}), "LC_ALL": "C.UTF-8", **(env or {})},
        pass_fds=pass_fds,
    )
    assert process.stdout
    assert process.stderr
    try:
        output, tail = await asyncio.gather(
            process.stdout.read(), _read_lines(process.stderr, on_line)
        )
        status = await process.wait()
    except BaseException:
        if process.returncode is None:
            process.kill()
            await process.wait()
        raise
    if status:
        raise ProgramFailed(command, status, tail)
    return output


def _confined(command: Sequence[str]) -> list[str]:
    """In a process namespace of its own, whose end is the end of everything in it.

    A package manager starts many processes; one that went on after we were killed would write into
    a directory that somebody else is removing. Only root may have such a namespace.
    """
    if not (shutil.which("setpriv") and shutil.which("unshare")):
        return list(command)
    tied = ["setpriv", "--pdeathsig", "KILL", "--"]
    if os.geteuid() != 0:
        return [*tied, *command]
    namespace = ["unshare", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", "--"]
    return [*tied, *namespace, *command]


async def _read_lines(
    stream: asyncio.StreamReader, on_line: Callable[[str], None] | None
) -> deque[str]:
    tail: deque[str] = deque(maxlen=_LAST_LINES)
    rest = ""
    while chunk := await stream.read(65536):
        *lines, rest = _LINE_END.split(rest + chunk.decode(errors="replace"))
        for line in filter(str.strip, lines):
            tail.append(line)
            if on_line:
                on_line(line)
    if rest.strip():
        tail.append(rest)
    return tail
