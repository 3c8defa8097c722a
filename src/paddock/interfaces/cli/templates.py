"""`paddock template …`: the recipes that sandboxes start from, on the server."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from paddock.domain.template import SourceKind, Template, TemplateSource
from paddock.interfaces.cli.failures import refuse
from paddock.interfaces.cli.ignoring import ignore
from paddock.interfaces.cli.interrupts import run_async
from paddock.interfaces.cli.invocation import Invocation, pass_invocation
from paddock.interfaces.cli.noun import Noun
from paddock.interfaces.cli.options import output_options, provider_option
from paddock.interfaces.cli.output import print_json, print_table
from paddock.interfaces.cli.params import environment
from paddock.interfaces.cli.progress import Display
from paddock.interfaces.cli.remote.pools import pool
from paddock.interfaces.cli.remote.session import gathered
from paddock.interfaces.cli.template_place import opened, server_or_here
from paddock.interfaces.client import Server
from paddock.interfaces.client.following import messages, streaming
from paddock.interfaces.client.server import segment

_PATH = "/v1/templates"
_ON_SERVER = click.Path(path_type=Path)
"""Whether it exists, only the server can say."""
_SHOWN = 3


@click.group(cls=Noun)
def template() -> None:
    """What sandboxes start from."""


template.add_command(pool)
template.add_command(ignore)


@template.command("ls")
@provider_option
@output_options
@pass_invocation
def list_templates(invocation: Invocation, provider: str) -> None:
    """List templates: the installation's, and those that your team has built from code."""

    async def ask(server: Server) -> list[Any]:
        return await gathered(server.pages(_PATH, {"provider": provider}))

    async def look() -> list[Any]:
        async with opened(invocation, provider) as (_, templates):
            return [_shown(each) for each in templates.recipes()]

    found = run_async(server_or_here(ask, look, changes=False))
    if invocation.json:
        print_json({"templates": found})
        return
    print_table(
        ("TEMPLATE", "OWNER", "SOURCE", "REFERENCE", "BUILT", "SET-UP", "SNAPSHOTS LEAVE OUT"),
        (_row(each) for each in found),
    )


def _shown(each: Template) -> dict[str, Any]:
    """As the server has it. Whether it is built, only a server says."""
    content = {**asdict(each), "env": dict(each.env), "digest": each.digest()}
    return {**content, "built": None, "owner": "installation", "tags": []}


def _row(each: dict[str, Any]) -> tuple[str, ...]:
    rules = " ".join(each["snapshot_ignore"][:_SHOWN])
    more = len(each["snapshot_ignore"]) - _SHOWN
    return (
        each["name"],
        each["owner"],
        each["source"]["kind"],
        each["source"]["reference"],
        {True: "yes", False: "no", None: "–"}[each["built"]],
        str(len(each["setup"]) or "–"),
        f"{rules} and {more} more" if more > 0 else rules or "–",
    )


@template.command()
@click.argument("name")
@provider_option
@output_options
@pass_invocation
def build(invocation: Invocation, name: str, provider: str) -> None:
    """Build a template now instead of on first use."""

    async def ask(server: Server) -> None:
        path, query = f"{_PATH}/{segment(name)}/build", {"provider": provider}
        steps = messages(server, streaming("POST", path, query=query))
        try:
            await _show(steps, quiet=invocation.json)
        except asyncio.CancelledError:
            click.echo(f"interrupted: the server still builds {name}", err=True)
            raise

    async def work() -> None:
        async with opened(invocation, provider) as (found, _):
            await found.prepare(name)

    run_async(server_or_here(ask, work))
    _confirm(invocation, name, "built")


async def _show(steps: AsyncIterator[Mapping[str, Any]], *, quiet: bool) -> None:
    with Display() as display:
        async for step in steps:
            if step["type"] == "progress" and not quiet:
                display.tell(step["text"], step["fraction"])


