"""`paddock fork` and `paddock snapshot`: a sandbox's disk, a second time."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from paddock.domain.ignoring import Whole
from paddock.domain.keeping import Kind
from paddock.interfaces.cli.interrupts import run_async
from paddock.interfaces.cli.invocation import Invocation, pass_invocation
from paddock.interfaces.cli.noun import Noun
from paddock.interfaces.cli.options import output_options
from paddock.interfaces.cli.output import (
    age,
    print_json,
    print_table,
    printable,
    size,
    tell_left_out,
)
from paddock.interfaces.cli.params import Seconds, environment, pairs
from paddock.interfaces.cli.remote.asking import ask
from paddock.interfaces.cli.remote.session import (
    answer,
    connected,
    gathered,
    plain,
    sandbox,
    sandbox_argument,
)
from paddock.interfaces.client import NotFound, SandboxInfo, Server
from paddock.interfaces.client.results import SnapshotInfo, read
from paddock.interfaces.client.server import segment, without_nothing

_WHOLE: Mapping[str, str] = {
    Whole.ASKED: "everything was asked for",
    Whole.AUTOMATIC: "what Paddock takes by itself holds everything",
    Whole.MEMORY: "programs that go on need their files",
    Whole.PROVIDER: "the provider can leave nothing out",
    Whole.WORK: "by the rules nothing of the work would have remained",
}


@click.command()
@sandbox_argument
@click.option("--name", "copy", default="", help="Of the second one.")
@click.option("-e", "--env", multiple=True, metavar="NAME=VALUE", help="A variable.")
@click.option("-l", "--label", "labels", multiple=True, metavar="K=V", help="To find it by.")
@click.option("--group", default="", metavar="ID", help="One of those with this identity.")
@output_options
@pass_invocation
def fork(
    invocation: Invocation,
    /,
    name: str,
    copy: str,
    *,
    env: Sequence[str],
    labels: Sequence[str],
    group: str,
) -> None:
    """Make a second sandbox with a copy of the disk.

    The first goes on.
    """
    variables, marks = environment(env), pairs(labels, "--label")

    async def work() -> SandboxInfo:
        async with sandbox(name) as box:
            made = await box.fork(copy, env=variables, labels=marks, identity=group)
            return await made.info()

    info = run_async(work())
    answer(invocation, info, info.name)


@click.group(cls=Noun)
def snapshot() -> None:
    """What is kept of sandboxes' disks."""


@snapshot.command()
@sandbox_argument
@click.option("--name", "called", default="", help="To find it by.")
@click.option("--memory", is_flag=True, help="Keep what runs as well, where that can be had.")
@click.option("--keep", type=Seconds(), help="So long; until removed unless said.")
@click.option("-f", "--force", is_flag=True, help="Replace the one of that name.")
@click.option("--everything", is_flag=True, help="Also what the template's rules leave out.")
@output_options
@pass_invocation
def create(
    invocation: Invocation,
    /,
    name: str,
    called: str,
    *,
    force: bool,
    **wish: Any,
) -> None:
    """Keep a sandbox's disk as it is now, also while it runs.

    What the template's rules leave out is said; the sandbox itself keeps it. One of the same name
    that is there stays, and is said; with --force it is replaced, but not before the new one has
    been taken. One of that name of another sandbox is never touched.
    """

    async def work() -> tuple[SnapshotInfo, bool]:
        async with sandbox(name) as box, connected() as server:
            there = await _find(server, called) if called and not force else None
            if there is not None and there.sandbox_id == box.id:
                return there, False
            return await box.snapshot(called, replace=force and bool(called), **wish), True

    info, made = run_async(work())
    since = age(info.created_at.timestamp())
    there = f"{info.id}  (there since {since}; --force replaces it)"
    answer(invocation, {**plain(info), "made": made}, info.id if made else there)
    if made and not invocation.json:
        ignored = info.ignore
        tell_left_out(ignored.left_out, ignored.left_out_count, ignored.left_out_bytes)


async def _find(server: Server, name: str) -> SnapshotInfo | None:
    try:
        return read(SnapshotInfo, await server.call("GET", f"/v1/snapshots/{segment(name)}"))
    except NotFound:
        return None


async def _delete(server: Server, name: str) -> None:
    await server.call("DELETE", f"/v1/snapshots/{segment(name)}")


