"""`paddock quarantine`: sandboxes that were set aside."""

from typing import Any

import click

from paddock.interfaces.cli.interrupts import run_async
from paddock.interfaces.cli.invocation import Invocation, pass_invocation
from paddock.interfaces.cli.noun import Noun
from paddock.interfaces.cli.options import output_options
from paddock.interfaces.cli.output import print_json, print_table, printable
from paddock.interfaces.cli.remote.session import SandboxName, connected, gathered
from paddock.interfaces.client.server import segment

_PATH = "/v1/quarantine"


@click.group(cls=Noun)
def quarantine() -> None:
    """Sandboxes that were set aside: nobody but an admin goes in."""


def _call(method: str, name: str, **more: Any) -> Any:
    async def work() -> Any:
        async with connected() as server:
            return await server.call(method, f"{_PATH}/{segment(name)}", **more)

    return run_async(work())


@quarantine.command("ls")
@output_options
@pass_invocation
def list_set_aside(invocation: Invocation) -> None:
    """List those of your team."""

    async def work() -> list[Any]:
        async with connected() as server:
            return await gathered(server.pages(_PATH, {}))

    found = run_async(work())
    if invocation.json:
        print_json({"quarantine": found})
        return
    rows = (
        (each["name"], each["at"], each["by"], each["snapshot"] or "–", printable(each["why"])[:80])
        for each in found
    )
    print_table(("NAME", "SINCE", "BY", "SNAPSHOT", "WHY"), rows)


@quarantine.command()
@click.argument("name", type=SandboxName())
def show(name: str) -> None:
    """Print the evidence, as JSON."""
    print_json(_call("GET", name))


@quarantine.command("set")
@click.argument("name", type=SandboxName())
@click.option("--why", required=True, help="For those who find it, and for the audit log.")
@output_options
@pass_invocation
def set_aside(invocation: Invocation, name: str, why: str) -> None:
    """Set a sandbox aside: it stands still, a task in it waits, its disk is kept."""
    case = _call("PUT", name, json={"why": why})
    if invocation.json:
        print_json(case)
        return
    click.echo(f"{case['name']} was set aside; evidence: {case['snapshot'] or 'no snapshot'}")
    for each in case["missing"]:
        click.echo(f"  could not be had: {printable(each)}", err=True)


@quarantine.command()
@click.argument("name", type=SandboxName())
@output_options
@pass_invocation
def clear(invocation: Invocation, name: str) -> None:
    """Open a sandbox again, as an admin, if it passes a smoke test."""
    opened = _call("DELETE", name)
    if invocation.json:
        print_json(opened)
        return
    click.echo(f"{opened['name']}  {opened['state']}")
