"""`paddock task`: what agents are to do, and what comes of it."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import click

from paddock.interfaces.cli.command import STDOUT
from paddock.interfaces.cli.interrupts import run_async
from paddock.interfaces.cli.invocation import Invocation, pass_invocation
from paddock.interfaces.cli.noun import Noun
from paddock.interfaces.cli.options import output_options
from paddock.interfaces.cli.output import age, print_json, print_table, printable
from paddock.interfaces.cli.params import Seconds, pairs
from paddock.interfaces.cli.remote import task_care, task_giving
from paddock.interfaces.cli.remote.session import SandboxName, answer, connected, gathered, plain
from paddock.interfaces.cli.remote.task_telling import in_lines, print_tasks, say_result
from paddock.interfaces.cli.streams import Writer
from paddock.interfaces.client import AsyncAttempts, AsyncSandbox, AsyncTask, TaskInfo, TaskSummary
from paddock.interfaces.client.task_results import MessageInfo

T = TypeVar("T")
_STATES = ("pending", "creating", "running", "waiting", "completing", *task_care.OVER)


@click.group(cls=Noun)
def task() -> None:
    """What agents are to do, and what comes of it."""


for _command in (
    task_giving.run,
    task_giving.follow_up,
    task_giving.retry,
    task_giving.batch,
    task_giving.attempts,
    task_care.delete,
    task_care.diagnose,
):
    task.add_command(_command)


def _with(task_id: str, do: Callable[[AsyncTask], Awaitable[T]]) -> T:
    async def work() -> T:
        async with connected() as server:
            return await do(await AsyncTask.connect(task_id, server=server))

    return run_async(work())


@task.command("ls")
@click.option("--state", "states", multiple=True, type=click.Choice(_STATES), help="In these.")
@click.option("--agent", default="", help="Of this agent.")
@click.option("--sandbox", default="", type=SandboxName(), help="In this sandbox.")
@click.option("--batch", default="", help="Of this batch.")
@click.option("--label", "labels", multiple=True, metavar="NAME=VALUE", help="With this label.")
@output_options
@pass_invocation
def list_tasks(
    invocation: Invocation, /, states: Sequence[str], sandbox: str, labels: Any, **wanted: Any
) -> None:
    """List your team's tasks, newest first."""

    async def work() -> list[TaskSummary]:
        async with connected() as server:
            where = (await AsyncSandbox.connect(sandbox, server=server)).id if sandbox else ""
            wanted["labels"] = pairs(labels, "--label")
            listed = AsyncTask.list(states=states, sandbox=where, server=server, **wanted)
            return await gathered(listed)

    found = run_async(work())
    if invocation.json:
        print_json({"tasks": plain(found)})
        return
    print_tasks(found)


@task.command()
@click.argument("task_id", metavar="TASK")
@output_options
@pass_invocation
def show(invocation: Invocation, task_id: str) -> None:
    """Say everything about one."""
    found = _with(task_id, lambda each: each.info())
    if invocation.json:
        print_json(plain(found))
        return
    for name, value in plain(found).items():
        if value and name not in ("result", "links", "prompt"):
            click.echo(f"{name:<13} {printable(_said(value))}")
    click.echo()
    click.echo(in_lines(found.prompt))
    click.echo()
    if found.result is not None and found.result.message:
        click.echo("its last words:")
        click.echo(in_lines(found.result.message))
        click.echo()
    say_result(found)


