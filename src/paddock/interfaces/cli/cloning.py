"""A shallow clone, made on this machine with its user's own access, for a sandbox that has none."""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from paddock.domain.errors import Refused, Unavailable
from paddock.interfaces.cli.params import Copy

PLACE = "project"
# `ext::` and other helpers would let a URL run commands here.
_ENVIRONMENT = {"GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh"}


@dataclass(frozen=True, slots=True)
class Repository:
    """What to clone. The URL may hold a password, which never goes into a sandbox or a message."""

    url: str
    branch: str = ""

    @property
    def plain_url(self) -> str:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or "@" not in parts.netloc:
            return self.url
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


@asynccontextmanager
async def cloned(repository: Repository | None, target: str) -> AsyncIterator[tuple[Copy, ...]]:
    """What has to be copied in for the repository to be there; nothing when there is none."""
    if repository is None:
        yield ()
        return
    with tempfile.TemporaryDirectory(prefix="paddock-clone-") as directory:
        checkout = Path(directory) / "checkout"
        branch = ("--branch", repository.branch) if repository.branch else ()
        words = ("clone", "--quiet", "--depth=1", *branch, "--", repository.url, str(checkout))
        await _git(repository, words)
        if repository.plain_url != repository.url:
            words = ("-C", str(checkout), "remote", "set-url", "origin", repository.plain_url)
            await _git(repository, words)
        yield (Copy(checkout, target),)


async def _git(repository: Repository, words: Sequence[str]) -> None:
    try:
        process = await asyncio.create_subprocess_exec(
            "git",
            *words,
            env={**os.environ, **_ENVIRONMENT},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
    except FileNotFoundError as error:
        fix = "apt-get install git"
        raise Unavailable("git is not installed on this machine", remediation=fix) from error
    try:
        _, said = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    if process.returncode == 0:
        return
    lines = said.decode(errors="replace").replace(repository.url, repository.plain_url).split("\n")
    branch = f" at branch {repository.branch}" if repository.branch else ""
    why = "; ".join(line.strip() for line in lines if line.strip())[-500:]
    raise Refused(
        f"{repository.plain_url}{branch} could not be cloned: {why}",
        remediation="check the address, the branch and your access with `git ls-remote`",
    )