@template.command()
@click.argument("name")
@click.option("--from-image", metavar="REF", help="An OCI image: oci:PATH, docker:NAME, or a name.")
@click.option("--from-dir", type=_ON_SERVER, help="Directory on the server: a root file system.")
@click.option("--from-tar", type=_ON_SERVER, help="Tar archive on the server: a root file system.")
@click.option("--from-snapshot", metavar="NAME|ID", help="A snapshot of one of your sandboxes.")
@click.option("--setup", multiple=True, metavar="CMD", help="Run as root when it is built.")
@click.option("-e", "--env", multiple=True, metavar="NAME=VALUE", help="For every command.")
@click.option("-u", "--user", default="user", show_default=True, help="Who commands run as.")
@click.option("-w", "--workdir", default="", help="Where commands start; else the user's home.")
@click.option("--hardened", is_flag=True, help="No new privileges, so no sudo, in any sandbox.")
@click.option("--runtime", type=click.Choice(["crun", "runc", "runsc"]), help="What isolates.")
@click.option(
    "--snapshot-ignore", multiple=True, metavar="PATH", help="Left out of snapshots: /tmp/*."
)
@provider_option
@output_options
@pass_invocation
def add(
    invocation: Invocation,
    /,
    name: str,
    provider: str,
    *,
    setup: Sequence[str],
    env: Sequence[str],
    user: str,
    workdir: str,
    hardened: bool,
    runtime: str | None,
    snapshot_ignore: Sequence[str],
    **sources: str | Path | None,
) -> None:
    """Add a template, or replace the one of that name. It is built on first use."""
    recipe = Template(
        name=name,
        source=_source(sources),
        setup=tuple(setup),
        env=tuple(environment(env, ()).items()),
        user=user,
        workdir=workdir,
        hardened=hardened,
        runtime=runtime or "",
        snapshot_ignore=tuple(snapshot_ignore),
    )

    async def ask(server: Server) -> None:
        body = {**asdict(recipe), "env": dict(recipe.env)}
        await server.call("POST", _PATH, json=body, query={"provider": provider})

    async def work() -> None:
        async with opened(invocation, provider) as (_, templates):
            templates.add(recipe)

    run_async(server_or_here(ask, work))
    _confirm(invocation, name, "added")


def _source(given: dict[str, str | Path | None]) -> TemplateSource:
    kinds = {
        "from_image": SourceKind.IMAGE,
        "from_dir": SourceKind.DIRECTORY,
        "from_tar": SourceKind.TAR,
        "from_snapshot": SourceKind.SNAPSHOT,
    }
    chosen = [(kinds[option], value) for option, value in given.items() if value is not None]
    if len(chosen) != 1:
        options = ", ".join("--" + option.replace("_", "-") for option in kinds)
        refuse(f"a template has one source; {len(chosen)} were given", f"give one of {options}")
    kind, value = chosen[0]
    return TemplateSource(kind, str(value.absolute() if isinstance(value, Path) else value))


@template.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME|DIGEST...")
@provider_option
@output_options
@pass_invocation
def rm(invocation: Invocation, names: Sequence[str], provider: str) -> None:
    """Remove templates with their builds, or builds by their digests.

    One that sandboxes or snapshots were made of stays. Of one that comes with Paddock only the
    build goes.
    """

    async def ask(server: Server) -> list[int]:
        for name in names:
            await server.call("DELETE", f"{_PATH}/{segment(name)}", query={"provider": provider})
        return [0 for _ in names]

    async def work() -> list[int]:
        async with opened(invocation, provider) as (_, templates):
            removed = [await templates.discard(name) for name in names]
            return [sum(each.freed_bytes for each in builds) for builds in removed]

    for name, freed in zip(names, run_async(server_or_here(ask, work)), strict=True):
        _confirm(invocation, name, f"removed{_freed(freed)}", freed_bytes=freed)


@template.command()
@click.option("--all", "everything", is_flag=True, help="Also builds of templates you have.")
@provider_option
@output_options
@pass_invocation
def prune(invocation: Invocation, everything: bool, provider: str) -> None:
    """Remove the builds that no sandbox, snapshot or template needs."""

    async def ask(server: Server) -> list[Any]:
        query = {"provider": provider, "everything": everything}
        found = await server.call("POST", f"{_PATH}/prune", query=query)
        return list(found["items"])

    async def work() -> list[Any]:
        async with opened(invocation, provider) as (_, templates):
            return [asdict(each) for each in await templates.prune(everything=everything)]

    removed = run_async(server_or_here(ask, work))
    if invocation.json:
        print_json({"removed": removed})
        return
    for each in removed:
        click.echo(f"{each['digest']} removed{_freed(each['freed_bytes'])}")
    if not removed:
        click.echo("there is nothing to remove")


def _freed(size: int) -> str:
    return f", {size / (1 << 20):.1f} MiB freed" if size else ""


def _confirm(invocation: Invocation, name: str, done: str, **more: int) -> None:
    if invocation.json:
        print_json({"template": name, "done": done.partition(",")[0], **more})
    else:
        click.echo(f"{name} {done}")
