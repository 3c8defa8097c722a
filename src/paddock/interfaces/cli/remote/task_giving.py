"""`paddock task run`, `follow-up`, `batch` and `attempts`: tasks are given, and followed."""

import asyncio
import json
import sys
import tomllib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from paddock.interfaces.cli.failures import FAILED, INTERRUPTED, Interrupted, refuse
from paddock.interfaces.cli.interrupts import run_async
from paddock.interfaces.cli.invocation import Invocation, pass_invocation
from paddock.interfaces.cli.options import output_options
from paddock.interfaces.cli.output import print_json
from paddock.interfaces.cli.params import (
    CopyPair,
    Name,
    Number,
    Seconds,
    argument_vector,
    environment,
    pairs,
)
from paddock.interfaces.cli.remote.session import answer, connected, plain
from paddock.interfaces.cli.remote.task_health import health_options, health_wish
from paddock.interfaces.cli.remote.task_lines import Known, line_of
from paddock.interfaces.cli.remote.task_telling import print_tasks, say_result
from paddock.interfaces.cli.remote.task_wishing import (
    prompt_of,
    prompt_options,
    sandbox_options,
    sandbox_wish,
    variables_of,
)
from paddock.interfaces.client import AsyncAttempts, AsyncTask, Server
from paddock.interfaces.client.results import Event
from paddock.interfaces.client.task_results import AttemptsInfo, BatchInfo, Rehearsal, TaskInfo

Create = Callable[[Server], Awaitable[AsyncTask]]
F = TypeVar("F", bound=Callable[..., Any])
_PASSED = ("agent", "model", "name", "sandbox", "fork", "snapshot", "template", "provider", "app")
_WITH_PATHS = ("agent.tool_call", "agent.file_edited")
_MODES = ("implement", "explore", "validate")
_NUMBERS = ("budget_tokens", "budget_usd", "budget_turns", "timeout", "rounds", "mode")


def task_options(command: F) -> F:
    """What an agent is given; `wished()` reads them."""
    for decorate in (
        click.option("-l", "--label", "labels", multiple=True, metavar="K=V", help="To find it."),
        click.option("--after", multiple=True, metavar="TASK", help="Only when it is completed."),
        click.option("--scope", multiple=True, metavar="PATH", help="What it is meant to change."),
        click.option("--option", "options", multiple=True, metavar="K=JSON", help="The agent's."),
        click.option(
            "--budget-turns", type=click.IntRange(1), help="At most so many answers of the model."
        ),
        click.option("--budget-usd", type=Number(), help="At most so many dollars."),
        click.option("--budget-tokens", type=click.IntRange(1), help="At most so many tokens."),
        click.option("--timeout", type=Seconds(), help="Its time is up after so long.  [1h]"),
        click.option("--review", metavar="AGENT[:MODEL]", help="Who looks at it in the end."),
        click.option("--reviews", type=click.IntRange(1, 10), help="So often at most.  [2]"),
        click.option("--plan", is_flag=True, help="It makes a plan first."),
        click.option("--rounds", type=click.IntRange(1, 20), help="So many tries, until it does."),
        health_options,
        sandbox_options,
        prompt_options,
        click.option("--check-timeout", type=Seconds(), help="For each check.  [2m]"),
        click.option("--check", "checks", multiple=True, metavar="NAME=CMD", help="Has to pass."),
        click.option("--file", "files", multiple=True, type=CopyPair(), help="A file it is given."),
        click.option("--env-file", multiple=True, type=click.Path(path_type=Path)),
        click.option("-e", "--env", multiple=True, metavar="NAME=VALUE", help="For the agent."),
        click.option("--app", type=Name(), help="Whose configuration its programs have."),
        click.option("-p", "--provider", type=Name(), metavar="NAME", help="Where it runs."),
        click.option("--dir", "directory", type=Name(), help="Directory in the sandbox."),
        click.option("--template", type=Name(), help="In a new sandbox of this template."),
        click.option("--snapshot", type=Name(), help="In a new sandbox of this snapshot."),
        click.option("--fork", type=Name(), metavar="SANDBOX", help="In a copy of this sandbox."),
        click.option("--sandbox", type=Name(), help="In this sandbox."),
        click.option("--name", type=Name(), help="1 to 63 of a-z, 0-9 and '-'."),
        click.option("--mode", type=click.Choice(_MODES), help="`explore` only looks."),
        click.option("--model", type=Name(), help="The agent's own unless said."),
        click.option(
            "--agent", type=Name(), help="Default: the only one that is ready (`paddock agents`)."
        ),
    ):
        command = decorate(command)
    return command


