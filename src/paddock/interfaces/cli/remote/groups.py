"""`paddock group`: the sandboxes of one piece of work."""

from collections import defaultdict
from typing import Any

import click

from paddock.interfaces.cli.interrupts import run_async
from paddock.interfaces.cli.invocation import Invocation, pass_invocation
from paddock.interfaces.cli.noun import Noun
from paddock.interfaces.cli.options import output_options
from paddock.interfaces.cli.output import print_json, print_table, printable
from paddock.interfaces.cli.remote.session import GONE, connected
from paddock.interfaces.client import AsyncSandbox, SandboxInfo
from paddock.interfaces.client.server import segment


@click.group(cls=Noun)
def group() -> None:
    """The sandboxes that share an identity."""


@group.command("ls")
@output_options
@pass_invocation
def list_groups(invocation: Invocation) -> None:
    """List the identities there are, and who has them."""

    async def work() -> dict[str, list[SandboxInfo]]:
        found = defaultdict(list)
        async with connected() as server:
            async for each in AsyncSandbox.list(server=server):
                if each.identity and each.state not in GONE:
                    found[each.identity].append(each)
        return found

    found = run_async(work())
    if invocation.json:
        rows = [{"identity": name, "sandboxes": _plain(own)} for name, own in found.items()]
        print_json({"groups": rows})
        return
    print_table(
        ("IDENTITY", "SANDBOXES"),
        ((name, ", ".join(each.name for each in own)) for name, own in found.items()),
    )


def _plain(sandboxes: list[SandboxInfo]) -> list[dict[str, str]]:
    return [{"id": each.id, "name": each.name, "state": each.state} for each in sandboxes]


@group.command()
@click.argument("identity")
@output_options
@pass_invocation
def overlaps(invocation: Invocation, identity: str) -> None:
    """Say which files were edited in more than one sandbox of a group.

    Compared with what each began with, committed or not. Sandboxes of which that cannot be told are
    named with the reason.
    """

    async def work() -> dict[str, Any]:
        async with connected() as server:
            path = f"/v1/groups/{segment(identity)}/overlaps"
            answer: dict[str, Any] = await server.call("GET", path)
            return answer

    told = run_async(work())
    if invocation.json:
        print_json(told)
        return
    print_table(
        ("FILE", "EDITED IN", ""),
        (
            (printable(o["path"]), _edits(o), "all the same" if o["same"] else "")
            for o in told["overlaps"]
        ),
    )
    for member in told["members"]:
        if member["why"]:
            click.echo(f"note: {member['name']} was left out: {member['why']}", err=True)


def _edits(overlap: dict[str, Any]) -> str:
    return ", ".join(f"{each['name']} ({each['kind']})" for each in overlap["edits"])
