"""`paddock secrets bind`, `unbind` and `bindings`: secrets that are used without being inside."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from paddock.domain.broker.binding import Way
from paddock.interfaces.cli.invocation import Invocation, pass_invocation
from paddock.interfaces.cli.options import output_options
from paddock.interfaces.cli.output import print_json, print_table
from paddock.interfaces.cli.params import Seconds
from paddock.interfaces.cli.remote.asking import ask
from paddock.interfaces.cli.remote.session import SandboxName, answer
from paddock.interfaces.client.server import segment, without_nothing

_app = click.option("--app", default="", metavar="NAME", help="Of this app; else the team's.")
_way = click.option(
    "--as",
    "way",
    type=click.Choice([way.value for way in Way]),
    default=Way.HEADER.value,
    show_default=True,
    help="How it is used there.",
)


@click.command()
@click.argument("name")
@click.option("--host", "hosts", multiple=True, metavar="HOST", help="Where it may be sent.")
@_way
@click.option("--header", metavar="NAME", help="Which header; else Authorization.")
@click.option("--format", "form", metavar="TEXT", help="Of the header, such as `Bearer {}`.")
@click.option("--user", metavar="NAME", help="Of basic authentication, git or a registry.")
@click.option("--parameter", metavar="NAME", help="Of the query.")
@click.option("--route", metavar="NAME", help="Of a model API: anthropic, openai, gemini, …")
@click.option("--base-url", metavar="URL", help="OpenAI-compatible API; http:// for operators.")
@click.option("--spend-limit", type=float, metavar="USD", help="Of each sandbox, or task.")
@click.option("--env", metavar="NAME", help="The variable inside that has the placeholder.")
@click.option("--sandbox", "boxes", multiple=True, metavar="SANDBOX", help="For these only.")
@click.option("--expires", type=Seconds(), metavar="DURATION", help="After so long it ends.")
@click.option("--expose", is_flag=True, help="The variable has the value itself. It is recorded.")
@_app
@output_options
@pass_invocation
def bind(invocation: Invocation, /, name: str, *, way: str, app: str, **wish: Any) -> None:
    """Let sandboxes use a secret at some hosts without having it.

    Inside, a variable holds a placeholder. Requests to those hosts are given the value outside,
    once the host has proved to be it; everywhere else the placeholder is what is sent.
    """
    expires = wish["expires"]
    body = without_nothing(
        hosts=list(wish["hosts"]),
        header=wish["header"],
        format=wish["form"],
        user=wish["user"],
        parameter=wish["parameter"],
        env=wish["env"],
        sandboxes=list(wish["boxes"]),
        expose=wish["expose"],
        expires_at=_moment(expires) if expires else None,
        route=wish["route"],
        base_url=wish["base_url"],
        spend_limit_usd=wish["spend_limit"],
    )
    path = f"/v1/secrets/{segment(name)}/bindings/{way}"
    made = ask("PUT", path, json=body, query={"app": app})
    inside = f"; inside it is in {made['env']}" if made["env"] else ""
    exposed = ", where programs can READ ITS VALUE" if made["expose"] else ""
    answer(
        invocation, made, f"{name} bound to {', '.join(made['hosts'])} as {way}{inside}{exposed}"
    )


def _moment(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


@click.command()
@click.argument("name")
@_way
@_app
@output_options
@pass_invocation
def unbind(invocation: Invocation, name: str, way: str, app: str) -> None:
    """From now on a secret is sent nowhere in this way."""
    ask("DELETE", f"/v1/secrets/{segment(name)}/bindings/{way}", query={"app": app})
    answer(invocation, {"unbound": name, "way": way}, f"{name} is not bound as {way} any more")


@click.command()
@click.option(
    "--sandbox", default="", type=SandboxName(), metavar="SANDBOX", help="What this one has."
)
@_app
@output_options
@pass_invocation
def bindings(invocation: Invocation, sandbox: str, app: str) -> None:
    """List where secrets may be sent; of a sandbox, also whether that works."""
    if sandbox:
        found = ask("GET", f"/v1/sandboxes/{segment(sandbox)}/credentials")
        _print(invocation, found, [(each["binding"], _state(each)) for each in found["items"]])
        return
    found = ask("GET", "/v1/bindings", query={"app": app})
    _print(invocation, found, [(each, _terms(each)) for each in found["items"]])


def _print(invocation: Invocation, found: Any, rows: Sequence[tuple[Any, str]]) -> None:
    if invocation.json:
        print_json(found)
        return
    lines = [
        (each["secret"], each["way"], ", ".join(each["hosts"]), each["env"] or "–", more)
        for each, more in rows
    ]
    print_table(("SECRET", "AS", "HOSTS", "VARIABLE", "STATE"), lines)


def _state(standing: Any) -> str:
    state = "works" if standing["works"] else standing["why_not"]
    return f"{state}; EXPOSED" if standing["exposed"] else state


def _terms(binding: Any) -> str:
    terms = ["EXPOSED"] if binding["expose"] else []
    if binding["sandboxes"]:
        terms.append(f"for {', '.join(binding['sandboxes'])}")
    if binding["expires_at"]:
        terms.append(f"until {binding['expires_at'][:16]}")
    return "; ".join(terms) or "–"
