"""`paddock ls`, `inspect`, `ports` and `open`: what there is."""

from collections.abc import Sequence
from typing import Any

import click

from paddock.interfaces.cli import terminal
from paddock.interfaces.cli.command import STDOUT
from paddock.interfaces.cli.interrupts import run_async
from paddock.interfaces.cli.invocation import Invocation, pass_invocation
from paddock.interfaces.cli.options import output_options
from paddock.interfaces.cli.output import age, print_json, print_table, size
from paddock.interfaces.cli.params import Seconds, pairs
from paddock.interfaces.cli.remote.session import (
    GONE,
    answer,
    connected,
    plain,
    running_sandbox,
    sandbox,
    sandbox_argument,
    sandboxes_argument,
    start_option,
)
from paddock.interfaces.client import AsyncSandbox, SandboxInfo, Unsupported
from paddock.interfaces.client.results import Link, Port, Usage


@click.command("ls")
@click.option("-l", "--label", "labels", multiple=True, metavar="K=V", help="Only those with it.")
@click.option("--state", "states", multiple=True, help="Only those in this state.")
@click.option("--name", "name_prefix", default="", help="Only those whose name begins so.")
@click.option("--identity", default="", metavar="ID", help="Only those with it.")
@click.option("-a", "--all", "every", is_flag=True, help="Also those that are gone.")
@click.option("-q", "--quiet", is_flag=True, help="Only their ids.")
@output_options
@pass_invocation
def list_sandboxes(
    invocation: Invocation, /, labels: Sequence[str], *, every: bool, quiet: bool, **wanted: Any
) -> None:
    """List your team's sandboxes, newest first."""
    by_label = pairs(labels, "--label")

    async def work() -> list[SandboxInfo]:
        async with connected() as server:
            listed = AsyncSandbox.list(labels=by_label, server=server, **wanted)
            return [each async for each in listed if every or each.state not in GONE]

    found = run_async(work())
    if invocation.json:
        print_json({"sandboxes": plain(found)})
    elif quiet:
        click.echo("".join(f"{each.id}\n" for each in found), nl=False)
    else:
        print_table(
            ("NAME", "SANDBOX", "STATE", "TEMPLATE", "AGE", "REASON"),
            ((s.name, s.id, s.state, s.template, _age(s), s.reason or "") for s in found),
        )


def _age(info: SandboxInfo) -> str:
    return age(info.created_at.timestamp())


@click.command()
@sandboxes_argument
@output_options
@pass_invocation
def inspect(invocation: Invocation, names: Sequence[str]) -> None:
    """Say everything about sandboxes."""

    async def work() -> list[tuple[SandboxInfo, Usage | None]]:
        async with connected() as server:
            return [await _seen(await AsyncSandbox.connect(name, server=server)) for name in names]

    found = run_async(work())
    if invocation.json:
        rows = [{**plain(info), "usage": plain(usage)} for info, usage in found]
        print_json({"sandboxes": rows})
        return
    for info, usage in found:
        for name, value in _lines(info, usage):
            click.echo(f"{name:<16}{value}")


async def _seen(box: AsyncSandbox) -> tuple[SandboxInfo, Usage | None]:
    info = await box.info()
    if info.state != "running":
        return info, None
    try:
        return info, await box.metrics()
    except Unsupported:
        return info, None


def _lines(info: SandboxInfo, usage: Usage | None) -> list[tuple[str, str]]:
    limits = info.resources
    lines = [
        ("name", info.name),
        ("id", info.id),
        ("state", f"{info.state} ({info.reason})" if info.reason else info.state),
        ("detail", info.detail),
        ("provider", info.provider),
        ("template", info.template),
        ("made of", info.snapshot_id or info.parent_id or ""),
        ("network", info.egress.mode),
        ("identity", info.identity),
        ("labels", ", ".join(f"{key}={value}" for key, value in info.labels.items())),
        ("variables", ", ".join(info.env_names)),
        ("EXPOSED", ", ".join(info.exposed_secrets or ())),
        ("created", f"{info.created_at:%Y-%m-%d %H:%M:%S %Z}"),
        ("expires", f"{info.expires_at:%Y-%m-%d %H:%M:%S %Z}" if info.expires_at else ""),
        ("idle", f"{info.idle_at:%Y-%m-%d %H:%M:%S %Z}" if info.idle_at else ""),
        ("limits", f"{limits.cpus:g} cpus, {limits.memory_mib} MiB, {limits.disk_mib} MiB disk"),
    ]
    if usage is not None:
        used = f"{size(usage.memory_bytes)} memory, {size(usage.disk_bytes)} disk"
        lines.append(
            ("used", f"{used}, {usage.cpu_seconds or 0:.1f} s cpu, {usage.pids} processes")
        )
    return [(name, value) for name, value in lines if value]


@click.command()
@sandbox_argument
@start_option
@output_options
@pass_invocation
def ports(invocation: Invocation, name: str, start: bool) -> None:
    """List where programs inside listen.

    With the addresses at which they are seen from outside. A sandbox that is stopped, paused or
    archived is started first.
    """

    async def work() -> list[Port]:
        async with running_sandbox(invocation, name, start=start) as box:
            return list(await box.ports())

    found = run_async(work())
    if invocation.json:
        print_json({"ports": plain(found)})
        return
    print_table(
        ("PORT", "ADDRESS", "SEEN BY", "URL"),
        ((str(p.port), p.address, "everyone" if p.public else "you", p.url) for p in found),
    )


@click.command("open")
@sandbox_argument
@click.argument("port", type=click.IntRange(1, 65535))
@click.option("--for", "seconds", type=Seconds(), default="1h", show_default=True, help="So long.")
@click.option("--print", "only_print", is_flag=True, help="Start no browser.")
@output_options
@pass_invocation
def open_port(
    invocation: Invocation, /, name: str, port: int, *, seconds: float, only_print: bool
) -> None:
    """Open a port in a browser.

    A link is made that lets its holder in, and printed.
    """

    async def work() -> Link:
        async with sandbox(name) as box:
            return await box.share(port, seconds)

    link = run_async(work())
    answer(invocation, link, link.url)
    if not only_print and not invocation.json and terminal.is_terminal(STDOUT):
        click.launch(link.url)