def _said(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@task.command()
@click.argument("task_id", metavar="TASK")
@click.option("-f", "--follow", is_flag=True, help="Until it is over.")
@click.option("--after", type=click.IntRange(0), default=0, help="From this event on.")
@output_options
@pass_invocation
def logs(invocation: Invocation, task_id: str, follow: bool, *, after: int) -> int:
    """Tell what a task did. With --follow the exit code is that of `run`."""
    return run_async(task_giving.followed(invocation, task_id, after=after, follow=follow))


@task.command()
@click.argument("task_id", metavar="TASK")
@click.argument("text", metavar="TEXT|-")
@click.option(
    "--mode",
    type=click.Choice(["now", "turn", "interrupt"]),
    default="now",
    show_default=True,
    help="At the next tool boundary, after this turn, or at once.",
)
@click.option("--ttl", type=Seconds(), help="Delivered within this time, or never.")
@output_options
@pass_invocation
def send(invocation: Invocation, task_id: str, text: str, *, mode: str, ttl: float | None) -> None:
    """Tell the agent of a task something while it works."""
    words = sys.stdin.buffer.read().decode("utf-8", "replace") if text == "-" else text
    sent = _with(task_id, lambda each: each.send(words, mode=mode, ttl=ttl))
    answer(invocation, sent, f"{sent.id}  {sent.state}{_expected(sent)}")


def _expected(sent: MessageInfo) -> str:
    if sent.expected_at is None:
        return ""
    seconds = (sent.expected_at - sent.queued_at).total_seconds()
    return f", likely to be read in about {seconds:.0f} s" if seconds >= 1 else ", read at once"


@task.command()
@click.argument("task_id", metavar="TASK")
@output_options
@pass_invocation
def messages(invocation: Invocation, task_id: str) -> None:
    """List what the agent of a task was told, and how far that has come."""

    async def look(each: AsyncTask) -> list[MessageInfo]:
        return await gathered(each.messages())

    found = _with(task_id, look)
    if invocation.json:
        print_json({"messages": plain(found)})
        return
    rows = (
        (m.id, m.mode, m.state, f"{age(m.queued_at.timestamp())} ago", printable(m.text)[:80])
        for m in found
    )
    print_table(("ID", "MODE", "STATE", "SENT", "TEXT"), rows)


@task.command()
@click.argument("task_ids", metavar="TASK...", nargs=-1, required=True)
@click.option("--timeout", type=Seconds(), help="Give up after this time; the tasks continue.")
@output_options
@pass_invocation
def wait(invocation: Invocation, task_ids: Sequence[str], timeout: float | None) -> int:
    """Wait until tasks have ended, and show their results.

    Exit code: 0 if all tasks completed, otherwise that of the first task that did not (as in
    `task run`); 124 on timeout.
    """

    async def work() -> list[TaskInfo]:
        async with connected() as server:
            found = [await AsyncTask.connect(each, server=server) for each in task_ids]
            return await asyncio.gather(*(each.wait(timeout) for each in found))

    ended = run_async(work())
    if invocation.json:
        print_json({"tasks": plain(ended)})
    else:
        for each in ended:
            say_result(each)
    return next((code for each in ended if (code := task_giving.exit_code(each))), 0)


@task.command()
@click.argument("task_ids", metavar="TASK...", nargs=-1, required=True)
@output_options
@pass_invocation
def cancel(invocation: Invocation, task_ids: Sequence[str]) -> None:
    """End tasks: their agents are asked to, then made to."""
    for each in task_ids:
        asked = _with(each, lambda found: found.cancel())
        answer(
            invocation, asked, f"{asked.id}  {'cancelling' if asked.cancelling else asked.state}"
        )


@task.command()
@click.argument("task_id", metavar="TASK")
@output_options
@pass_invocation
def pause(invocation: Invocation, task_id: str) -> None:
    """Have the agent of a task stand still, and its clock with it."""
    asked = _with(task_id, lambda found: found.pause())
    answer(invocation, asked, f"{asked.id}  {'pausing' if asked.pausing else asked.state}")


@task.command()
@click.argument("task_id", metavar="TASK")
@output_options
@pass_invocation
def resume(invocation: Invocation, task_id: str) -> None:
    """Have a task that was paused go on."""
    asked = _with(task_id, lambda found: found.resume())
    answer(invocation, asked, f"{asked.id}  {asked.state}")


@task.command()
@click.argument("task_id", metavar="TASK")
def diff(task_id: str) -> None:
    """Print what a task changed, as `git apply` takes it."""
    found = _with(task_id, lambda each: each.diff())
    click.echo(found.text, nl=False)
    if found.is_cut:
        click.echo("note: this is not all of it; the rest is in its sandbox", err=True)


@task.command()
@click.argument("task_id", metavar="TASK")
def output(task_id: str) -> None:
    """Print what the agent of a task wrote, as it wrote it."""

    async def pour(each: AsyncTask) -> None:
        writer, cut = Writer(STDOUT), []
        async for piece in each.output(lambda: cut.append(True)):
            await writer.write(piece)
        if cut:
            note = "note: this is not all of it: the first 32 MiB of an agent's output are kept"
            click.echo(note, err=True)

    _with(task_id, pour)


@task.command()
@click.argument("task_id", metavar="TASK")
@output_options
@pass_invocation
def revert(invocation: Invocation, task_id: str) -> None:
    """Put the workspace back to what it was before the task."""
    answer(invocation, _with(task_id, lambda each: each.revert()), f"{task_id} reverted")


@task.command()
@click.argument("task_id", metavar="TASK")
@output_options
@pass_invocation
def adopt(invocation: Invocation, task_id: str) -> None:
    """Of several attempts, take this one."""

    async def work() -> TaskInfo:
        async with connected() as server:
            return await AsyncAttempts.adopt(task_id, server=server)

    answer(invocation, run_async(work()), f"{task_id} adopted")
