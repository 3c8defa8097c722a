"""`paddock config` and `paddock secrets`: what a team and its apps have set."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from paddock.domain.secret import AccessPolicy
from paddock.interfaces.cli.failures import refuse
from paddock.interfaces.cli.invocation import Invocation, pass_invocation
from paddock.interfaces.cli.noun import Noun
from paddock.interfaces.cli.options import output_options
from paddock.interfaces.cli.output import print_json, print_table
from paddock.interfaces.cli.params import pairs
from paddock.interfaces.cli.remote.asking import ask, listed
from paddock.interfaces.cli.remote.binding import bind, bindings, unbind
from paddock.interfaces.cli.remote.session import answer
from paddock.interfaces.client.server import segment, without_nothing

_app = click.option("--app", default="", metavar="NAME", help="Of this app; else the team's.")
_policy = click.option(
    "--policy",
    type=click.Choice([policy.value for policy in AccessPolicy]),
    help="Where it may go.",
)


@click.group(cls=Noun)
def config() -> None:
    """What is set for the team and its apps, and can be read.

    Programs in sandboxes made with `--app` have it in their environment.
    """


@click.group(cls=Noun)
def secrets() -> None:
    """What is set for the team and its apps, and is never shown again.

    It stays with the control plane unless its policy says otherwise. Sandboxes use it without
    having it, at the hosts that it is bound to.
    """


for _command in (bind, unbind, bindings):
    secrets.add_command(_command)


def _put(name: str, app: str, **wish: Any) -> Any:
    path = f"/v1/secrets/{segment(name)}"
    return ask("PUT", path, json=without_nothing(**wish), query={"app": app})


@config.command("set")
@click.argument("given", nargs=-1, required=True, metavar="NAME=VALUE...")
@_app
@_policy
@output_options
@pass_invocation
def set_config(invocation: Invocation, given: Sequence[str], app: str, policy: str | None) -> None:
    """Set values that can be read again. Unless --policy says otherwise they go everywhere."""
    wanted = pairs(given, "NAME=VALUE")
    made = [
        _put(name, app, value=value, sensitive=False, policy=policy or AccessPolicy.BOTH.value)
        for name, value in wanted.items()
    ]
    answer(invocation, {"config": made}, "\n".join(f"{name} set" for name in wanted))


@secrets.command("set")
@click.argument("name")
@click.option("--from-file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--keep-value", is_flag=True, help="Change only the policy, to a narrower one.")
@_app
@_policy
@output_options
@pass_invocation
def set_secret(
    invocation: Invocation,
    /,
    name: str,
    *,
    from_file: Path | None,
    keep_value: bool,
    app: str,
    policy: str | None,
) -> None:
    """Set a secret. Its value is asked for, or read from standard input or a file: on a command
    line everyone on the host could see it."""
    value = None if keep_value else _value(name, from_file)
    made = _put(name, app, value=value, sensitive=None if keep_value else True, policy=policy)
    answer(invocation, made, f"{name} set ({made['policy']}, version {made['version']})")


def _value(name: str, file: Path | None) -> str:
    try:
        if file is not None:
            return file.read_text().removesuffix("\n")
        if sys.stdin.isatty():
            return str(click.prompt(f"value of {name}", hide_input=True))
        return sys.stdin.read().removesuffix("\n")
    except (OSError, UnicodeDecodeError):
        refuse(f"the value of {name} cannot be read", "give readable text")


@config.command("get")
@click.argument("name")
@_app
@output_options
@pass_invocation
def get_config(invocation: Invocation, name: str, app: str) -> None:
    """Print a value. One that is sensitive cannot be had."""
    found = ask("GET", f"/v1/secrets/{segment(name)}", query={"app": app})
    if found["value"] is None:
        refuse(f"{name} is sensitive, and its value is never shown", "set a new one if it is lost")
    answer(invocation, found, found["value"])


def _list(invocation: Invocation, app: str, *, sensitive: bool) -> None:
    found = [each for each in listed("/v1/secrets", app=app) if each["sensitive"] is sensitive]
    if invocation.json:
        print_json({"secrets" if sensitive else "config": found})
        return
    rows = ((s["name"], s["app"] or "–", s["policy"], str(s["version"])) for s in found)
    print_table(("NAME", "APP", "POLICY", "VERSION"), rows)


@config.command("ls")
@_app
@output_options
@pass_invocation
def list_config(invocation: Invocation, app: str) -> None:
    """List what can be read."""
    _list(invocation, app, sensitive=False)


@secrets.command("ls")
@_app
@output_options
@pass_invocation
def list_secrets(invocation: Invocation, app: str) -> None:
    """List secrets by name. Values are shown by nothing."""
    _list(invocation, app, sensitive=True)


def _remove(invocation: Invocation, names: Sequence[str], app: str) -> None:
    for name in names:
        ask("DELETE", f"/v1/secrets/{segment(name)}", query={"app": app})
    answer(invocation, {"removed": list(names)}, "\n".join(f"{name} removed" for name in names))


@config.command("rm")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@_app
@output_options
@pass_invocation
def remove_config(invocation: Invocation, names: Sequence[str], app: str) -> None:
    """Remove values."""
    _remove(invocation, names, app)


@secrets.command("rm")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@_app
@output_options
@pass_invocation
def remove_secrets(invocation: Invocation, names: Sequence[str], app: str) -> None:
    """Remove secrets."""
    _remove(invocation, names, app)


@secrets.command()
@output_options
@pass_invocation
def rotate(invocation: Invocation) -> None:
    """Seal everything with a new key. For admins of the team that runs the installation."""
    done = ask("POST", "/v1/secrets/rotate")
    answer(invocation, done, f"{done['resealed']} values sealed anew")
