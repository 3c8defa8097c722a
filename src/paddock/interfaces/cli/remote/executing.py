"""`paddock exec`, `ps`, `logs` and `kill`: commands in a sandbox."""

from collections.abc import Sequence
from typing import Any

import click

from paddock.domain.guest import CommandResult
from paddock.interfaces.cli.command import STDERR, STDOUT, explain
from paddock.interfaces.cli.failures import refuse
from paddock.interfaces.cli.interrupts import run_async
from paddock.interfaces.cli.invocation import Invocation, pass_invocation
from paddock.interfaces.cli.options import (
    PAYLOAD,
    command_options,
    login_option,
    output_options,
    wish,
)
from paddock.interfaces.cli.output import age, print_json, print_table
from paddock.interfaces.cli.remote import attached
from paddock.interfaces.cli.remote.session import (
    after_dashes,
    answer,
    plain,
    running_sandbox,
    sandbox,
    sandbox_argument,
    start_option,
)
from paddock.interfaces.cli.run import result_as_json
from paddock.interfaces.cli.streams import Writer
from paddock.interfaces.client.results import CommandInfo
from paddock.interfaces.client.shell import shown

_WIDEST = 60


@click.command("exec", context_settings=PAYLOAD)
@sandbox_argument
@click.option(
    "-i", "--interactive", is_flag=True, help="As with Docker; input is always passed on."
)
@click.option("-d", "--detach", is_flag=True, help="Only start it; its id is printed.")
@start_option
@login_option
@command_options
@output_options
@pass_invocation
@click.pass_context
def exec_(
    context: click.Context,
    invocation: Invocation,
    /,
    name: str,
    *,
    detach: bool,
    start: bool,
    **options: Any,
) -> int:
    """Run a command in a sandbox.

    Its streams are joined to yours and its exit code is passed on; 124 is its deadline, 127 that
    there is no such program, 126 that it cannot be executed. It is not disturbed when the
    connection breaks or the server restarts. What stands after `--` belongs to the command; a
    single argument with spaces in it goes to the sandbox's shell. With --login it has what a
    terminal has: what ~/.profile and ~/.bashrc set, and functions such as nvm. A sandbox that is
    stopped, paused or archived is started first.
    """
    if options["words"][:1] in (("-h",), ("--help",)):
        click.echo(context.get_help())
        return 0
    _check_options_come_first(context, options["words"])
    options["words"] = after_dashes(options["words"])
    asked = wish(options)
    if detach:
        return _start(invocation, name, asked, start=start)

    async def work() -> CommandResult:
        async with running_sandbox(invocation, name, start=start) as box:
            how = attached.collect if invocation.json else attached.attach
            return await how(box, asked)

    result = run_async(work())
    if invocation.json:
        print_json(result_as_json(result))
    else:
        explain(result, asked)
    return result.exit_code


def _check_options_come_first(context: click.Context, words: Sequence[str]) -> None:
    """No program is called `--timeout`: whoever writes that after the sandbox means our option."""
    first = words[0] if words else ""
    if not first.startswith("-") or first in ("-", "--"):
        return
    own = {name for option in context.command.params for name in _names(option)}
    named = first.partition("=")[0] if first.startswith("--") else first[:2]
    if named in own or "--" in words:
        raise click.UsageError(f"options go before the sandbox: {first} stands after it", context)


def _names(option: click.Parameter) -> Sequence[str]:
    return (*option.opts, *option.secondary_opts) if isinstance(option, click.Option) else ()


def _start(invocation: Invocation, name: str, asked: Any, *, start: bool) -> int:
    async def work() -> CommandInfo:
        async with running_sandbox(invocation, name, start=start) as box:
            return await (await attached.start(box, asked)).info()

    started = run_async(work())
    answer(invocation, started, started.id)
    return 0


@click.command()
@sandbox_argument
@start_option
@output_options
@pass_invocation
def ps(invocation: Invocation, name: str, start: bool) -> None:
    """List the commands of a sandbox.

    Those that run, and those that have ended and whose output is kept. A sandbox that is stopped,
    paused or archived is started first.
    """

    async def work() -> list[CommandInfo]:
        async with running_sandbox(invocation, name, start=start) as box:
            return list(await box.commands.list())

    found = sorted(run_async(work()), key=lambda each: each.started_at)
    if invocation.json:
        print_json({"commands": plain(found)})
        return
    print_table(
        ("COMMAND", "STATE", "EXIT", "AGE", "WHAT"),
        ((c.id, _state(c), _code(c), age(c.started_at.timestamp()), _short(c)) for c in found),
    )


def _state(command: CommandInfo) -> str:
    return "running" if command.is_running else str(command.reason)


def _code(command: CommandInfo) -> str:
    return "–" if command.exit_code is None else str(command.exit_code)


def _short(command: CommandInfo) -> str:
    text = " ".join(shown(command.cmd).split())
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"


@click.command()
@sandbox_argument
@click.argument("command", required=False, default="")
@click.option("-f", "--follow", is_flag=True, help="Until it ends.")
@pass_invocation
def logs(invocation: Invocation, name: str, command: str, follow: bool) -> int:
    """Show what a command said.

    That is the one that was started last, unless its id is given. With --follow the exit code is
    that of the command.
    """

    async def work() -> int:
        async with sandbox(name) as box:
            found = await box.commands.connect(command or _latest(await box.commands.list()))
            out, err = Writer(STDOUT), Writer(STDERR)
            async for piece in found.output(follow=follow):
                await (err if piece.stream == "stderr" else out).write(piece.data)
            return (await found.wait()).exit_code if follow else 0

    return run_async(work())


def _latest(commands: Any) -> str:
    if not commands:
        refuse("no command of this sandbox is kept", "start one with `paddock exec --detach`")
    return str(max(commands, key=lambda each: each.started_at).id)


@click.command()
@sandbox_argument
@click.argument("command")
@click.option("--grace", type=click.FloatRange(0, 60), default=5.0, show_default=True)
@output_options
@pass_invocation
def kill(invocation: Invocation, name: str, command: str, grace: float) -> None:
    """End a command in a sandbox, with everything it started.

    It is sent SIGTERM; what is left after the grace is killed.
    """

    async def work() -> CommandInfo:
        async with sandbox(name) as box:
            found = await box.commands.connect(command)
            await found.kill(grace)
            return await found.info()

    answer(invocation, run_async(work()), f"{command} killed")
