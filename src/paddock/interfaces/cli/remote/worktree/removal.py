"""`paddock worktree rm` and `prune`: a worktree takes its sandbox along, once its work is safe."""

import os
from pathlib import Path
from typing import Any

import click

from paddock.domain.errors import Conflict, PaddockError
from paddock.interfaces.cli.failures import refuse, say
from paddock.interfaces.cli.interrupts import run_async
from paddock.interfaces.cli.invocation import Invocation, pass_invocation
from paddock.interfaces.cli.options import output_options
from paddock.interfaces.cli.output import print_json
from paddock.interfaces.cli.remote.session import GONE, answer, awake, connected
from paddock.interfaces.cli.remote.worktree.home import found
from paddock.interfaces.cli.remote.worktree.place import (
    Worktree,
    find,
    git,
    is_worktree,
    path_of,
    prefix,
)
from paddock.interfaces.client import AsyncSandbox, SandboxInfo, Server
from paddock.interfaces.client.server import segment

_NAMED = 5


@click.command()
@click.argument(
    "path", metavar="[PATH]", required=False, default=".", type=click.Path(path_type=Path)
)
@click.option("-f", "--force", is_flag=True, help="Even if work is lost, here or inside.")
@click.option("--keep", is_flag=True, help="Only its sandbox; the worktree stays.")
@output_options
@pass_invocation
def rm(invocation: Invocation, path: Path, force: bool, keep: bool) -> None:
    """Remove a worktree and its sandbox.

    Refused while the sandbox holds what is neither what came in nor committed in the worktree, and
    while git itself refuses; then nothing is removed at all.
    """
    place = find(path)
    if place.top != path.resolve() and not keep:
        refuse(f"{path} is not the top of its worktree", f"name it: {place.top}")
    if place.is_main and not keep:
        refuse(
            f"{place.top} is the repository's main worktree, which git does not remove",
            "give --keep to remove only its sandbox",
        )

    async def work() -> str:
        async with connected() as server:
            info = await found(server, place)
            box = await AsyncSandbox.connect(info.id, server=server) if info else None
            if box and not force:
                await _check_safe(server, box, place)
            if not keep:
                _remove_worktree(place, force=force)
            if box:
                await box.kill(force=force)
            return box.name if box else ""

    name = run_async(work())
    gone = [text for text in ("" if keep else str(place.top), name) if text]
    result = {"worktree": None if keep else str(place.top), "sandbox": name or None}
    answer(invocation, result, f"{' and '.join(gone) or 'nothing'} removed")


async def _check_safe(server: Server, box: AsyncSandbox, place: Worktree) -> None:
    """Everything made inside is committed in the worktree. That becomes the base, so that what
    comes after this look still holds the sandbox back."""
    await awake(box)
    work = (await box.info()).work
    if work is None:
        return
    path = f"/v1/sandboxes/{segment(box.id)}"
    made = await server.call("GET", f"{path}/work")
    known = _committed(place)
    lost = [each["path"] for each in made["changes"] if not _is_known(each, known)]
    if lost or made["truncated"]:
        names = ", ".join(lost[:_NAMED])
        more = f" and {len(lost) - _NAMED} more" if len(lost) > _NAMED else ""
        raise Conflict(
            f"sandbox {box.name} holds work that is not committed in {place.top}: {names}{more}",
            remediation=f"`paddock cp {box.name}:{work.directory}/FILE .` and commit it, "
            "or give --force to lose it",
        )
    base = {"work": {"directory": work.directory, "base": made["tree"]}}
    await server.call("PATCH", path, json=base, repeatable=True)


def _committed(place: Worktree) -> dict[str, tuple[str, str]]:
    """Mode and content of every file in the last commit."""
    entries = git(place.top, "ls-tree", "-r", "-z", "HEAD").split(b"\0")
    known = {}
    for entry in filter(None, entries):
        about, _, name = entry.partition(b"\t")
        mode, _, blob = about.decode().split()
        known[os.fsdecode(name)] = (mode, blob)
    return known


def _is_known(change: dict[str, Any], known: dict[str, tuple[str, str]]) -> bool:
    if change["kind"] == "removed":
        return change["path"] not in known
    return known.get(change["path"]) == (change["mode"], change["blob"])


def _remove_worktree(place: Worktree, *, force: bool) -> None:
    words = ("--force",) if force else ()
    git(place.common_dir, "worktree", "remove", *words, "--", os.fspath(place.top))


@click.command()
@click.option("-n", "--dry-run", is_flag=True, help="Only say which there are.")
@output_options
@pass_invocation
def prune(invocation: Invocation, dry_run: bool) -> int:
    """Remove the sandboxes of worktrees that are gone.

    Of this machine, and only those that hold nothing but what came in; the others are named, with
    what they hold.
    """
    return run_async(_Prune(invocation, dry_run).run())


class _Prune:
    """What is kept is said, and the rest is still done."""

    def __init__(self, invocation: Invocation, dry_run: bool) -> None:
        self._invocation, self._dry_run = invocation, dry_run
        self._code = 0

    async def run(self) -> int:
        async with connected() as server:
            listed = AsyncSandbox.list(identity_prefix=f"{prefix()}/", server=server)
            orphans = [each async for each in listed if _is_orphan(each)]
            removed = [each.name for each in orphans if await self._remove(server, each)]
        if self._invocation.json:
            print_json({"sandboxes": removed, "done": "listed" if self._dry_run else "removed"})
        return self._code

    async def _remove(self, server: Server, info: SandboxInfo) -> bool:
        if not self._dry_run:
            box = await AsyncSandbox.connect(info.id, server=server)
            woken = False
            try:
                woken = info.state != "failed" and info.work is not None and await awake(box)
                await box.kill()
            except PaddockError as error:
                self._code = say(error, as_json=self._invocation.json)
                if woken:
                    await box.stop()
                return False
        if not self._invocation.json:
            done = "" if self._dry_run else " removed"
            click.echo(f"{info.name}{done}: {path_of(info.identity)} is gone")
        return True


def _is_orphan(info: SandboxInfo) -> bool:
    path = path_of(info.identity)
    return info.state not in GONE and path is not None and not is_worktree(path)
