"""`paddock token` and `paddock team`: who may come in."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import click

from paddock.domain.team import Role, Scope
from paddock.interfaces.cli.invocation import Invocation, pass_invocation
from paddock.interfaces.cli.noun import Noun
from paddock.interfaces.cli.options import output_options
from paddock.interfaces.cli.output import age, print_json, print_table
from paddock.interfaces.cli.params import Seconds
from paddock.interfaces.cli.remote.asking import ask, listed
from paddock.interfaces.cli.remote.quotas import quota
from paddock.interfaces.cli.remote.session import answer
from paddock.interfaces.client.server import segment, without_nothing

_ROLES = click.Choice([role.value for role in Role])
_SCOPES = click.Choice([scope.value for scope in Scope])


@click.group(cls=Noun)
def token() -> None:
    """Who may come in, and for what."""


@token.command()
@click.argument("name")
@click.option("--role", type=_ROLES, default=Role.MEMBER.value, show_default=True)
@click.option("--scope", "scopes", multiple=True, type=_SCOPES, help="Only for this.")
@click.option("--expires", type=Seconds(), help="After so long.")
@click.option("--team", default="", help="Of another team, for its operators.")
@click.option("--person", default="", help="Whose it is: an id, an address, or `me`.")
@output_options
@pass_invocation
def create(
    invocation: Invocation,
    /,
    name: str,
    *,
    role: str,
    scopes: Sequence[str],
    expires: float | None,
    team: str,
    person: str,
) -> None:
    """Make a token. It is printed this once."""
    wish = without_nothing(
        name=name,
        role=role,
        scopes=list(scopes) or None,
        lifetime_s=expires,
        team=team or None,
        person=person or None,
    )
    made = ask("POST", "/v1/tokens", json=wish)
    answer(invocation, made, made["token"])
    if not invocation.json:
        click.echo(f"note: {made['id']} ({made['role']}); it is not shown again", err=True)


@token.command("ls")
@output_options
@pass_invocation
def list_tokens(invocation: Invocation) -> None:
    """List the team's tokens, revoked ones included."""
    found = listed("/v1/tokens")
    if invocation.json:
        print_json({"tokens": found})
        return
    print_table(
        ("TOKEN", "NAME", "ROLE", "SCOPES", "AGE", "STATE"),
        (
            (t["id"], t["name"], t["role"], _scopes(t), _age(t["created_at"]), _state(t))
            for t in found
        ),
    )


def _scopes(token: dict[str, Any]) -> str:
    return "all of the role" if token["scopes"] is None else ",".join(token["scopes"])


def _state(token: dict[str, Any]) -> str:
    if token["revoked_at"]:
        return "revoked"
    return f"until {token['expires_at'][:19]}" if token["expires_at"] else "valid"


def _age(moment: str) -> str:
    return age(datetime.fromisoformat(moment).timestamp())


@token.command()
@click.argument("tokens", nargs=-1, required=True, metavar="TOKEN-ID...")
@output_options
@pass_invocation
def revoke(invocation: Invocation, tokens: Sequence[str]) -> None:
    """Let tokens open nothing any more."""
    done = [ask("DELETE", f"/v1/tokens/{segment(each)}") for each in tokens]
    lines = "\n".join(f"{each} revoked" for each in tokens)
    answer(invocation, {"tokens": done}, lines)


@click.group(cls=Noun)
def team() -> None:
    """Teams: what belongs to one does not exist for another."""


@team.command("create")
@click.argument("name")
@output_options
@pass_invocation
def create_team(invocation: Invocation, name: str) -> None:
    """Make a team. The token of its first admin is printed this once."""
    made = ask("POST", "/v1/teams", json={"name": name})
    answer(invocation, made, made["token"]["token"])
    if not invocation.json:
        click.echo(f"note: team {made['name']} ({made['id']})", err=True)


team.add_command(quota)


@team.command("ls")
@output_options
@pass_invocation
def list_teams(invocation: Invocation) -> None:
    """List the teams that you may see."""
    found = listed("/v1/teams")
    if invocation.json:
        print_json({"teams": found})
        return
    rows = ((t["name"], t["id"], _age(t["created_at"])) for t in found)
    print_table(("NAME", "TEAM", "AGE"), rows)
