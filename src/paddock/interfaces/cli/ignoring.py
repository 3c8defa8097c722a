"""`paddock template ignore`: what snapshots leave out, on the server or, where none is, here."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from paddock.interfaces.cli.interrupts import run_async
from paddock.interfaces.cli.invocation import Invocation, pass_invocation
from paddock.interfaces.cli.options import output_options, provider_option
from paddock.interfaces.cli.output import print_json
from paddock.interfaces.cli.remote.session import connected
from paddock.interfaces.client import PaddockError
from paddock.interfaces.client.failures import was_unreachable
from paddock.interfaces.client.place import is_said
from paddock.interfaces.client.server import segment


@dataclass(frozen=True, slots=True)
class _Found:
    rules: Sequence[str]
    changed: Path | None = None
    """The directory, where it was not a server that changed it."""


@click.command()
@click.argument("name")
@click.argument("rules", nargs=-1, metavar="[PATH]...")
@click.option("--none", "nothing", is_flag=True, help="Leave nothing out.")
@provider_option
@output_options
@pass_invocation
def ignore(
    invocation: Invocation, name: str, rules: Sequence[str], *, nothing: bool, provider: str
) -> None:
    """Show or set what snapshots of its sandboxes leave out.

    Each PATH begins with "/"; "*" and "?" may stand in its last part only. They replace those there
    are, for every snapshot from now on. Nothing is built anew. The server is asked; where none
    runs on this machine, the recipes in its data directory are.
    """
    if nothing and rules:
        raise click.UsageError("give paths or --none, not both")
    wanted = tuple(rules) if rules or nothing else None
    found = run_async(_settled(invocation, name, wanted, provider))
    if invocation.json:
        print_json({"template": name, "snapshot_ignore": found.rules})
        return
    for rule in found.rules:
        click.echo(rule)
    if not found.rules:
        click.echo(f"snapshots of {name} leave nothing out")
    if found.changed is not None:
        click.echo(f"no server runs here: changed in {found.changed}", err=True)


async def _settled(
    invocation: Invocation, name: str, wanted: Sequence[str] | None, provider: str
) -> _Found:
    try:
        return await _on_server(name, wanted, provider)
    except PaddockError as error:
        if is_said() or not was_unreachable(error):
            raise
    return await _here(invocation, name, wanted, provider)


async def _on_server(name: str, wanted: Sequence[str] | None, provider: str) -> _Found:
    path, query = f"/v1/templates/{segment(name)}", {"provider": provider or None}
    async with connected() as server:
        if wanted is None:
            found = await server.call("GET", path, query=query)
        else:
            body = {"snapshot_ignore": list(wanted)}
            found = await server.call("PATCH", path, json=body, query=query)
    return _Found(found["snapshot_ignore"])


async def _here(
    invocation: Invocation, name: str, wanted: Sequence[str] | None, provider: str
) -> _Found:
    recipes = await invocation.tools.recipes(provider)
    found = recipes.get(name)
    if wanted is None:
        return _Found(found.snapshot_ignore)
    recipes.add(replace(found, snapshot_ignore=tuple(wanted)))
    return _Found(wanted, changed=recipes.directory)
