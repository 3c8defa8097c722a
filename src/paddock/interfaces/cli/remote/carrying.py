"""`paddock cp`: files and directories between this machine and a sandbox."""

import posixpath
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import click

from paddock.interfaces.cli.failures import refuse
from paddock.interfaces.cli.interrupts import run_async
from paddock.interfaces.cli.invocation import Invocation, pass_invocation
from paddock.interfaces.cli.options import output_options
from paddock.interfaces.cli.output import size
from paddock.interfaces.cli.progress import Display
from paddock.interfaces.cli.remote.session import (
    WAKES,
    SandboxName,
    answer,
    sandbox,
    start_option,
)
from paddock.interfaces.client import AsyncSandbox, Conflict, NotFound
from paddock.interfaces.client.results import Transfer

_WHY_NOT = "it leads outside, or is neither file, directory nor link"
_INSIDE = re.compile(r"([a-z0-9][a-z0-9_-]*):(.*)", re.DOTALL)


class _How(TypedDict):
    """As whom, and whether a sandbox that sleeps is started for it."""

    user: str
    wake: bool


@dataclass(frozen=True, slots=True)
class _End:
    """One end of a copy."""

    sandbox: str
    path: str


def _end(text: str) -> _End:
    """`SANDBOX:PATH`, or a path of this machine; `./a:b` is one, whatever follows the colon."""
    match = _INSIDE.fullmatch(text)
    return _End(match[1], match[2] or ".") if match else _End("", text)


@click.command()
@click.argument("source", metavar="SRC", type=SandboxName())
@click.argument("target", metavar="DST", type=SandboxName())
@click.option("-u", "--user", default="", help="Whose rights count inside.")
@start_option
@output_options
@pass_invocation
def cp(invocation: Invocation, /, source: str, target: str, *, user: str, start: bool) -> None:
    """Copy a file or directory into a sandbox or out of it.

    One of SRC and DST is SANDBOX:PATH. As with `cp -r`, what is copied to a directory that is there
    lands in it under its own name; SRC/. is its content. Nothing is ever written outside of DST.
    Reading from a stopped sandbox does not start it if the provider can read its disk. Otherwise
    the sandbox is started first.
    """
    here, there = _end(source), _end(target)
    if bool(here.sandbox) == bool(there.sandbox):
        refuse("one of the two must be in a sandbox", "write it as NAME:PATH, the other as a path")

    async def work(display: Display) -> Transfer:
        async with sandbox(here.sandbox or there.sandbox) as box:
            carry = _Carry(box, display, {"user": user, "wake": start})
            async with _explained(box, start=start):
                if here.sandbox:
                    return await carry.out(here.path, Path(there.path))
                return await carry.into(here.path, there.path)

    with Display() as display:
        done = run_async(work(display))
    for name in done.skipped:
        click.echo(f"note: left out {name}: {_WHY_NOT}", err=True)
    answer(invocation, done, f"{_counted(done.files)}, {size(done.bytes)}")


@asynccontextmanager
async def _explained(box: AsyncSandbox, *, start: bool) -> AsyncIterator[None]:
    """If the copy fails because the sandbox sleeps, name what starts it."""
    try:
        yield
    except Conflict as error:
        if not start and (verb := WAKES.get((await box.info()).state)):
            error.remediation = (
                f"leave out --no-start, or start it first: `paddock {verb} {box.name}`"
            )
        raise


def _counted(files: int) -> str:
    return "1 file" if files == 1 else f"{files} files"


class _Carry:
    """Copies one thing, and shows how far it is."""

    def __init__(self, box: AsyncSandbox, display: Display, how: _How) -> None:
        self._box, self._display, self._how = box, display, how

    async def into(self, source: str, target: str) -> Transfer:
        local = Path(source)
        if not local.exists():
            refuse(f"{local} does not exist on this machine", "name a file or a directory")
        if not _is_content(source) and await self._is_directory(target):
            target = posixpath.join(target, local.absolute().name)
        text = f"copying {local.name or source}"
        return await self._box.files.upload(local, target, **self._how, progress=self._told(text))

    async def out(self, source: str, target: Path) -> Transfer:
        if not _is_content(source) and target.is_dir():
            target /= posixpath.basename(source.rstrip("/"))
        text = f"copying {source}"
        return await self._box.files.download(
            source, target, **self._how, progress=self._told(text)
        )

    async def _is_directory(self, path: str) -> bool:
        try:
            return (await self._box.files.stat(path, **self._how)).is_dir
        except NotFound:
            return path.endswith("/")

    def _told(self, text: str) -> "_Told":
        return _Told(self._display, text)


class _Told:
    """Progress as the display takes it."""

    def __init__(self, display: Display, text: str) -> None:
        self._display, self._text = display, text

    def __call__(self, done: int, of: int | None) -> None:
        self._display.tell(self._text, done / of if of else None)


def _is_content(path: str) -> bool:
    return path in (".", "..") or path.endswith("/.")
