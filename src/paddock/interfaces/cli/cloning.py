"""A shallow clone, made on this machine with its user's own access, for a sandbox that has none."""

import math
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import click

from paddock.domain.errors import Refused, Unavailable
from paddock.interfaces.cli.failures import refuse
from paddock.interfaces.cli.git import GitFailed, Patience, TooSlow, Watch, run_git, seconds
from paddock.interfaces.cli.output import printable, size
from paddock.interfaces.cli.params import Copy, Seconds
from paddock.interfaces.cli.progress import Display
from paddock.interfaces.cli.receiving import Received

PLACE = "project"
_USUAL = Patience()
_TOLD_AFTER_S = 1.0
"""Who is quicker is not spoken of."""


@dataclass(frozen=True, slots=True)
class Repository:
    """What to clone. The URL may hold a password, which never goes into a sandbox or a message."""

    url: str
    branch: str = ""
    patience: Patience = field(default_factory=Patience)

    @property
    def shown(self) -> str:
        return self.plain_url + (f" at branch {self.branch}" if self.branch else "")

    @property
    def plain_url(self) -> str:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or "@" not in parts.netloc:
            return self.url
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def repository_options(command: Any) -> Any:
    """What to clone; `repository_of()` reads them."""
    text = "Most time for cloning; then it is tried once more, for as long again."
    for decorate in (
        click.option(
            "--clone-timeout",
            type=Seconds(),
            default=_USUAL.whole_s,
            show_default="10m",
            help=text,
        ),
        click.option("--branch", default="", help="Of the repository."),
        click.option(
            "--repo", default="", metavar="URL", help="Clone it, and run the command there."
        ),
    ):
        command = decorate(command)
    return command


def repository_of(options: dict[str, Any]) -> Repository | None:
    """What the options of `repository_options` come down to."""
    url, branch, whole_s = options["repo"], options["branch"], options["clone_timeout"]
    if branch and not url:
        refuse("--branch was given without --repo", "say which repository the branch is of")
    # Who waits for longer knows that it is slow, and bears longer silence.
    silent_s = _USUAL.silent_s * max(1.0, whole_s / _USUAL.whole_s)
    return Repository(url, branch, Patience(whole_s, silent_s)) if url else None


@asynccontextmanager
async def cloned(
    repository: Repository | None, target: str, *, quiet: bool = False
) -> AsyncIterator[tuple[Copy, ...]]:
    """What has to be copied in for the repository to be there; nothing when there is none."""
    if repository is None:
        yield ()
        return
    with tempfile.TemporaryDirectory(prefix="paddock-clone-") as directory:
        checkout = Path(directory) / "checkout"
        try:
            await _clone(repository, checkout, quiet=quiet)
            if repository.plain_url != repository.url:
                words = ("remote", "set-url", "origin", repository.plain_url)
                await run_git(("-C", str(checkout), *words), _USUAL)
        except GitFailed as error:
            raise _refused(repository, error) from error
        yield (Copy(checkout, target),)


async def _clone(repository: Repository, checkout: Path, *, quiet: bool) -> None:
    """What takes too long, or stalls, is broken off and tried once more, from the beginning."""
    branch = ("--branch", repository.branch) if repository.branch else ()
    words = ("clone", "--progress", "--depth=1", *branch, "--", repository.url, str(checkout))
    late: list[TooSlow] = []
    with Display() as display:
        while len(late) < 2:
            watch = _silence if quiet else _shown(display, repository, late)
            try:
                await run_git(words, repository.patience, watch)
            except TooSlow as error:
                late.append(error)
                shutil.rmtree(checkout, ignore_errors=True)
            else:
                return
    raise _given_up(repository, late)


def _silence(_fraction: float | None) -> None:
    """For programs, who read one thing on stderr."""


def _shown(display: Display, repository: Repository, late: Sequence[TooSlow]) -> Watch:
    began = time.monotonic()
    again = f" once more, because {late[-1]}" if late else ""

    def watch(fraction: float | None) -> None:
        if late or time.monotonic() - began >= _TOLD_AFTER_S:
            display.tell(f"cloning {repository.shown}{again}", fraction)

    return watch


def _refused(repository: Repository, error: GitFailed) -> Refused:
    lines = [each.replace(repository.url, repository.plain_url) for each in error.lines]
    why = "; ".join(lines)[-500:]
    return Refused(
        f"{repository.shown} could not be cloned: {printable(why)}",
        remediation="check the address, the branch and your access with `git ls-remote`",
    )


def _given_up(repository: Repository, late: Sequence[TooSlow]) -> Unavailable:
    tried = " and ".join(seconds(each.waited_s) for each in late)
    more = math.ceil(repository.patience.whole_s * 2)
    shown = f"{more // 60}m" if more % 60 == 0 else f"{more}s"
    return Unavailable(
        f"{repository.shown} could not be cloned: {late[-1]}; it was tried twice, for {tried}; "
        + _told(max((each.received for each in late), key=lambda each: each.size_bytes or 0)),
        remediation=f"allow more time with `--clone-timeout {shown}`, or clone it yourself and "
        f"bring it in with `--copy DIR:{PLACE}`; more than its newest commit is not asked for",
    )


def _told(received: Received) -> str:
    came, whole = received.size_bytes, received.whole_bytes
    if came is None and received.objects:
        what = f"{received.objects} of {received.all_objects} objects"
    else:
        what = size(came) if came else "nothing"
    it = "its size is unknown" if whole is None else f"the whole is estimated at {size(whole)}"
    return f"{what} had been received, and {it}"
