"""`paddock template …`: the recipes that sandboxes start from."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path

import click

from paddock.domain.errors import Unsupported
from paddock.domain.template import Removed, SourceKind, Template, TemplateSource
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
from paddock.interfaces.cli.toolbox import Opened, Templates

_DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_SHOWN = 3


@click.group(cls=Noun)
def template() -> None:
    """What sandboxes start from."""


template.add_command(pool)
template.add_command(ignore)


@asynccontextmanager
async def _opened(invocation: Invocation, provider: str) -> AsyncIterator[tuple[Opened, Templates]]:
    with Display() as display:
        async with invocation.tools.open(provider, display.tell) as opened:
            if opened.templates is None:
                name = opened.provider.name
                raise Unsupported(
                    f"provider {name} keeps no templates of its own",
                    remediation="add --provider local, or `export PADDOCK_PROVIDER=local`",
                )
            yield opened, opened.templates


@template.command("ls")
@provider_option
@output_options
@pass_invocation
def list_templates(invocation: Invocation, provider: str) -> None:
    """List templates."""

    async def collect() -> list[Template]:
        async with _opened(invocation, provider) as (_, templates):
            return templates.recipes()

    found = run_async(collect())
    if invocation.json:
        rows = [{**asdict(each), "digest": each.digest()} for each in found]
        print_json({"templates": rows})
        return
    print_table(
        ("TEMPLATE", "SOURCE", "REFERENCE", "SET-UP", "SNAPSHOTS LEAVE OUT"),
        (_row(each) for each in found),
    )


def _row(each: Template) -> tuple[str, ...]:
    rules = " ".join(each.snapshot_ignore[:_SHOWN])
    more = len(each.snapshot_ignore) - _SHOWN
    return (
        each.name,
        each.source.kind,
        each.source.reference,
        str(len(each.setup) or "–"),
        f"{rules} and {more} more" if more > 0 else rules or "–",
    )


@template.command()
@click.argument("name")
@provider_option
@output_options
@pass_invocation
def build(invocation: Invocation, name: str, provider: str) -> None:
    """Build a template now instead of on first use."""

    async def work() -> None:
        async with _opened(invocation, provider) as (opened, _):
            await opened.prepare(name)

    run_async(work())
    _confirm(invocation, name, "built")


@template.command()
@click.argument("name")
@click.option("--from-image", metavar="REF", help="An OCI image: oci:PATH, docker:NAME, or a name.")
@click.option("--from-dir", type=_DIRECTORY, help="A root file system as a directory.")
@click.option("--from-tar", type=_FILE, help="A root file system as a tar archive.")
@click.option("--from-snapshot", metavar="ID", help="A snapshot of one of your sandboxes.")
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

    async def work() -> None:
        async with _opened(invocation, provider) as (_, templates):
            templates.add(recipe)

    run_async(work())
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

    async def work() -> list[Sequence[Removed]]:
        async with _opened(invocation, provider) as (_, templates):
            return [await templates.discard(name) for name in names]

    for name, removed in zip(names, run_async(work()), strict=True):
        freed = sum(each.freed_bytes for each in removed)
        _confirm(invocation, name, f"removed{_freed(freed)}", freed_bytes=freed)


@template.command()
@click.option("--all", "everything", is_flag=True, help="Also builds of templates you have.")
@provider_option
@output_options
@pass_invocation
def prune(invocation: Invocation, everything: bool, provider: str) -> None:
    """Remove the builds that no sandbox, snapshot or template needs."""

    async def work() -> Sequence[Removed]:
        async with _opened(invocation, provider) as (_, templates):
            return await templates.prune(everything=everything)

    removed = run_async(work())
    if invocation.json:
        print_json({"removed": [asdict(each) for each in removed]})
        return
    for each in removed:
        click.echo(f"{each.digest} removed{_freed(each.freed_bytes)}")
    if not removed:
        click.echo("there is nothing to remove")


def _freed(size: int) -> str:
    return f", {size / (1 << 20):.1f} MiB freed" if size else ""


def _confirm(invocation: Invocation, name: str, done: str, **more: int) -> None:
    if invocation.json:
        print_json({"template": name, "done": done.partition(",")[0], **more})
    else:
        click.echo(f"{name} {done}")
