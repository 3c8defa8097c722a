"""`paddock settings`: what is in effect on the server, and what can be changed while it runs."""

import json
from collections.abc import Sequence
from typing import Any

import click

from paddock.interfaces.cli.invocation import Invocation, pass_invocation
from paddock.interfaces.cli.noun import Noun
from paddock.interfaces.cli.options import output_options
from paddock.interfaces.cli.output import print_json, print_table
from paddock.interfaces.cli.params import pairs
from paddock.interfaces.cli.remote.asking import ask


@click.group(cls=Noun, invoke_without_command=True)
@click.pass_context
def settings(context: click.Context) -> None:
    """What is in effect on the server, and where it comes from. Without a command, list it."""
    if context.invoked_subcommand is None:
        context.invoke(list_settings)


@settings.command("ls")
@click.option("--hot", is_flag=True, help="Only those that can be changed while it runs.")
@output_options
@pass_invocation
def list_settings(invocation: Invocation, hot: bool = False) -> None:
    """List the settings in effect. No secret is among them."""
    found = ask("GET", "/v1/settings")["items"]
    _show(invocation, [each for each in found if each["hot"] or not hot])


@settings.command("set")
@click.argument("given", nargs=-1, required=True, metavar="KEY=VALUE...")
@output_options
@pass_invocation
def set_settings(invocation: Invocation, given: Sequence[str]) -> None:
    """Change settings of the running server; all of them or none. They outlive a restart."""
    wanted = {key: _read(value) for key, value in pairs(given, "KEY=VALUE").items()}
    found = ask("PATCH", "/v1/settings", json={"values": wanted})["items"]
    _show(invocation, [each for each in found if each["key"] in wanted])


@settings.command("reset")
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@output_options
@pass_invocation
def reset_settings(invocation: Invocation, keys: Sequence[str]) -> None:
    """Go back to what the configuration says."""
    found = ask("PATCH", "/v1/settings", json={"reset": list(keys)})["items"]
    _show(invocation, [each for each in found if each["key"] in keys])


def _read(value: str) -> Any:
    """A number, true, false or null as such, and everything else as text."""
    try:
        read = json.loads(value)
    except ValueError:
        return value
    return value if isinstance(read, list | dict) else read


def _show(invocation: Invocation, found: Sequence[Any]) -> None:
    if invocation.json:
        print_json({"settings": list(found)})
        return
    rows = (
        (each["key"], each["source"], "yes" if each["hot"] else "", json.dumps(each["value"]))
        for each in found
    )
    print_table(("KEY", "SOURCE", "HOT", "VALUE"), rows)
