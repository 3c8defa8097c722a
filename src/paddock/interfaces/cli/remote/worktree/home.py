"""The sandbox of a worktree: found or made, started, and given the worktree's content once."""

import asyncio
import fcntl
import os
import posixpath
import re
import secrets
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import click

from paddock.domain.errors import Broken, Conflict, NotFound, TimedOut, Unavailable
from paddock.interfaces.cli.cloning import PLACE
from paddock.interfaces.cli.remote.creation import created
from paddock.interfaces.cli.remote.session import GONE, awake
from paddock.interfaces.cli.remote.worktree.content import Packed, pack
from paddock.interfaces.cli.remote.worktree.place import Worktree, git
from paddock.interfaces.client import AsyncSandbox, SandboxInfo, Server
from paddock.interfaces.client.server import segment

Tell = Callable[[str, float | None], None]
_WAIT_S = 300.0
_LOOK_AGAIN_S = 0.1
_CHUNK = 1 << 20
_UNKNOWN = "0" * 40
_AUTHOR = ("-c", "user.name=paddock", "-c", "user.email=paddock@localhost")
# What came in is one commit, so that git inside says what has changed since. Forced, because what
# git knows outside may be ignored as well. The directory appears when all of this is done; one that
# a snapshot brought is taken as it is.
_SETTLE = """
set -e; cd; part=$1 place=$2 branch=$3; shift 3
begin() {
    command -v git >/dev/null || return 0
    git init -q .
    git symbolic-ref HEAD "refs/heads/$branch"
    git add -A -f .
    git "$@" commit -q --allow-empty -m "What came in"
}
[ -e "$place" ] || { mkdir -p "$part"; (cd "$part"; begin "$@"); mv "$part" "$place"; }
cd "$place"
command -v git >/dev/null || exit 92
git rev-parse --git-dir >/dev/null 2>&1 || begin "$@"
index=$(mktemp); trap 'rm -f "$index"' EXIT
cp "$(git rev-parse --git-path index)" "$index" 2>/dev/null || rm -f "$index"
export GIT_INDEX_FILE="$index"
git add -A && git write-tree
"""
_NO_GIT = 92


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the sandbox shall be if it has to be made."""

    creation: dict[str, Any] = field(default_factory=dict)
    directory: str = PLACE
    empty: bool = False


async def found(server: Server, worktree: Worktree) -> SandboxInfo | None:
    """The worktree's sandbox, in whatever state; Conflict when there are several."""
    listed = AsyncSandbox.list(identity=worktree.identity, server=server)
    having = [each async for each in listed if each.state not in (*GONE, "failed")]
    if len(having) <= 1:
        return next(iter(having), None)
    names = ", ".join(each.name for each in having)
    raise Conflict(
        f"worktree {worktree.top} has {len(having)} sandboxes: {names}",
        remediation="say which one is meant, such as `paddock exec NAME -- CMD`",
    )


async def existing(server: Server, worktree: Worktree) -> AsyncSandbox:
    info = await found(server, worktree)
    if info is None:
        raise NotFound(
            f"worktree {worktree.top} has no sandbox",
            remediation="`paddock worktree create` makes one",
        )
    return await AsyncSandbox.connect(info.id, server=server)


async def ready(server: Server, worktree: Worktree, wanted: Wanted, tell: Tell) -> AsyncSandbox:
    """The worktree's sandbox, running and with its content.

    One process of this machine at a time sees to that; whoever finds it so needs no turn.
    """
    info = await found(server, worktree)
    if info is not None and info.state == "running" and info.work is not None:
        return await AsyncSandbox.connect(info.id, server=server)
    async with _turn(worktree):
        own = {"name": _name(worktree), "identity": worktree.identity}
        box = await created(server, {**own, **wanted.creation}, quiet=False)
        await awake(box)
        if (await box.info()).work is None:
            await _fill(server, box, worktree, wanted, tell=tell)
        return box


