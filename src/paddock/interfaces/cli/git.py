"""git as a program of this machine: watched while it runs, and ended with all that it started."""

import asyncio
import os
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from paddock.domain.errors import Unavailable
from paddock.interfaces.cli.children import end_tree
from paddock.interfaces.cli.receiving import Received, Telling

# `ext::` and other helpers would let a URL run commands here. Progress is read in English.
_ENVIRONMENT = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh",
    "LC_ALL": "C",
    "LANGUAGE": "",
}
_LOOK_S = 0.25
_PIECE = 65536
Watch = Callable[[float | None], None]
"""Called now and then with how much has come, as a fraction, where git told so."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long git may take, and how long nothing may come of what it is to receive."""

    whole_s: float = 600.0
    silent_s: float = 60.0


class TooSlow(Exception):
    """It took longer than there was patience for, and was broken off."""

    def __init__(self, why: str, waited_s: float, received: Received) -> None:
        super().__init__(why)
        self.waited_s = waited_s
        self.received = received


class GitFailed(Exception):
    """It ended with something else than success; the lines that it said."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


async def run_git(words: Sequence[str], patience: Patience, watch: Watch = lambda _: None) -> None:
    """Until it has succeeded. However this ends, nothing of git's runs on."""
    try:
        process = await asyncio.create_subprocess_exec(
            "git",
            *words,
            env={**os.environ, **_ENVIRONMENT},
            stdin=DEVNULL,
            stdout=DEVNULL,
            stderr=PIPE,
        )
    except FileNotFoundError as error:
        fix = "apt-get install git"
        raise Unavailable("git is not installed on this machine", remediation=fix) from error
    telling = Telling()
    try:
        await _watched(process, telling, patience, watch)
    finally:
        await end_tree(process)
        _let_go(process)
    telling.close()
    if process.returncode != 0:
        raise GitFailed(telling.words)


def _let_go(process: Process) -> None:
    """Of its pipe, which something detached may hold for as long as it likes: asyncio has no way of
    its own for that, and complains when it is left to the end of the program."""
    transport = getattr(process, "_transport", None)
    if transport is not None:
        transport.close()


async def _watched(process: Process, telling: Telling, patience: Patience, watch: Watch) -> None:
    """Until it ends, which is not the end of what it says: something detached may have its pipe."""
    began = heard = time.monotonic()
    while True:
        piece = await _piece(process)
        now = time.monotonic()
        if piece:
            telling.take(piece.decode(errors="replace"))
            heard = now
        elif process.returncode is not None:
            return
        watch(telling.received.fraction)
        if now - began >= patience.whole_s:
            why = f"it was not done within {seconds(patience.whole_s)}"
        elif now - heard >= patience.silent_s and not telling.is_here:
            why = f"nothing came for {seconds(patience.silent_s)}"
        else:
            continue
        raise TooSlow(why, now - began, telling.received)


async def _piece(process: Process) -> bytes:
    """What it said; nothing if it was silent for a moment, or has ended."""
    assert process.stderr is not None
    try:
        async with asyncio.timeout(_LOOK_S):
            if not process.stderr.at_eof():
                return await process.stderr.read(_PIECE)
            await process.wait()
    except TimeoutError:
        pass
    return b""


def seconds(count: float) -> str:
    """A time as people say it."""
    return f"{round(count, 1):g} s" if count < 120 else f"{count / 60:.0f} min"