def wished(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of `task_options` as AsyncTask.create takes them."""
    given = {name: options[name] for name in (*_PASSED, *_NUMBERS, "directory") if options[name]}
    checks = pairs(options["checks"], "--check")
    return {
        **given,
        "env": environment(options["env"], options["env_file"]),
        "files": {each.target: each.source for each in options["files"]},
        "checks": {name: _check(cmd, options["check_timeout"]) for name, cmd in checks.items()},
        "options": {name: _value(v) for name, v in pairs(options["options"], "--option").items()},
        "review": _review(options),
        "health": health_wish(options),
        "variables": variables_of(options["variables"]),
        **sandbox_wish(options),
        "labels": pairs(options["labels"], "--label"),
        "scope": options["scope"],
        "after": options["after"],
    }


def _review(options: Mapping[str, Any]) -> dict[str, Any] | None:
    """Who only wants a plan wants no review."""
    if not (options["review"] or options["reviews"] or options["plan"]):
        return None
    wanted = {**_variant(options["review"] or ""), "plan": options["plan"]}
    if options["review"] or options["reviews"]:
        return {**wanted, "rounds": options["reviews"]} if options["reviews"] else wanted
    return {**wanted, "rounds": 0}


def _check(line: str, timeout_s: float | None) -> dict[str, Any]:
    cmd = argument_vector((line,))
    return {"cmd": cmd, "timeout_s": timeout_s} if timeout_s else {"cmd": cmd}


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


@click.command()
@click.argument("prompt", metavar="[PROMPT|-]", required=False)
@task_options
@click.option("-d", "--detach", is_flag=True, help="Only give it; its id is printed.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@output_options
@pass_invocation
def run(
    invocation: Invocation, /, prompt: str | None, *, detach: bool, dry_run: bool, **options: Any
) -> int:
    """Give an agent a task, and follow it.

    The exit code is 0 when it was completed, 1 when it failed and 130 when it was cancelled. It
    goes on when the connection breaks or the server restarts. Ctrl-C asks whether to leave it or to
    cancel it. As JSON it is one event a line, and the task as the last one.
    """
    wish, words = wished(options), prompt_of(prompt, options["prompt_file"])
    if dry_run:
        return _rehearsed(invocation, words, wish)
    return _given(invocation, lambda server: _create(server, words, wish), detach=detach)


def _rehearsed(invocation: Invocation, prompt: str, wish: Mapping[str, Any]) -> int:
    async def work() -> Rehearsal:
        async with connected() as server:
            return await AsyncTask.check(prompt, server=server, **wish)

    found = run_async(work())
    answer(invocation, found, "\n".join(f"{n}. {step}" for n, step in enumerate(found.steps, 1)))
    return 0


async def _create(server: Server, prompt: str, wish: Mapping[str, Any]) -> AsyncTask:
    return await AsyncTask.create(prompt, **wish, server=server)


@click.command("follow-up")
@click.argument("task", metavar="TASK")
@click.argument("prompt", metavar="[PROMPT|-]", required=False)
@task_options
@click.option("-d", "--detach", is_flag=True, help="Only give it; its id is printed.")
@output_options
@pass_invocation
def follow_up(
    invocation: Invocation, /, task: str, prompt: str | None, *, detach: bool, **options: Any
) -> int:
    """Go on with the session of a task, where it worked.

    With the same agent, and in the same sandbox as it is, unless another that holds the session
    is named: by --fork or --snapshot.
    """
    wish, words = wished(options), prompt_of(prompt, options["prompt_file"])

    async def create(server: Server) -> AsyncTask:
        before = await AsyncTask.connect(task, server=server)
        return await before.follow_up(words, **wish)

    return _given(invocation, create, detach=detach)


@click.command()
@click.argument("task", metavar="TASK")
@click.option("-d", "--detach", is_flag=True, help="Create it, print its id and exit.")
@output_options
@pass_invocation
def retry(invocation: Invocation, task: str, detach: bool) -> int:
    """Create the task again and follow it.

    The new task has the same prompt, agent, files and limits. In a named sandbox it starts from the
    current files.
    """

    async def create(server: Server) -> AsyncTask:
        return await (await AsyncTask.connect(task, server=server)).retry()

    return _given(invocation, create, detach=detach)


def _given(invocation: Invocation, create: Create, *, detach: bool) -> int:
    async def work() -> TaskInfo:
        async with connected() as server:
            made = await create(server)
            return await made.info()

    task = run_async(work())
    if detach:
        answer(invocation, task, task.id)
        return 0
    if not invocation.json:
        why = f"  pending: {task.detail}" if task.state == "pending" and task.detail else ""
        click.echo(click.style(f"· task {task.id}{why}", dim=True))
    return attended(invocation, task.id)


def attended(invocation: Invocation, task: str) -> int:
    """Its events to the end, and what came of it; who interrupts that decides about the task."""
    try:
        return run_async(followed(invocation, task))
    except Interrupted:
        if not _wants_cancel(invocation, task):
            click.echo(f"it goes on: `paddock task logs -f {task}`", err=True)
            raise
    run_async(_cancel(task))
    return run_async(followed(invocation, task))


def _wants_cancel(invocation: Invocation, task: str) -> bool:
    if invocation.json or not sys.stdin.isatty():
        return False
    click.echo(err=True)
    choice = click.Choice(["leave", "cancel"])
    wanted: str = click.prompt(f"task {task}", type=choice, default="leave", err=True)
    return wanted == "cancel"


async def _cancel(task: str) -> None:
    async with connected() as server:
        await (await AsyncTask.connect(task, server=server)).cancel()


async def followed(
    invocation: Invocation, task: str, *, after: int = 0, follow: bool = True
) -> int:
    """Its events, and its end if it is over."""
    async with connected() as server:
        found = await AsyncTask.connect(task, server=server)
        known = Known()
        async for event in found.events(after=after, follow=follow):
            if invocation.json:
                line = json.dumps(plain(event))
            else:
                known = await _knowing(found, known, event)
                line = line_of(event, known)
            if line:
                click.echo(line)
        info = await found.info()
    if invocation.json:
        click.echo(json.dumps({"task": plain(info)}))
    elif info.is_over:
        say_result(info)
    return exit_code(info) if follow else 0


async def _knowing(task: AsyncTask, known: Known, event: Event) -> Known:
    """Load the task data that the event's line needs, once."""
    if event.kind in _WITH_PATHS and not known.directory:
        known = replace(known, directory=(await task.info()).directory or "")
    if event.kind == "task.message" and event.data.get("message") not in known.messages:
        texts = {each.id: each.text async for each in task.messages()}
        known = replace(known, messages=texts)
    return known


def exit_code(task: TaskInfo) -> int:
    return {"completed": 0, "cancelled": INTERRUPTED}.get(task.state, FAILED)


@click.command()
@click.argument("file", metavar="FILE|-", type=click.File("rb"))
@output_options
@pass_invocation
def batch(invocation: Invocation, file: Any) -> None:
    """Give the tasks of a file: all of them, or none.

    Each is as `POST /v1/tasks` takes it: one JSON object a line, a JSON list, or TOML with
    `[[tasks]]`.
    """
    tasks = tasks_in(file.read())

    async def work() -> BatchInfo:
        async with connected() as server:
            return await AsyncTask.batch(tasks, server=server)

    made = run_async(work())
    if invocation.json:
        print_json(plain(made))
        return
    for task in made.tasks:
        click.echo(task.id)
    click.echo(f"`paddock task ls --batch {made.batch}` shows how they stand", err=True)


def tasks_in(data: bytes) -> Sequence[Mapping[str, Any]]:
    """In whichever of the forms they are written."""
    try:
        text = data.decode()
        if text.lstrip().startswith("["):
            found = tomllib.loads(text)["tasks"] if "[[tasks]]" in text else json.loads(text)
        elif text.lstrip().startswith("{"):
            found = [json.loads(line) for line in text.splitlines() if line.strip()]
        else:
            found = tomllib.loads(text)["tasks"]
    except (ValueError, KeyError) as error:
        refuse(f"the file cannot be read as tasks: {error}", "see `paddock task batch --help`")
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        refuse("the file has no list of tasks", "see `paddock task batch --help`")
    return found


@click.command()
@click.argument("prompt", metavar="[PROMPT|-|ID]", required=False)
@click.option("--with", "agents", multiple=True, metavar="AGENT[:MODEL]", help="One who tries.")
@click.option("-n", "--times", type=click.IntRange(2, 16), help="So often, by --agent.")
@click.option("-f", "--follow", is_flag=True, help="Wait until all attempts have ended.")
@task_options
@output_options
@pass_invocation
def attempts(
    invocation: Invocation,
    /,
    prompt: str | None,
    *,
    agents: Sequence[str],
    times: int | None,
    follow: bool,
    **more: Any,
) -> int:
    """Have the same done several times, or show how attempts stand.

    Each works in a workspace of its own. Given an id, those of it are shown side by side;
    `paddock task adopt` takes one of them. With --follow, the exit code is 0 if at least one
    attempt completed.
    """
    wish = wished(more)
    variants = [_variant(each) for each in agents] or [{}] * (times or 0)

    async def work() -> AttemptsInfo:
        async with connected() as server:
            if prompt is not None and prompt.startswith("att_"):
                return await AsyncAttempts.get(prompt, server=server)
            if len(variants) < 2:
                refuse("there is nothing to compare", "name who tries with --with, or give -n")
            words = prompt_of(prompt, more["prompt_file"])
            return await AsyncAttempts.begin(words, variants, server=server, **wish)

    found = run_async(work())
    if follow:
        found = run_async(_all_over(invocation, found))
    if invocation.json:
        print_json(plain(found))
    else:
        click.echo(found.id)
        print_tasks(list(found.attempts), compared=True)
    return FAILED if follow and not any(each.state == "completed" for each in found.attempts) else 0


async def _all_over(invocation: Invocation, found: AttemptsInfo) -> AttemptsInfo:
    """Print each attempt as it ends; return all of them."""
    async with connected() as server:

        async def end(task_id: str) -> None:
            info = await (await AsyncTask.connect(task_id, server=server)).wait()
            if not invocation.json:
                click.echo(f"· {info.id}  {info.state}", err=True)

        await asyncio.gather(*(end(each.id) for each in found.attempts))
        return await AsyncAttempts.get(found.id, server=server)


def _variant(text: str) -> dict[str, str]:
    agent, _, model = text.partition(":")
    return {"agent": agent, "model": model} if model else {"agent": agent}
