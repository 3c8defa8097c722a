"""`paddock worktree` but for what removes, and `paddock here`."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

import click

from paddock.domain.guest import CommandResult
from paddock.interfaces.cli.cloning import PLACE
from paddock.interfaces.cli.command import Wish, explain
from paddock.interfaces.cli.interrupts import run_async
from paddock.interfaces.cli.invocation import Invocation, pass_invocation
from paddock.interfaces.cli.noun import Noun
from paddock.interfaces.cli.options import PAYLOAD, command_options, output_options, wish
from paddock.interfaces.cli.output import age, print_json, print_table
from paddock.interfaces.cli.progress import Display
from paddock.interfaces.cli.remote import attached
from paddock.interfaces.cli.remote.making import creation, creation_options
from paddock.interfaces.cli.remote.session import (
    GONE,
    after_dashes,
    answer,
    awake,
    connected,
    plain,
)
from paddock.interfaces.cli.remote.worktree import home
from paddock.interfaces.cli.remote.worktree.home import Wanted, existing, ready
from paddock.interfaces.cli.remote.worktree.place import (
    Worktree,
    find,
    is_worktree,
    path_of,
    prefix,
)
from paddock.interfaces.cli.remote.worktree.removal import prune, rm
from paddock.interfaces.cli.run import result_as_json
from paddock.interfaces.client import AsyncSandbox, SandboxInfo
from paddock.interfaces.client.pty import SHELL
from paddock.interfaces.client.server import segment

F = TypeVar("F", bound=Callable[..., Any])


def _directory(command: F) -> F:
    """Which worktree, other than the one around here."""
    decorate = click.argument(
        "path", metavar="[PATH]", required=False, default=".", type=click.Path(path_type=Path)
    )
    return decorate(command)


@click.group(cls=Noun)
def worktree() -> None:
    """The sandbox of a git worktree: the directory says which one is meant."""


worktree.add_command(rm)
worktree.add_command(prune)


@worktree.command()
@_directory
@creation_options
@click.option("--directory", default=PLACE, show_default=True, help="Where it is inside.")
@click.option("--empty", is_flag=True, help="Carry nothing in.")
@output_options
@pass_invocation
def create(
    invocation: Invocation, /, path: Path, *, directory: str, empty: bool, **options: Any
) -> None:
    """Make the sandbox of a worktree, or find the one it has.

    What git knows there, or would, is carried in once, committed or not; ignored files are not. It
    is started if it was stopped, and its name is printed. How it shall be is of use only when it is
    made.
    """
    wanted = Wanted(creation(options), directory, empty)
    place = find(path)

    async def work(display: Display) -> SandboxInfo:
        async with connected() as server:
            box = await ready(server, place, wanted, display.tell)
            return await box.info()

    with Display() as display:
        info = run_async(work(display))
    answer(invocation, info, info.name)


def _payload(name: str) -> click.Command:
    @click.command(name, context_settings=PAYLOAD)
    @click.option("-C", "path", default=".", type=click.Path(path_type=Path), help="As if there.")
    @click.option("--login/--no-login", default=True, help="As in a login shell.  [default: login]")
    @command_options
    @output_options
    @pass_invocation
    def command(invocation: Invocation, /, path: Path, **options: Any) -> int:
        """Run a command in the sandbox of this worktree.

        The sandbox is made, started and given the worktree's files where that has not been done.
        The command runs in the directory that matches this one, in a login shell, so that version
        managers are there. Streams and exit code are as with `paddock exec`. Without a command it
        is a shell.
        """
        options["words"] = after_dashes(options["words"])
        if not options["words"]:
            options |= {"words": SHELL, "login": False}
        asked, place = wish(options), find(path)
        result = run_async(_run(place, asked, buffered=invocation.json))
        if invocation.json:
            print_json(result_as_json(result))
        else:
            explain(result, asked)
        return result.exit_code

    return command


here = _payload("here")
worktree.add_command(_payload("exec"))


@worktree.command()
@_directory
def shell(path: Path) -> int:
    """Sit down in the sandbox of a worktree: a login shell, in the directory that matches."""
    return run_async(_run(find(path), Wish(SHELL))).exit_code


async def _run(place: Worktree, asked: Wish, *, buffered: bool = False) -> CommandResult:
    async with connected() as server:
        with Display() as display:
            box = await ready(server, place, Wanted(), display.tell)
        if not asked.workdir:
            asked = replace(asked, workdir=await _matching(box, place.below))
        work = attached.collect if buffered else attached.attach
        return await work(box, asked)


async def _matching(box: AsyncSandbox, below: PurePosixPath) -> str:
    path, exact = await home.nearest(box, below)
    if not exact:
        instead = f"running in {path}" if path else "running where the sandbox begins"
        click.echo(f"note: {below} is not there inside; {instead}", err=True)
    return path


@worktree.command()
@_directory
@output_options
@pass_invocation
def start(invocation: Invocation, path: Path) -> None:
    """Start the sandbox of a worktree, if it has one."""
    _move(invocation, path, awake, "started")


@worktree.command()
@_directory
@output_options
@pass_invocation
def stop(invocation: Invocation, path: Path) -> None:
    """Stop the sandbox of a worktree; the disk is kept."""
    _move(invocation, path, lambda box: box.stop(), "stopped")


def _move(invocation: Invocation, path: Path, verb: Callable[[Any], Any], done: str) -> None:
    place = find(path)

    async def work() -> SandboxInfo:
        async with connected() as server:
            box = await existing(server, place)
            await verb(box)
            return await box.info()

    info = run_async(work())
    answer(invocation, info, f"{info.name} {done}")


@worktree.command()
@_directory
@output_options
@pass_invocation
def status(invocation: Invocation, path: Path) -> None:
    """Say what was made in the sandbox of a worktree since its files were carried in."""
    place = find(path)

    async def work() -> dict[str, Any]:
        async with connected() as server:
            box = await existing(server, place)
            made: dict[str, Any] = await server.call("GET", f"/v1/sandboxes/{segment(box.id)}/work")
            return made

    made = run_async(work())
    if invocation.json:
        print_json(made)
        return
    print_table(("WHAT", "FILE"), ((each["kind"], each["path"]) for each in made["changes"]))


@worktree.command("ls")
@click.option("-a", "--all", "every", is_flag=True, help="Also of other machines.")
@output_options
@pass_invocation
def list_worktrees(invocation: Invocation, every: bool) -> None:
    """List the worktrees of this machine that have a sandbox, whatever directory this is."""

    async def work() -> list[SandboxInfo]:
        async with connected() as server:
            listed = AsyncSandbox.list(identity_prefix=prefix(any_host=every), server=server)
            return [each async for each in listed if each.state not in GONE]

    found = run_async(work())
    if invocation.json:
        rows = [{"worktree": _shown(each), "sandbox": plain(each)} for each in found]
        print_json({"worktrees": rows})
        return
    print_table(
        ("WORKTREE", "NAME", "STATE", "AGE", ""),
        ((_shown(s), s.name, s.state, age(s.created_at.timestamp()), _remark(s)) for s in found),
    )


def _shown(info: SandboxInfo) -> str:
    path = path_of(info.identity)
    return str(path) if path else info.identity


def _remark(info: SandboxInfo) -> str:
    path = path_of(info.identity)
    if path is None:
        return "on another machine"
    return "" if is_worktree(path) else "the worktree is gone"
