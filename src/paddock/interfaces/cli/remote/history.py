"""`paddock events`: what happened."""

import json
from collections.abc import AsyncIterator, Sequence

import click

from paddock.interfaces.cli.command import STDOUT
from paddock.interfaces.cli.interrupts import run_async
from paddock.interfaces.cli.invocation import Invocation, pass_invocation
from paddock.interfaces.cli.options import output_options
from paddock.interfaces.cli.remote.session import SandboxName, connected, plain
from paddock.interfaces.cli.streams import Writer
from paddock.interfaces.client import AsyncSandbox, Server
from paddock.interfaces.client.events import follow_events, list_events
from paddock.interfaces.client.results import Event


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