@snapshot.command()
@sandbox_argument
@click.argument("taken", metavar="SNAPSHOT")
@output_options
@pass_invocation
def restore(invocation: Invocation, name: str, taken: str) -> None:
    """Give a sandbox the disk of a snapshot, by id or name.

    It keeps its id and name, and runs afterwards. What it had is kept as an automatic snapshot.
    """

    async def work() -> SandboxInfo:
        async with sandbox(name) as box:
            await box.restore(taken)
            return await box.info()

    info = run_async(work())
    answer(invocation, info, f"{info.name} restored; what it had is kept as an automatic snapshot")


@snapshot.command()
@click.argument("taken", metavar="SNAPSHOT")
@output_options
@pass_invocation
def inspect(invocation: Invocation, taken: str) -> None:
    """Say everything about a snapshot, also what was left out of it."""
    found = read(SnapshotInfo, ask("GET", f"/v1/snapshots/{segment(taken)}"))
    if invocation.json:
        print_json(plain(found))
        return
    for name, value in _lines(found):
        click.echo(f"{name:<16}{value}")


def _lines(info: SnapshotInfo) -> Iterator[tuple[str, str]]:
    yield from (("name", info.name), ("id", info.id), ("sandbox", info.sandbox_id))
    yield from (("template", info.template), ("age", _age(info)), ("size", size(info.size_bytes)))
    yield "taken", "by Paddock itself" if info.automatic else "by request"
    ignored = info.ignore
    yield "rules", " ".join(ignored.rules) or "none"
    if ignored.whole_because:
        yield "left out", f"nothing: {_WHOLE.get(ignored.whole_because, ignored.whole_because)}"
    elif ignored.rules:
        count = ignored.left_out_count
        yield "left out", _left_out(count, ignored.left_out_bytes) if count else "nothing"
    yield from (("", printable(path)) for path in ignored.left_out)


@snapshot.command("ls")
@click.option("--sandbox", "source", default="", help="Only those of this one.")
@output_options
@pass_invocation
def list_snapshots(invocation: Invocation, source: str) -> None:
    """List your team's snapshots."""

    async def work() -> list[SnapshotInfo]:
        async with connected() as server:
            items = await gathered(server.pages("/v1/snapshots", {"sandbox": source}))
            return [read(SnapshotInfo, item) for item in items]

    found = run_async(work())
    if invocation.json:
        print_json({"snapshots": plain(found)})
        return
    print_table(
        ("NAME", "SNAPSHOT", "SANDBOX", "TEMPLATE", "AGE", "SIZE", "LEFT OUT"),
        (_row(each) for each in found),
    )


def _row(info: SnapshotInfo) -> tuple[str, ...]:
    ignored = info.ignore
    left_out = f"{ignored.left_out_count} ({size(ignored.left_out_bytes)})"
    return (
        info.name,
        info.id,
        info.sandbox_id,
        info.template,
        _age(info),
        size(info.size_bytes) if info.state == "ready" else "taking",
        left_out if ignored.left_out_count else "–",
    )


def _age(info: SnapshotInfo) -> str:
    return age(info.created_at.timestamp())


@snapshot.command()
@click.option("--older-than", type=Seconds(), help="Such as 7d.")
@click.option("--keep", type=click.IntRange(0), help="So many of each sandbox, the newest.")
@click.option("--kind", type=click.Choice([k.value for k in Kind]), default=Kind.AUTOMATIC.value)
@click.option("--sandbox", "source", default="", help="Only those of this one.")
@output_options
@pass_invocation
def prune(
    invocation: Invocation,
    /,
    older_than: float | None,
    keep: int | None,
    *,
    kind: str,
    source: str,
) -> None:
    """Remove snapshots by age and number: those that Paddock took by itself, unless --kind says."""
    wish = without_nothing(older_than_s=older_than, keep_last=keep, kind=kind, sandbox=source)
    gone = ask("POST", "/v1/snapshots/prune", json=wish)["items"]
    lines = [f"{each['name']} removed" for each in gone]
    answer(invocation, {"snapshots": gone}, "\n".join(lines) or "nothing to remove")


@snapshot.command()
@click.argument("names", nargs=-1, required=True, metavar="SNAPSHOT...")
@output_options
@pass_invocation
def rm(invocation: Invocation, names: Sequence[str]) -> None:
    """Remove snapshots. Sandboxes that were made of them are not touched."""

    async def work() -> None:
        async with connected() as server:
            for name in names:
                found = await server.call("GET", f"/v1/snapshots/{segment(name)}")
                await _delete(server, found["id"])

    run_async(work())
    lines = "\n".join(f"{name} removed" for name in names)
    answer(invocation, {"snapshots": list(names), "done": "removed"}, lines)


def _left_out(count: int, left_bytes: int) -> str:
    return f"{'1 path' if count == 1 else f'{count} paths'}, {size(left_bytes)}"
