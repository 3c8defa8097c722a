"""`paddock run`: one command in a sandbox of the server that is made for it."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import click

from paddock.domain.errors import Broken, PaddockError
from paddock.domain.guest import CommandResult
from paddock.domain.ids import new_ulid
from paddock.interfaces.cli.cloning import (
    PLACE,
    Repository,
    cloned,
    repository_of,
    repository_options,
)
from paddock.interfaces.cli.command import Wish, explain
from paddock.interfaces.cli.interrupts import run_async
from paddock.interfaces.cli.invocation import Invocation, pass_invocation
from paddock.interfaces.cli.options import (
    PAYLOAD,
    command_options,
    login_option,
    output_options,
    wish,
)
from paddock.interfaces.cli.output import print_json
from paddock.interfaces.cli.params import Copy, CopyPair
from paddock.interfaces.cli.remote import attached
from paddock.interfaces.cli.remote.creation import followed
from paddock.interfaces.cli.remote.making import creation, creation_options
from paddock.interfaces.cli.remote.session import connected
from paddock.interfaces.cli.run import result_as_json
from paddock.interfaces.client import AsyncSandbox, Server
from paddock.interfaces.client.creation import Creation

_MARK = "paddock-run"


@click.command(context_settings=PAYLOAD)
@creation_options
@repository_options
@click.option("--copy", "copies", type=CopyPair(), multiple=True, help="Copy SRC to DST inside.")
@click.option("--keep", is_flag=True, help="Do not remove the sandbox; its name is printed.")
@click.option(
    "-i", "--interactive", is_flag=True, help="As with Docker; input is always passed on."
)
@click.option("--rm", "removed", is_flag=True, help="As with Docker; it is removed anyway.")
@login_option
@command_options
@output_options
@pass_invocation
def run(invocation: Invocation, /, **options: Any) -> int:
    """Run a command in a disposable sandbox of the server.

    The sandbox is made, used and removed, also when this is interrupted. `paddock sandbox run` does
    the same without a server. What stands after `--` belongs to the command.

    \b
    Exit codes: the command's own, or
      124  the deadline passed
      126  the program cannot be executed
      127  there is no such program
      130  interrupted (128 and the signal's number)
        1  the sandbox could not be made, used or removed
        2  the request makes no sense
    """
    repository = repository_of(options)
    asked = wish(options)
    asked = replace(asked, workdir=asked.workdir or (PLACE if repository else ""))
    began = time.monotonic()
    how = _How(options["keep"], invocation.json, options["copies"], repository)
    name, result = run_async(_run(creation(options), asked, how))
    if not invocation.json:
        explain(result, asked, options["memory_mib"])
        return result.exit_code
    print_json(
        {
            "sandbox": name,
            "command": list(asked.argv),
            "repo": repository.plain_url if repository else None,
            **result_as_json(result),
            "seconds": round(time.monotonic() - began, 3),
            "kept": options["keep"],
        }
    )
    return result.exit_code


@dataclass(frozen=True, slots=True)
class _How:
    """What is done around the command."""

    keep: bool
    buffered: bool
    copies: tuple[Copy, ...]
    repository: Repository | None


async def _run(creation: dict[str, Any], asked: Wish, how: _How) -> tuple[str, CommandResult]:
    # Variables are the whole sandbox's, so that they are there when it is kept.
    creation = {**creation, "env": asked.env}
    async with (
        cloned(how.repository, asked.workdir, quiet=how.buffered) as clone,
        connected() as server,
        _disposable(creation, server, how) as box,
    ):
        for copy in (*clone, *how.copies):
            await box.files.upload(copy.source, _target(copy), user=asked.user)
        command = replace(asked, env={})
        work = attached.collect if how.buffered else attached.attach
        return box.name, await work(box, command)


def _target(copy: Copy) -> str:
    into = copy.target.endswith("/") and not copy.source.is_dir()
    return copy.target + (copy.source.name if into else "")


@asynccontextmanager
async def _disposable(
    creation: dict[str, Any], server: Server, how: _How
) -> AsyncIterator[AsyncSandbox]:
    box = await _made(creation, server, quiet=how.buffered)
    try:
        yield box
    finally:
        if how.keep:
            click.echo(f"kept {box.name}", err=True)
        else:
            await _remove(box)


async def _made(options: dict[str, Any], server: Server, *, quiet: bool) -> AsyncSandbox:
    """Cancel the creation on an interrupt; the server would continue it."""
    mark = new_ulid()
    creation = Creation(server, {**options, "labels": {_MARK: mark, **options["labels"]}})
    try:
        return await followed(creation, quiet=quiet)
    except asyncio.CancelledError:
        if creation.info is None:
            raise _remains(f"$(paddock ls -q -l {_MARK}={mark})", "was interrupted") from None
        await _remove(AsyncSandbox(server, creation.info))
        click.echo(f"interrupted: sandbox {creation.info.name} was removed", err=True)
        raise


async def _remove(box: AsyncSandbox) -> None:
    try:
        await box.kill()
    except asyncio.CancelledError:
        raise _remains(box.name, "its removal was interrupted") from None
    except PaddockError as error:
        raise _remains(box.name, error.message) from error


def _remains(name: str, why: str) -> Broken:
    return Broken(f"sandbox {name} was not removed: {why}", remediation=f"paddock rm {name}")
