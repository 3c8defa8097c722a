"""`paddock person`, `session` and `login`: who is in the team, and who is signed in."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import click

from paddock.domain.team import Role
from paddock.interfaces.cli import terminal
from paddock.interfaces.cli.command import STDOUT
from paddock.interfaces.cli.invocation import Invocation, pass_invocation
from paddock.interfaces.cli.noun import Noun
from paddock.interfaces.cli.options import output_options
from paddock.interfaces.cli.output import age, print_json, print_table
from paddock.interfaces.cli.params import Seconds
from paddock.interfaces.cli.remote.asking import ask, listed
from paddock.interfaces.cli.remote.session import answer
from paddock.interfaces.client.server import segment, without_nothing

_ROLES = click.Choice([role.value for role in Role])


@click.group(cls=Noun)
def person() -> None:
    """The people of the team."""


@person.command()
@click.argument("name")
@click.option("--email", default="", help="By which they can be named.")
@click.option("--role", type=_ROLES, default=Role.MEMBER.value, show_default=True)
@output_options
@pass_invocation
def add(invocation: Invocation, /, name: str, *, email: str, role: str) -> None:
    """Let somebody in.

    The link by which they sign in, once and within three days, is printed this once.
    """
    made = ask("POST", "/v1/people", json={"name": name, "email": email, "role": role})
    answer(invocation, made, made["invitation"]["url"])
    if not invocation.json:
        click.echo(f"note: {made['id']} ({made['role']}); give them the link", err=True)


@person.command("ls")
@output_options
@pass_invocation
def list_people(invocation: Invocation) -> None:
    """List the people of the team, those who have left included."""
    found = listed("/v1/people")
    if invocation.json:
        print_json({"people": found})
        return
    rows = ((p["name"] or "–", p["email"] or "–", p["role"], p["id"], _since(p)) for p in found)
    print_table(("NAME", "EMAIL", "ROLE", "PERSON", "STATE"), rows)


def _since(person: dict[str, Any]) -> str:
    if person["removed_at"]:
        return f"left {_age(person['removed_at'])} ago"
    return f"for {_age(person['created_at'])}"


def _age(moment: str) -> str:
    return age(datetime.fromisoformat(moment).timestamp())


@person.command()
@click.argument("person", metavar="PERSON")
@click.option("--name")
@click.option("--email")
@click.option("--role", type=_ROLES, help="Holds at once for their tokens and sessions.")
@output_options
@pass_invocation
def change(invocation: Invocation, /, person: str, **wanted: str | None) -> None:
    """Change who somebody is, by id or address."""
    changed = ask("PATCH", f"/v1/people/{segment(person)}", json=without_nothing(**wanted))
    answer(invocation, changed, f"{changed['id']} {changed['name']} ({changed['role']})")


@person.command()
@click.argument("people", nargs=-1, required=True, metavar="PERSON...")
@click.option("--forget", is_flag=True, help="Also their names and addresses.")
@output_options
@pass_invocation
def rm(invocation: Invocation, people: Sequence[str], forget: bool) -> None:
    """Let somebody go: their tokens, links and sessions end at once."""
    query = {"forget": forget}
    done = [ask("DELETE", f"/v1/people/{segment(each)}", query=query) for each in people]
    answer(invocation, {"people": done}, "\n".join(f"{each['id']} removed" for each in done))


@person.command()
@click.argument("person", metavar="PERSON")
@click.option("--for", "seconds", type=Seconds(), default="10m", show_default=True, help="So long.")
@output_options
@pass_invocation
def link(invocation: Invocation, person: str, seconds: float) -> None:
    """Print a link that lets somebody sign in once."""
    made = ask("POST", f"/v1/people/{segment(person)}/links", json={"lifetime_s": seconds})
    answer(invocation, made, made["url"])


@click.command()
@click.option("--print", "only_print", is_flag=True, help="Start no browser.")
@output_options
@pass_invocation
def login(invocation: Invocation, only_print: bool) -> None:
    """Sign in to the console with a browser.

    A link that opens once, within ten minutes, is made for whose token you use, and printed.
    """
    made = ask("POST", "/v1/people/me/links", json={})
    answer(invocation, made, made["url"])
    if not only_print and not invocation.json and terminal.is_terminal(STDOUT):
        click.launch(made["url"])


@click.group(cls=Noun)
def session() -> None:
    """Who is signed in with a browser."""


@session.command("ls")
@output_options
@pass_invocation
def list_sessions(invocation: Invocation) -> None:
    """List your sessions, or the whole team's if you manage its people."""
    found = listed("/v1/sessions")
    if invocation.json:
        print_json({"sessions": found})
        return
    print_table(
        ("SESSION", "WHO", "USED", "STATE", "BROWSER"),
        ((s["id"], s["holder"], _age(s["used_at"]), _state(s), s["agent"][:40]) for s in found),
    )


def _state(session: dict[str, Any]) -> str:
    return "ended" if session["ended_at"] else f"until {session['ends_at'][:19]}"


@session.command()
@click.argument("sessions", nargs=-1, required=True, metavar="SESSION-ID...")
@output_options
@pass_invocation
def end(invocation: Invocation, sessions: Sequence[str]) -> None:
    """Sign browsers out."""
    done = [ask("DELETE", f"/v1/sessions/{segment(each)}") for each in sessions]
    answer(invocation, {"sessions": done}, "\n".join(f"{each} ended" for each in sessions))
