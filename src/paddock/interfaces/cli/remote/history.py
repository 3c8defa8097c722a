"""`paddock events` and `paddock audit`: what happened, and who did it."""

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import click

from paddock.interfaces.cli.command import STDOUT
from paddock.interfaces.cli.interrupts import run_async
from paddock.interfaces.cli.invocation import Invocation, pass_invocation
from paddock.interfaces.cli.options import output_options
from paddock.interfaces.cli.output import print_table
from paddock.interfaces.cli.remote.session import SandboxName, connected, gathered, plain
from paddock.interfaces.cli.streams import Writer
from paddock.interfaces.client import AsyncSandbox, Server
from paddock.interfaces.client.events import follow_events, list_events
from paddock.interfaces.client.results import Event
from paddock.interfaces.client.server import Call


@click.command()
@click.argument("name", metavar="[SANDBOX]", required=False, default="", type=SandboxName())
@click.option("-f", "--follow", is_flag=True, help="Go on with what happens.")
@click.option("--kind", "kinds", multiple=True, help="Only these, such as sandbox.stopped.")
@click.option("--app", default="", metavar="NAME", help="Only of this app.")
@output_options
@pass_invocation
def events(
    invocation: Invocation, name: str, follow: bool, *, kinds: Sequence[str], app: str
) -> None:
    """Say what happened, oldest first. As JSON it is one event a line."""

    async def work() -> None:
        writer = Writer(STDOUT)
        async with connected() as server:
            subject = (await AsyncSandbox.connect(name, server=server)).id if name else ""
            async for event in _events(server, subject, kinds, app=app, follow=follow):
                line = json.dumps(plain(event)) if invocation.json else _line(event)
                await writer.write(f"{line}\n".encode())

    run_async(work())


async def _events(
    server: Server, subject: str, kinds: Sequence[str], *, app: str, follow: bool
) -> AsyncIterator[Event]:
    last = 0
    async for event in list_events(server, subject, kinds, app=app):
        last = event.seq
        yield event
    if follow:
        async for event in follow_events(server, subject, kinds, app=app, after=last):
            yield event


def _line(event: Event) -> str:
    name, reason = event.data.get("name", ""), event.data.get("reason", "")
    shown = [f"{event.at:%Y-%m-%d %H:%M:%S}", f"{event.kind:<18}", event.subject]
    return "  ".join([*shown, *(str(each) for each in (name, reason) if each)])


@click.command()
@click.option("--export", is_flag=True, help="All of it, one entry a line, with its chain.")
@output_options
@pass_invocation
def audit(invocation: Invocation, export: bool) -> None:
    """Say who did what in the team, oldest first. For those whose role may read it."""
    if export or invocation.json:
        run_async(_export())
        return

    async def work() -> list[dict[str, Any]]:
        async with connected() as server:
            return await gathered(server.pages("/v1/audit", {}))

    print_table(
        ("WHEN", "WHO", "WHAT", "TO"),
        (
            (entry["at"][:19].replace("T", " "), _who(entry), entry["action"], entry["subject"])
            for entry in run_async(work())
        ),
    )


def _who(entry: dict[str, Any]) -> str:
    person = entry["person"]
    return f"{person['name']} ({person['id']})" if person and person["name"] else entry["actor"]


async def _export() -> None:
    writer = Writer(STDOUT)
    async with connected() as server, server.open(Call("GET", "/v1/audit/export")) as response:
        async for piece in response.content.iter_any():
            await writer.write(piece)
