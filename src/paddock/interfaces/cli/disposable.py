"""A disposable sandbox: made, used and removed, whatever happens in between."""

import asyncio
import time
from dataclasses import dataclass, replace

import click

from paddock.domain.errors import Broken, PaddockError
from paddock.domain.guest import CommandResult
from paddock.domain.ids import new_ulid
from paddock.guest_client import Guest
from paddock.interfaces.cli import references
from paddock.interfaces.cli.attached import attach, collect
from paddock.interfaces.cli.cloning import Repository, cloned
from paddock.interfaces.cli.command import Wish
from paddock.interfaces.cli.copying import copy_in
from paddock.interfaces.cli.params import Copy
from paddock.interfaces.cli.progress import Display
from paddock.interfaces.cli.toolbox import Toolbox
from paddock.ports.provider import Provider, Ref, SandboxSpec

LABELS = {"made-by": "paddock-sandbox-run"}


@dataclass(frozen=True, slots=True)
class Request:
    """What `paddock sandbox run` was asked for."""

    provider: str
    spec: SandboxSpec
    wish: Wish
    copies: tuple[Copy, ...] = ()
    keep: bool = False
    buffered: bool = False
    """Collect the output instead of passing it on."""
    repository: Repository | None = None
    """Cloned into the working directory before anything else."""


@dataclass(frozen=True, slots=True)
class Record:
    """What became of it."""

    ref: Ref
    result: CommandResult
    seconds: float


async def run(tools: Toolbox, request: Request) -> Record:
    """The command's end. Broken, which names the sandbox, when it could not be removed."""
    place, quiet = request.wish.workdir, request.buffered
    async with cloned(request.repository, place, quiet=quiet) as copies:
        return await _run(tools, replace(request, copies=(*copies, *request.copies)))


async def _run(tools: Toolbox, request: Request) -> Record:
    with Display() as display:
        async with tools.open(request.provider, display.tell) as opened:
            await opened.prepare(request.spec.template)
            seen = await opened.provider.create(f"cli-{new_ulid()}", request.spec)
            display.close()
            began = time.monotonic()
            try:
                result = await _use(opened.provider, seen.ref, request)
            finally:
                await _leave(opened.provider, seen.ref, request)
            return Record(seen.ref, result, time.monotonic() - began)


async def _use(provider: Provider, ref: Ref, request: Request) -> CommandResult:
    wish, address = request.wish, await provider.guest(ref)
    if request.copies:
        async with Guest(address) as guest:
            await copy_in(guest, request.copies, user=wish.user, workdir=wish.workdir)
    return await (collect if request.buffered else attach)(address, wish)


async def _leave(provider: Provider, ref: Ref, request: Request) -> None:
    if request.keep:
        if not request.buffered:
            click.echo(f"kept {references.shown(ref)}", err=True)
        return
    try:
        await provider.destroy(ref)
    except asyncio.CancelledError:
        raise _remains(ref, "its removal was interrupted") from None
    except PaddockError as error:
        raise _remains(ref, error.message) from error


def _remains(ref: Ref, why: str) -> Broken:
    name = references.shown(ref)
    return Broken(
        f"sandbox {name} was not removed: {why}", remediation=f"paddock sandbox rm {name}"
    )