async def nearest(box: AsyncSandbox, below: PurePosixPath) -> tuple[str, bool]:
    """The directory inside that matches, or the nearest one above it that is there; which it is."""
    work = (await box.info()).work
    top = work.directory if work else PLACE
    for part in (below, *below.parents):
        path = posixpath.join(top, str(part)) if part.parts else top
        try:
            if (await box.files.stat(path)).is_dir:
                return path, part == below
        except NotFound:
            continue
    return "", False


async def _fill(
    server: Server,
    box: AsyncSandbox,
    worktree: Worktree,
    wanted: Wanted,
    *,
    tell: Tell,
) -> None:
    place, part = wanted.directory, f"{wanted.directory}.part"
    if not wanted.empty and not await _is_there(box, place):
        tell(f"carrying {worktree.top.name} in", None)
        packed = await _carry(server, box, worktree.top, part)
        for name in packed.left_out:
            click.echo(f"note: left out {name}: it is no file of this worktree", err=True)
    base = await _settle(box, worktree, (part, place))
    work = {"work": {"directory": place, "base": base}}
    path = f"/v1/sandboxes/{segment(box.id)}"
    await server.call("PATCH", path, json=work, repeatable=True)


async def _is_there(box: AsyncSandbox, path: str) -> bool:
    try:
        await box.files.stat(path)
    except NotFound:
        return False
    return True


async def _carry(server: Server, box: AsyncSandbox, top: Path, target: str) -> Packed:
    with tempfile.TemporaryDirectory(prefix="paddock-") as place:
        archive = Path(place) / "worktree.tar"
        packed = await asyncio.to_thread(pack, top, archive)
        path = f"/v1/sandboxes/{segment(box.id)}/archive"
        await server.call("PUT", path, query={"path": target}, body=lambda: _pieces(archive))
    return packed


async def _pieces(archive: Path) -> AsyncIterator[bytes]:
    with archive.open("rb") as file:
        while piece := await asyncio.to_thread(file.read, _CHUNK):
            yield piece


async def _settle(box: AsyncSandbox, worktree: Worktree, places: tuple[str, str]) -> str:
    """The id of what came in. Without git inside nobody can tell what changed, so anything may
    have."""
    words = ["sh", "-c", _SETTLE, "sh", *places, _branch(worktree), *_AUTHOR]
    ran = await box.commands.run(words, timeout=_WAIT_S)
    if ran.exit_code == _NO_GIT:
        click.echo(
            "note: git is not in its template, so what is made inside cannot be told; "
            "only --force removes it",
            err=True,
        )
        return _UNKNOWN
    if not ran.ok:
        raise Broken(
            f"the worktree's directory could not be set up in sandbox {box.name}: {ran.stderr}",
            remediation=f"look at it with `paddock exec {box.name} -- ls -la`",
        )
    return ran.stdout.strip()


def _branch(worktree: Worktree) -> str:
    name = os.fsdecode(git(worktree.top, "branch", "--show-current").strip())
    return name or "detached"


def _name(worktree: Worktree) -> str:
    """To know it by in a list; the identity is what it is found by."""
    plain = re.sub(r"[^a-z0-9]+", "-", worktree.top.name.lower()).strip("-")[:50].strip("-")
    return f"{plain or 'worktree'}-{secrets.token_hex(2)}"


@asynccontextmanager
async def _turn(worktree: Worktree) -> AsyncIterator[None]:
    """A lock of this machine, in the worktree's own git directory; freed when its holder dies."""
    path = worktree.git_dir / "paddock.lock"
    try:
        lock = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise Unavailable(
            f"{path} cannot be written: {error.strerror}",
            remediation="run this as somebody who may write to the repository",
        ) from error
    try:
        await _locked(lock, worktree)
        yield
    finally:
        os.close(lock)


async def _locked(lock: int, worktree: Worktree) -> None:
    loop = asyncio.get_running_loop()
    until = loop.time() + _WAIT_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if loop.time() > until:
                raise TimedOut(
                    f"another process has been preparing the sandbox of {worktree.top} for "
                    f"{_WAIT_S:g} s",
                    remediation="wait for it, or end it, and ask again",
                ) from None
            await asyncio.sleep(_LOOK_AGAIN_S)
        else:
            return
