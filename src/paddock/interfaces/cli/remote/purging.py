"""`paddock purge`: an owner, removed and forgotten."""

import asyncio
from typing import Any

import click

from paddock.interfaces.cli.interrupts import run_async
from paddock.interfaces.cli.invocation import Invocation, pass_invocation
from paddock.interfaces.cli.options import output_options
from paddock.interfaces.cli.output import print_json
from paddock.interfaces.cli.remote.session import connected

_LOOK_EVERY_S = 0.5


@click.command()
@click.argument("owner")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@click.option("-f", "--force", is_flag=True, help="Also work that is nowhere else.")
@output_options
@pass_invocation
def purge(invocation: Invocation, /, owner: str, *, dry_run: bool, force: bool) -> int:
    """Remove all that belongs to an owner, and forget them.

    Their sandboxes and snapshots go, and what the logs say of them. It goes on on the server when
    this is interrupted.
    """
    done = run_async(_purge({"owner": owner, "dry_run": dry_run, "force": force}))
    if invocation.json:
        print_json(done)
    else:
        _tell(done)
    return 1 if done["state"] == "blocked" else 0


async def _purge(wish: dict[str, Any]) -> Any:
    async with connected() as server:
        found = await server.call("POST", "/v1/purge", json=wish)
        while found["state"] == "running":
            await asyncio.sleep(_LOOK_EVERY_S)
            found = await server.call("GET", f"/v1/purges/{found['id']}")
        return found


def _tell(done: dict[str, Any]) -> None:
    verb = "would go" if done["state"] == "planned" else "removed"
    for what, count in done["removed"].items():
        click.echo(f"{verb:<10}{count} {what}")
    for each in done["kept"]:
        click.echo(f"{'stays':<10}{each}")
