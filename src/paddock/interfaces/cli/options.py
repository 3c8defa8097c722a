"""Options that several commands have, so that they mean the same everywhere."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from paddock.interfaces.cli.command import Wish
from paddock.interfaces.cli.failures import refuse
from paddock.interfaces.cli.invocation import Invocation
from paddock.interfaces.cli.params import Seconds, argument_vector, environment

F = TypeVar("F", bound=Callable[..., Any])

PAYLOAD = {"allow_interspersed_args": False}
"""Context settings of a command with a payload: the first word that is no option begins it."""


def _choose_output(context: click.Context, _: click.Parameter, value: str | bool | None) -> None:
    invocation = context.find_object(Invocation)
    if invocation is not None and value in ("json", True):
        invocation.json = True


def output_options(command: F) -> F:
    """`-o json`, or `--json` for short: the same content for programs, with the same exit code."""
    hidden: dict[str, Any] = {"is_eager": True, "expose_value": False, "callback": _choose_output}
    short = click.option("--json", is_flag=True, help="The same as -o json.", **hidden)
    kinds = click.Choice(["table", "json"])
    full = click.option("-o", "--output", type=kinds, help="For people, or for programs.", **hidden)
    return full(short(command))


def provider_option(command: F) -> F:
    text = "Where sandboxes run: local, docker or auto."
    return click.option("-p", "--provider", default="", metavar="NAME", help=text)(command)


def command_options(command: F) -> F:
    """How a command in a sandbox is run; `wish()` reads them."""
    path = click.Path(path_type=Path)
    for decorate in (
        click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[--] CMD..."),
        click.option("-t/-T", "--tty/--no-tty", default=None, help="A terminal, or plain streams."),
        click.option("-u", "--user", default="", help="Run as this user of the sandbox."),
        click.option("-w", "--workdir", default="", help="Run in this directory."),
        click.option("--timeout", type=Seconds(), help="Then it is ended, with exit code 124."),
        click.option("--env-file", multiple=True, type=path, help="Lines of NAME=VALUE."),
        click.option("-e", "--env", multiple=True, metavar="NAME=VALUE", help="A variable."),
    ):
        command = decorate(command)
    return command


def login_option(command: F) -> F:
    text = "As in a login shell, with version managers."
    return click.option("--login", is_flag=True, help=text)(command)


def wish(options: dict[str, Any]) -> Wish:
    """What the options of `command_options` and `login_option` come down to."""
    # An empty word would be an empty script to a shell, which does nothing and calls it success.
    if not any(options["words"][:1]):
        refuse("no command was given", "write it after `--`, such as `-- python3 -V`")
    return Wish(
        argv=argument_vector(options["words"]),
        user=options["user"],
        workdir=options["workdir"],
        env=environment(options["env"], options["env_file"]),
        timeout_s=options["timeout"],
        tty=options["tty"],
        login=options.get("login", False),
    )
