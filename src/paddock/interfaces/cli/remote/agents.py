"""`paddock agents`: who does the work of tasks, and what each needs before it can."""

from contextlib import aclosing
from typing import Any

import click

from paddock.interfaces.cli.interrupts import run_async
from paddock.interfaces.cli.invocation import Invocation, pass_invocation
from paddock.interfaces.cli.noun import Noun
from paddock.interfaces.cli.options import output_options
from paddock.interfaces.cli.output import print_json, print_table
from paddock.interfaces.cli.progress import Display
from paddock.interfaces.cli.remote.asking import ask, listed
from paddock.interfaces.cli.remote.session import answer, connected
from paddock.interfaces.client.following import messages, streaming
from paddock.interfaces.client.server import segment

_PATH = "/v1/agents"


@click.group(cls=Noun, invoke_without_command=True)
@output_options
@click.pass_context
def agents(context: click.Context) -> None:
    """Who does the work of tasks, and what each needs before it can.

    Without a command, all are listed. What is not installed is installed for the first task.
    """
    if context.invoked_subcommand is None:
        _list(context.ensure_object(Invocation))


@agents.command("ls")
@output_options
@pass_invocation
def list_agents(invocation: Invocation) -> None:
    """List all agents, by name."""
    _list(invocation)


@agents.command()
@click.argument("name")
@output_options
@pass_invocation
def inspect(invocation: Invocation, name: str) -> None:
    """Say what an agent can do, and what it needs."""
    found = ask("GET", f"{_PATH}/{segment(name)}")
    credentials = [f"{each['name']} ({each['state']})" for each in found["credentials"]]
    lines = (
        f"name         {found['name']}",
        f"title        {found['title']}",
        f"version      {found['version'] or '–'}",
        f"package      {found['package'] or '–'}",
        f"installed    {_installed(found)}",
        f"ready        {_ready(found)}",
        f"credentials  {', '.join(credentials) or 'none needed'}",
        f"messages     {', '.join(found['modes']) or 'none while it works'}",
        f"keeps to     {', '.join(found['keeps_to']) or 'no mode by itself'}",
        f"resumes      {'yes' if found['resumes'] else 'no'}",
        f"MCP servers  {'yes' if found['tools'] else 'no'}",
        f"model        {found['default_model'] or '–'}",
    )
    answer(invocation, found, "\n".join(lines))


@agents.command()
@click.argument("name")
@output_options
@pass_invocation
def install(invocation: Invocation, name: str) -> None:
    """Install an agent on the server's host, for all sandboxes.

    One that is there is tried, and installed anew if it does not answer. For operators.
    """
    with Display() as display:
        found = run_async(_installing(name, display))
    answer(invocation, found, f"{found['name']} {found['version']} is installed")


async def _installing(name: str, display: Display) -> Any:
    async with connected() as server:
        call = streaming("POST", f"{_PATH}/{segment(name)}/install", repeatable=True)
        async with aclosing(messages(server, call)) as steps:
            async for step in steps:
                display.tell(step.get("text", "installed"), step.get("fraction"))
        return await server.call("GET", f"{_PATH}/{segment(name)}")


def _list(invocation: Invocation) -> None:
    found = listed(_PATH)
    if invocation.json:
        print_json({"agents": found})
        return
    rows = (
        (a["name"], a["version"] or "–", _installed(a), ", ".join(a["keeps_to"]) or "–", _ready(a))
        for a in found
    )
    print_table(("NAME", "VERSION", "INSTALLED", "KEEPS TO", "READY"), rows)


def _installed(agent: Any) -> str:
    if not agent["package"]:
        return "by the sandbox"
    return "yes" if agent["installed"] else "on first use"


def _ready(agent: Any) -> str:
    return "yes" if agent["ready"] else "; ".join(agent["lacks"])
