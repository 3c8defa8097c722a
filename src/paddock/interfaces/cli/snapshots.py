"""`paddock sandbox snapshot …`: what was kept of sandboxes' disks, without a server."""

import contextlib
from collections.abc import Sequence
from dataclasses import asdict, replace

import click

from paddock.domain.errors import NotFound
from paddock.domain.ids import new_ulid
from paddock.domain.snapshot import Snapshot, SnapshotRef
from paddock.interfaces.cli import references
from paddock.interfaces.cli.interrupts import run_async
from paddock.interfaces.cli.invocation import Invocation, pass_invocation
from paddock.interfaces.cli.noun import Noun
from paddock.interfaces.cli.options import output_options, provider_option
from paddock.interfaces.cli.output import age, print_json, print_table, size, tell_left_out
from paddock.interfaces.cli.ownership import check_snapshot_unowned, check_unowned
from paddock.interfaces.cli.progress import Display
from paddock.interfaces.cli.toolbox import Opened
from paddock.ports.provider import Provider, Ref


class _CreateByDefault(Noun):
    """`snapshot SANDBOX` is short for `snapshot create SANDBOX`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        known = bool(args) and self.get_command(ctx, args[0]) is not None
        if args and not known and args[0] not in {"-h", "--help"}:
            args = ["create", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_CreateByDefault)
def snapshot() -> None:
    """What is kept of sandboxes' disks; `snapshot SANDBOX` takes one."""


@snapshot.command()
@click.argument("reference", metavar="SANDBOX")
@click.option("--memory", is_flag=True, help="Keep what runs in it as well, where that can be had.")
@click.option("--everything", is_flag=True, help="Also what the template's rules leave out.")
@provider_option
@output_options
@pass_invocation
def create(
    invocation: Invocation, reference: str, provider: str, *, memory: bool, everything: bool
) -> None:
    """Keep its disk as it is now; `template add --from-snapshot` makes a template of it."""

    async def work() -> Snapshot:
        ref = references.parse(reference, provider)
        with Display() as display:
            async with invocation.tools.open(ref.provider, display.tell) as opened:
                ref = replace(ref, provider=opened.provider.name)
                await check_unowned(opened.provider, ref)
                able = opened.provider.capabilities.snapshot_ignore
                whole = everything or memory or not able
                rules = () if whole else await _rules(opened, ref)
                key = f"cli-{new_ulid()}"
                return await opened.provider.snapshot(ref, key, memory=memory, ignore=rules)

    taken = run_async(work())
    if invocation.json:
        print_json({**asdict(taken), "ref": _name(taken.ref)})
    else:
        click.echo(_name(taken.ref))
        left_out = taken.left_out
        tell_left_out(left_out.paths, left_out.count, left_out.size_bytes)


async def _rules(opened: Opened, ref: Ref) -> tuple[str, ...]:
    """Those of its template, as long as there is one."""
    template = (await opened.provider.observe(ref)).template
    if opened.templates is None or not template:
        return ()
    with contextlib.suppress(NotFound):
        return opened.templates.recipe(template).snapshot_ignore
    return ()


def _name(ref: SnapshotRef) -> str:
    return f"{ref.provider}/{ref.id}"


@snapshot.command("ls")
@provider_option
@output_options
@pass_invocation
def list_snapshots(invocation: Invocation, provider: str) -> None:
    """List snapshots."""

    async def collect() -> list[Snapshot]:
        with Display() as display:
            async with invocation.tools.open(provider, display.tell) as opened:
                return [taken async for taken in opened.provider.snapshots()]

    found = sorted(run_async(collect()), key=lambda taken: taken.created_at)
    if invocation.json:
        rows = [{**asdict(taken), "ref": _name(taken.ref)} for taken in found]
        print_json({"snapshots": rows})
        return
    print_table(
        ("SNAPSHOT", "SANDBOX", "TEMPLATE", "AGE", "SIZE", "KEEPS"),
        (
            (_name(s.ref), s.source, s.template, age(s.created_at), size(s.size_bytes), _kept(s))
            for s in found
        ),
    )


def _kept(taken: Snapshot) -> str:
    return "disk, memory" if taken.memory else "disk"


@snapshot.command()
@click.argument("names", nargs=-1, required=True, metavar="SNAPSHOT...")
@provider_option
@output_options
@pass_invocation
def rm(invocation: Invocation, names: Sequence[str], provider: str) -> None:
    """Remove snapshots. Sandboxes that were made of them are not touched."""

    async def work() -> list[str]:
        removed: list[str] = []
        for name, refs in references.by_provider(names, provider):
            with Display() as display:
                async with invocation.tools.open(name, display.tell) as opened:
                    removed += await _remove(opened.provider, [each.id for each in refs])
        return removed

    removed = run_async(work())
    if invocation.json:
        print_json({"snapshots": removed, "done": "removed"})
    else:
        for name in removed:
            click.echo(f"{name} removed")


async def _remove(provider: Provider, identifiers: Sequence[str]) -> list[str]:
    """Absent is success for the provider, but a mistake for a person who named it."""
    refs = [SnapshotRef(provider.name, identifier) for identifier in identifiers]
    known = {taken.ref: taken async for taken in provider.snapshots()}
    for ref in refs:
        if (taken := known.get(ref)) is not None:
            check_snapshot_unowned(taken)
        else:
            raise NotFound(
                f"there is no snapshot {_name(ref)}",
                remediation="`paddock sandbox snapshot ls` shows what there is",
            )
    for ref in refs:
        await provider.delete_snapshot(ref)
    return [_name(ref) for ref in refs]
