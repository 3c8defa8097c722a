"""What every command that talks to a server begins with."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import click
import msgspec
from click.shell_completion import CompletionItem

from paddock.interfaces.cli.invocation import Invocation
from paddock.interfaces.cli.output import print_json
from paddock.interfaces.client import AsyncSandbox, PaddockError, Server

F = TypeVar("F", bound=Callable[..., Any])
_COMPLETION_S = 2.0
GONE = ("deleting", "deleted")
WAKES = {"stopped": "start", "paused": "resume", "archived": "start"}
"""The verb that ends each state of sleep."""


@asynccontextmanager
async def connected() -> AsyncIterator[Server]:
    async with Server() as server:
        yield server


@asynccontextmanager
async def sandbox(name: str) -> AsyncIterator[AsyncSandbox]:
    """The one that is meant, by name or id."""
    async with connected() as server:
        yield await AsyncSandbox.connect(name, server=server)


@asynccontextmanager
async def running_sandbox(
    invocation: Invocation, name: str, *, start: bool
) -> AsyncIterator[AsyncSandbox]:
    """As sandbox(); one that sleeps is started or resumed first, unless `start` is false."""

    def note(state: str) -> None:
        if not invocation.json:
            click.echo(f"note: sandbox {box.name} was {state}; Paddock starts it", err=True)

    async with sandbox(name) as box:
        if start:
            await awake(box, note)
        yield box


async def awake(box: AsyncSandbox, tell: Callable[[str], None] = lambda _: None) -> bool:
    """Start or resume a sandbox that sleeps, after `tell` got its state. Return whether it did."""
    state = (await box.info()).state
    if state not in WAKES:
        return False
    tell(state)
    await (box.resume() if WAKES[state] == "resume" else box.start())
    return True


def plain(value: Any) -> Any:
    """For JSON."""
    return msgspec.to_builtins(value)


def answer(invocation: Invocation, value: Any, line: str) -> None:
    """The whole for programs, one line for people."""
    if invocation.json:
        print_json(plain(value))
    else:
        click.echo(line)


class SandboxName(click.ParamType[str]):
    """A sandbox by name or id; a shell completes the names that there are."""

    name = "sandbox"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        del ctx, param
        found = asyncio.run(_names(incomplete))
        return [CompletionItem(name) for name in found]


async def _names(prefix: str) -> list[str]:
    """Quickly or not at all: whoever presses a key does not want an error."""
    try:
        async with asyncio.timeout(_COMPLETION_S), connected() as server:
            listed = AsyncSandbox.list(name_prefix=prefix[:63], server=server)
            return [each.name async for each in listed if each.state not in GONE]
    except (PaddockError, TimeoutError, OSError):
        return []


def sandbox_argument(command: F) -> F:
    return click.argument("name", metavar="SANDBOX", type=SandboxName())(command)


def sandboxes_argument(command: F) -> F:
    decorate = click.argument(
        "names", nargs=-1, required=True, metavar="SANDBOX...", type=SandboxName()
    )
    return decorate(command)


def start_option(command: F) -> F:
    """`--no-start`, for commands that start a sandbox that sleeps."""
    text = "Fail if the sandbox is stopped, paused or archived. By default it is started."
    return click.option("--no-start", "start", flag_value=False, default=True, help=text)(command)


def after_dashes(words: Sequence[str]) -> tuple[str, ...]:
    """click leaves `--` in place after the first argument."""
    return tuple(words[1:] if words[:1] == ("--",) else words)


async def gathered(items: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in items]
