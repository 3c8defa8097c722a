"""`paddock purge`: an owner or an app, removed and forgotten."""

import asyncio
from typing import Any

import click

from paddock.interfaces.cli import terminal
from paddock.interfaces.cli.command import STDIN
from paddock.interfaces.cli.failures import FAILED, refuse
from paddock.interfaces.cli.interrupts import run_async
from paddock.interfaces.cli.invocation import Invocation, pass_invocation
from paddock.interfaces.cli.options import output_options
from paddock.interfaces.cli.output import print_json
from paddock.interfaces.cli.remote.session import connected

_LOOK_EVERY_S = 0.5


@click.command()
@click.argument("owner", required=False, default="")
@click.option("--app", default="", metavar="NAME", help="All of this app, instead of an owner.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("-f", "--force", is_flag=True, help="Also work that is nowhere else.")
@output_options
@pass_invocation
def purge(
    invocation: Invocation, /, owner: str, *, app: str, dry_run: bool, yes: bool, force: bool
) -> int:
    """Remove all that belongs to an owner or an app, and forget them.

    Their sandboxes and snapshots go with the tasks of these, an app's secrets and configuration,
    and what the logs say of them. The command lists what it removes and asks for
    confirmation; without a terminal, --yes is required. An interrupt does not stop the purge on the
    server.
    """
    if bool(owner) == bool(app):
        raise click.UsageError("give the name of an OWNER, or an app with --app")
    whose = {"app": app} if app else {"owner": owner}
    if not (dry_run or yes) and not _is_confirmed(invocation, {**whose, "force": force}):
        click.echo("nothing was removed", err=True)
        return FAILED
    done = run_async(_purge({**whose, "dry_run": dry_run, "force": force}))
    if invocation.json:
        print_json(done)
    else:
        _tell(done)
    return FAILED if done["state"] == "blocked" else 0


def _is_confirmed(invocation: Invocation, wish: dict[str, Any]) -> bool:
    """Show what would be removed, and ask."""
    if invocation.json or not terminal.is_terminal(STDIN):
        refuse(
            "a purge cannot be undone, and there is no terminal to confirm it",
            "check with --dry-run, then add --yes",
        )
    _tell(run_async(_purge({**wish, "dry_run": True})))
    return click.confirm("Remove this for good?", err=True)


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
