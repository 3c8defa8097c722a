"""`paddock approvals`: what people are asked, and what they answer."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime

import click

from paddock.interfaces.cli.failures import refuse
from paddock.interfaces.cli.interrupts import run_async
from paddock.interfaces.cli.invocation import Invocation, pass_invocation
from paddock.interfaces.cli.noun import Noun
from paddock.interfaces.cli.options import output_options
from paddock.interfaces.cli.output import age, print_json, print_table, printable
from paddock.interfaces.cli.remote.desk import Desk
from paddock.interfaces.cli.remote.session import (
    SandboxName,
    answer,
    connected,
    gathered,
    plain,
)
from paddock.interfaces.client import AsyncApprovals, AsyncSandbox, Server
from paddock.interfaces.client.results import ApprovalInfo

_STATES = ("pending", "allowed_once", "allowed_task", "allowed_always", "denied", "expired")


@click.group(cls=Noun)
def approvals() -> None:
    """What people are asked: may a sandbox reach a host, run a command; may a task go on.

    Sandboxes ask where a policy says so: `paddock egress set --on-block ask`.
    """


@approvals.command("ls")
@click.argument("name", metavar="[SANDBOX]", required=False, default="", type=SandboxName())
@click.option("--state", "states", multiple=True, type=click.Choice(_STATES), help="In these.")
@click.option("--all", "everything", is_flag=True, help="Also those that are answered.")
@output_options
@pass_invocation
def list_approvals(
    invocation: Invocation, name: str, states: Sequence[str], everything: bool
) -> None:
    """List what waits for an answer, newest first."""
    wanted = states or (() if everything else ("pending",))

    async def work() -> list[ApprovalInfo]:
        async with connected() as server:
            sandbox = await _id_of(name, server)
            found = AsyncApprovals.list(states=wanted, sandbox=sandbox, server=server)
            return await gathered(found)

    found = run_async(work())
    if invocation.json:
        print_json({"approvals": plain(found)})
        return
    print_table(("ID", "SANDBOX", "KIND", "WHAT", "STATE", "ASKED", "TIMES"), map(_row, found))


async def _id_of(name: str, server: Server) -> str:
    return (await AsyncSandbox.connect(name, server=server)).id if name else ""


def _row(each: ApprovalInfo) -> tuple[str, ...]:
    left = each.expires_at - datetime.now(UTC)
    shown = f"{max(0, int(left.total_seconds()))} s left" if each.state == "pending" else each.state
    asked = f"{age(each.created_at.timestamp())} ago"
    return (
        each.id,
        each.sandbox,
        each.kind,
        printable(each.title),
        shown,
        asked,
        str(each.count),
    )


@approvals.command()
@click.argument("approval", metavar="APPROVAL")
@output_options
@pass_invocation
def show(invocation: Invocation, approval: str) -> None:
    """Say everything about one."""

    async def work() -> ApprovalInfo:
        async with connected() as server:
            return await AsyncApprovals.get(approval, server=server)

    found = run_async(work())
    if invocation.json:
        print_json(plain(found))
        return
    for name, value in plain(found).items():
        if value not in (None, "", {}):
            shown = json.dumps(value) if isinstance(value, dict) else str(value)
            click.echo(f"{name:<12} {printable(shown)}")


@approvals.command()
@click.argument("approval", metavar="APPROVAL")
@click.option("--task", is_flag=True, help="Until its task is over; without one, in this sandbox.")
@click.option(
    "--always",
    type=click.Choice(["sandbox", "app", "template", "preset", "team"]),
    help="From now on, by a rule: a host's of the sandbox, its app, its template or its preset; a "
    "command's in the policy that asks, the sandbox's, its template's or the team's.",
)
@click.option("--note", default="", metavar="TEXT", help="For the audit log.")
@output_options
@pass_invocation
def allow(
    invocation: Invocation, approval: str, *, task: bool, always: str | None, note: str
) -> None:
    """Let what waits go on: this once, unless said otherwise."""
    if task and always:
        refuse("--task and --always are two answers", "give one of them, or none for this once")

    async def work() -> ApprovalInfo:
        async with connected() as server:
            return await AsyncApprovals.allow(
                approval, task=task, always=always or "", note=note, server=server
            )

    found = run_async(work())
    answer(invocation, found, answered(found))


@approvals.command()
@click.argument("approval", metavar="APPROVAL")
@click.option("--note", default="", metavar="TEXT", help="For the audit log.")
@output_options
@pass_invocation
def deny(invocation: Invocation, approval: str, note: str) -> None:
    """Refuse what waits; it is not asked again for a quarter of an hour."""

    async def work() -> ApprovalInfo:
        async with connected() as server:
            return await AsyncApprovals.deny(approval, note=note, server=server)

    found = run_async(work())
    answer(invocation, found, answered(found))


@approvals.command("answer")
@click.argument("approval", metavar="APPROVAL")
@click.option("--say", required=True, metavar="TEXT", help="What the agent is told.")
@click.option("--deny", "denies", is_flag=True, help="No: what was asked for is not to be.")
@output_options
@pass_invocation
def answer_question(invocation: Invocation, approval: str, *, say: str, denies: bool) -> None:
    """Answer a question about a task, in words for its agent."""

    async def work() -> ApprovalInfo:
        async with connected() as server:
            return await AsyncApprovals.answer(approval, say, deny=denies, server=server)

    found = run_async(work())
    answer(invocation, found, answered(found))


def answered(found: ApprovalInfo) -> str:
    of_task = found.state == "allowed_task" and found.task_id
    whose = found.level or ("task" if of_task else "sandbox")
    rule = f"; rule {found.rule} of the {whose}" if found.rule else ""
    return f"{found.state}  {found.sandbox}  {printable(found.title)}{rule}"


@approvals.command()
@click.argument("name", metavar="[SANDBOX]", required=False, default="", type=SandboxName())
@output_options
@pass_invocation
def watch(invocation: Invocation, name: str) -> None:
    """Say what is asked as it comes, and take answers at the terminal.

    As JSON it is one event a line, and nothing is asked.
    """

    async def work() -> None:
        async with connected() as server:
            desk = Desk(server, await _id_of(name, server), as_json=invocation.json)
            await desk.attend()

    run_async(work())
