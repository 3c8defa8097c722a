"""`paddock policy`: which commands may be run in sandboxes."""

import json
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from paddock.interfaces.cli.failures import refuse
from paddock.interfaces.cli.invocation import Invocation, pass_invocation
from paddock.interfaces.cli.noun import Noun
from paddock.interfaces.cli.options import output_options
from paddock.interfaces.cli.output import print_json, print_table
from paddock.interfaces.cli.params import argument_vector
from paddock.interfaces.cli.remote.asking import ask
from paddock.interfaces.cli.remote.session import SandboxName, answer, sandbox_argument
from paddock.interfaces.client.server import segment

F = TypeVar("F", bound=Callable[..., Any])
_FORBIDDEN = 1


@click.group(cls=Noun)
def policy() -> None:
    """Which commands may be run in sandboxes.

    A guard rail, not the fence: what an allowed program does is its own business. A team, a
    template and a sandbox can each have a policy, and all that apply have to agree.
    """


def _holder_options(command: F) -> F:
    for decorate in (
        click.option("--template", default="", metavar="NAME", help="Of a template."),
        click.option(
            "--sandbox", default="", type=SandboxName(), help="Of one sandbox; else the team's."
        ),
    ):
        command = decorate(command)
    return command


def _path(sandbox: str, template: str) -> tuple[str, str]:
    """Where it is, and whose it is in words."""
    if sandbox and template:
        refuse("--sandbox and --template were given", "a policy belongs to one of them")
    if sandbox:
        return f"/v1/sandboxes/{segment(sandbox)}/policy", f"sandbox {sandbox}"
    if template:
        return f"/v1/templates/{segment(template)}/policy", f"template {template}"
    return "/v1/policy", "the team"


@policy.command()
@_holder_options
@output_options
@pass_invocation
def show(invocation: Invocation, sandbox: str, template: str) -> None:
    """Say which rules there are, in their order."""
    found = ask("GET", _path(sandbox, template)[0])
    if invocation.json:
        print_json(found)
        return
    rows = [(rule["verdict"], rule["command"], rule["name"]) for rule in found["rules"]]
    rows.append((found["default"], "(everything else)", "default"))
    rows.append((found["unknown"], "(what cannot be told beforehand)", "unknown"))
    print_table(("VERDICT", "COMMAND", "RULE"), rows)


@policy.command("set")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@_holder_options
@output_options
@pass_invocation
def set_policy(invocation: Invocation, file: Path, sandbox: str, template: str) -> None:
    """Set a policy from a TOML or JSON file; `-` reads standard input.

    In force for every command that is started from then on.
    """
    path, whose = _path(sandbox, template)
    made = ask("PUT", path, json=_read(file))
    count = len(made["rules"])
    answer(invocation, made, f"{whose}: {count} rule{'' if count == 1 else 's'} in force")


def _read(file: Path) -> Any:
    try:
        with click.open_file(str(file), encoding="utf-8") as opened:
            text = opened.read()
    except OSError as error:
        refuse(f"{file} cannot be read: {error.strerror}", "name a readable file")
    try:
        return json.loads(text) if text.lstrip().startswith("{") else tomllib.loads(text)
    except ValueError as error:
        refuse(f"{file} is neither TOML nor JSON: {error}", "correct the file there")


@policy.command()
@_holder_options
@output_options
@pass_invocation
def rm(invocation: Invocation, sandbox: str, template: str) -> None:
    """Take a policy away."""
    path, whose = _path(sandbox, template)
    ask("DELETE", path)
    answer(invocation, {"policy": None}, f"{whose}: no policy")


@policy.command(context_settings={"ignore_unknown_options": True})
@sandbox_argument
@click.argument("words", nargs=-1, required=True, metavar="-- COMMAND...", type=click.UNPROCESSED)
@output_options
@pass_invocation
def check(invocation: Invocation, name: str, words: Sequence[str]) -> int:
    """Say what would become of a command, without running it. Exits 1 unless it is allowed."""
    argv = argument_vector(tuple(words))
    path = f"/v1/sandboxes/{segment(name)}/policy/check"
    found = ask("POST", path, json={"cmd": argv})
    by = f"  by rule {found['rule']!r} of the {found['policy']}" if found["rule"] else ""
    by = by or (f"  by the {found['policy']}'s policy" if found["policy"] else "")
    why = f"\n{found['program']}: {found['why']}" if found["why"] else ""
    answer(invocation, found, f"{found['verdict']}{by}{why}")
    return 0 if found["verdict"] == "allow" else _FORBIDDEN
