"""`paddock sandbox …`: sandboxes straight on a provider, for machines without a server."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import click

from paddock.domain.errors import PaddockError
from paddock.domain.guest import CommandResult
from paddock.domain.ids import new_ulid
from paddock.interfaces.cli import references
from paddock.interfaces.cli.attached import attach, collect
from paddock.interfaces.cli.command import explain
from paddock.interfaces.cli.failures import say
from paddock.interfaces.cli.interrupts import run_async
from paddock.interfaces.cli.invocation import Invocation, pass_invocation
from paddock.interfaces.cli.noun import Noun
from paddock.interfaces.cli.options import (
    PAYLOAD,
    command_options,
    output_options,
    provider_option,
    wish,
)
from paddock.interfaces.cli.output import age, print_json, print_table
from paddock.interfaces.cli.ownership import check_unowned, server_id
from paddock.interfaces.cli.params import pairs
from paddock.interfaces.cli.preflight import preflight
from paddock.interfaces.cli.progress import Display
from paddock.interfaces.cli.run import result_as_json, run
from paddock.interfaces.cli.snapshots import snapshot
from paddock.interfaces.cli.toolbox import Opened
from paddock.ports.provider import Observation, Provider, Ref, SandboxSpec

Verb = Callable[[Provider, Ref], Awaitable[object]]


@click.group(cls=Noun)
def sandbox() -> None:
    """Sandboxes without a server, straight on a provider.

    A server's sandboxes are listed but refused: use `paddock ls`, `paddock exec` and so on.
    A sandbox is named PROVIDER/ID, or by its id alone on the provider in use.
    """


sandbox.add_command(run)
sandbox.add_command(preflight)
sandbox.add_command(snapshot)


@asynccontextmanager
async def _opened(invocation: Invocation, provider: str) -> AsyncIterator[Opened]:
    with Display() as display:
        async with invocation.tools.open(provider, display.tell) as opened:
            yield opened


def _row(seen: Observation) -> dict[str, Any]:
    return {**asdict(seen), "ref": references.shown(seen.ref)}


@sandbox.command("ls")
@provider_option
@click.option("-l", "--label", "labels", multiple=True, metavar="K=V", help="Only those with it.")
@output_options
@pass_invocation
def list_sandboxes(invocation: Invocation, provider: str, labels: Sequence[str]) -> None:
    """List sandboxes."""
    wanted = pairs(labels, "--label")

    async def collect() -> list[Observation]:
        async with _opened(invocation, provider) as opened:
            return [seen async for seen in opened.provider.find(wanted)]

    found = sorted(run_async(collect()), key=lambda seen: seen.created_at)
    if invocation.json:
        print_json({"sandboxes": [_row(seen) for seen in found]})
        return
    print_table(
        ("SANDBOX", "STATE", "TEMPLATE", "AGE", "REASON", "SERVER-ID"),
        (
            (
                references.shown(seen.ref),
                seen.state,
                seen.template,
                age(seen.created_at),
                seen.reason or "–",
                server_id(seen.labels) or "–",
            )
            for seen in found
        ),
    )


@sandbox.command("exec", context_settings=PAYLOAD)
@click.argument("reference", metavar="SANDBOX")
@provider_option
@command_options
@output_options
@pass_invocation
def exec_(invocation: Invocation, /, reference: str, provider: str, **options: Any) -> int:
    """Run a command in a sandbox that is there.

    Streams and exit codes are passed on as by `paddock sandbox run`.
    """
    if options["words"][:1] == ("--",):  # click leaves it in place after the first argument
        options["words"] = options["words"][1:]
    asked = wish(options)

    async def work() -> CommandResult:
        async with _sandbox(invocation, reference, provider) as (opened, ref):
            address = await opened.provider.guest(ref)
            return await (collect if invocation.json else attach)(address, asked)

    result = run_async(work())
    if invocation.json:
        print_json(result_as_json(result))
    else:
        explain(result, asked)
    return result.exit_code


@asynccontextmanager
async def _sandbox(
    invocation: Invocation, reference: str, provider: str
) -> AsyncIterator[tuple[Opened, Ref]]:
    """The provider of the one sandbox that is meant, and its reference."""
    ref = references.parse(reference, provider)
    async with _opened(invocation, ref.provider) as opened:
        ref = replace(ref, provider=opened.provider.name)
        await check_unowned(opened.provider, ref)
        yield opened, ref


@dataclass
class _Batch:
    """One thing done to several sandboxes: what fails is said, and the rest is still done."""

    invocation: Invocation
    verb: Verb
    done: str
    code: int = 0
    finished: list[str] = field(default_factory=list)

    async def run(self, names: Sequence[str], provider: str) -> int:
        for name, refs in references.by_provider(names, provider):
            async with _opened(self.invocation, name) as opened:
                for ref in refs:
                    await self._do(opened.provider, replace(ref, provider=opened.provider.name))
        if self.invocation.json:
            print_json({"sandboxes": self.finished, "done": self.done})
        return self.code

    async def _do(self, provider: Provider, ref: Ref) -> None:
        try:
            await self.verb(provider, ref)
        except PaddockError as error:
            self.code = say(error, as_json=self.invocation.json)
            return
        self.finished.append(references.shown(ref))
        if not self.invocation.json:
            click.echo(f"{references.shown(ref)} {self.done}")


def _verb(name: str, done: str, verb: Verb, text: str) -> None:
    """A command that does one thing to any number of sandboxes."""

    @sandbox.command(name, help=text)
    @click.argument("names", nargs=-1, required=True, metavar="SANDBOX...")
    @provider_option
    @output_options
    @pass_invocation
    def act(invocation: Invocation, names: Sequence[str], provider: str) -> int:
        async def checked(place: Provider, ref: Ref) -> None:
            await check_unowned(place, ref)
            await verb(place, ref)

        return run_async(_Batch(invocation, checked, done).run(names, provider))


_verb("stop", "stopped", lambda p, ref: p.stop(ref), "End what runs in it; the disk is kept.")
_verb("start", "started", lambda p, ref: p.start(ref), "Start a stopped one again.")
_verb("pause", "paused", lambda p, ref: p.pause(ref), "Freeze it, memory and all.")
_verb("resume", "resumed", lambda p, ref: p.resume(ref), "Let a paused one go on.")


@sandbox.command()
@click.argument("names", nargs=-1, required=True, metavar="SANDBOX...")
@click.option(
    "-f",
    "--force",
    is_flag=True,
    help="Ignore absent ones; also remove a sandbox that a server owns.",
)
@provider_option
@output_options
@pass_invocation
def rm(invocation: Invocation, names: Sequence[str], provider: str, force: bool) -> int:
    """Remove sandboxes with everything in them.

    A sandbox that a server owns is refused: use `paddock rm`. With --force it is removed, and the
    server then reports it as lost.
    """

    async def remove(place: Provider, ref: Ref) -> None:
        if not force:
            await check_unowned(place, ref)
        await place.destroy(ref)

    return run_async(_Batch(invocation, remove, "removed").run(names, provider))


@sandbox.command()
@click.argument("reference", metavar="SANDBOX")
@provider_option
@output_options
@pass_invocation
def fork(invocation: Invocation, reference: str, provider: str) -> None:
    """Make a second sandbox with a copy of the disk; the first goes on."""

    async def work() -> Observation:
        async with _sandbox(invocation, reference, provider) as (opened, ref):
            source = await opened.provider.observe(ref)
            spec = SandboxSpec(resources=source.resources, labels=source.labels)
            return await opened.provider.fork(ref, f"cli-{new_ulid()}", spec)

    made = run_async(work())
    if invocation.json:
        print_json(_row(made))
    else:
        click.echo(references.shown(made.ref))
