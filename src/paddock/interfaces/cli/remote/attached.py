"""A command on a server's sandbox, joined to this process's own streams.

The command is durable: when the connection breaks it goes on, and so does what is shown of it.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Coroutine
from contextlib import suppress
from typing import Any

from paddock.domain.guest import CommandResult
from paddock.interfaces.cli import terminal
from paddock.interfaces.cli.command import STDERR, STDIN, STDOUT, Wish
from paddock.interfaces.cli.streams import Reader, Writer
from paddock.interfaces.client import (
    AsyncCommand,
    AsyncSandbox,
    Conflict,
    NotFound,
    PaddockError,
    Unavailable,
)


async def collect(box: AsyncSandbox, wish: Wish) -> CommandResult:
    """To the end, with its output in the answer. What stands on our input is its input."""
    async with _begun(box, wish, tty=bool(wish.tty)) as command:
        await _beside(_drain(command), _feed(command, tty=bool(wish.tty)))
        result = await command.wait()
    return CommandResult(
        result.exit_code,
        result.stdout_bytes,
        result.stderr_bytes,
        result.reason,
        result.truncated,
    )


async def attach(box: AsyncSandbox, wish: Wish) -> CommandResult:
    """To the end, with its streams joined to ours; killed when this is cancelled or fails."""
    tty = wish.wants_terminal
    async with _begun(box, wish, tty=tty) as command:
        with terminal.raw(STDIN) if tty else contextlib.nullcontext():
            await _beside(_show(command), _feed(command, tty=tty), _follow_size(command, tty=tty))
        result = await command.wait()
    return CommandResult(result.exit_code, b"", b"", result.reason)


async def start(
    box: AsyncSandbox, wish: Wish, *, tty: bool = False, fed: bool = False
) -> AsyncCommand:
    env = dict(wish.env)
    if tty:
        env.setdefault("TERM", os.environ.get("TERM", "xterm"))
    return await box.commands.start(
        list(wish.argv),
        cwd=wish.workdir,
        env=env,
        user=wish.user,
        timeout=wish.timeout_s,
        login=wish.login,
        keep_stdin_open=fed,
        terminal=terminal.size(STDOUT, STDIN, STDERR) if tty else None,
    )


@contextlib.asynccontextmanager
async def _begun(box: AsyncSandbox, wish: Wish, *, tty: bool) -> AsyncIterator[AsyncCommand]:
    """Nothing of it is left at the end, however that comes."""
    command = await start(box, wish, tty=tty, fed=tty or terminal.is_readable(STDIN))
    try:
        yield command
    except BaseException:
        await command.abandon()
        raise
    with suppress(PaddockError):
        await command.forget()


async def _beside(main: Coroutine[Any, Any, None], *others: Coroutine[Any, Any, None]) -> None:
    """Until the main work has ended; what goes on beside it ends with it, and fails it."""
    work = asyncio.ensure_future(main)
    aside = [asyncio.ensure_future(each) for each in others]
    try:
        pending = {work, *aside}
        while not work.done():
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                each.result()
    finally:
        for each in (work, *aside):
            each.cancel()
        await asyncio.gather(work, *aside, return_exceptions=True)


async def _drain(command: AsyncCommand) -> None:
    async for _ in command:
        pass


async def _show(command: AsyncCommand) -> None:
    out, err = Writer(STDOUT), Writer(STDERR)
    async for piece in command:
        await (err if piece.stream == "stderr" else out).write(piece.data)


async def _feed(command: AsyncCommand, *, tty: bool) -> None:
    """Our input is its input; that it does not want any more is its right."""
    if not terminal.is_readable(STDIN):
        return
    try:
        async for chunk in Reader(STDIN).chunks():
            # A key that may have been lost is pressed again; a file's bytes cannot be.
            with suppress(*((Unavailable,) if tty else ())):
                await command.send_input(chunk)
        if not tty:
            await command.close_input()
    except (Conflict, NotFound):
        return


async def _follow_size(command: AsyncCommand, *, tty: bool) -> None:
    """The size of our terminal is the size of its terminal."""
    if not tty:
        return
    loop, changed = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGWINCH, changed.set)
    try:
        while await changed.wait():
            changed.clear()
            with suppress(PaddockError):
                await command.resize(*terminal.size(STDOUT, STDIN, STDERR))
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)
