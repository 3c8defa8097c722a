"""A command in a sandbox, joined to this process's own streams: live, binary-safe, both ways."""

import asyncio
import contextlib
import logging
import os
import re
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Mapping
from dataclasses import replace
from typing import Any, Self, cast

from paddock.domain.errors import Broken, InvalidRequest, PaddockError, TimedOut, Unauthenticated
from paddock.domain.guest import CommandResult, GuestAddress
from paddock.domain.ids import new_ulid
from paddock.domain.reason import Reason
from paddock.guest_client import answers
from paddock.guest_client.commands import Ended, Output, Started, parse_event
from paddock.guest_client.transport import Transport, encode
from paddock.interfaces.cli import terminal
from paddock.interfaces.cli.command import STDERR, STDIN, STDOUT, Wish
from paddock.interfaces.cli.streams import Collector, Reader, Sink, Writer

_log = logging.getLogger(__name__)

_LONGEST_S = 7 * 24 * 3600.0
_KILL_S = 5.0
_MOST_OUTPUT = 8 << 20
_START = "process.Process/Start"
_GRACE_S = 15.0
"""How much later than the guest this side gives up: its own grace, and time to say so."""
_SIGNALS = {(signal.strsignal(each) or "").lower(): each for each in signal.valid_signals()}


async def attach(address: GuestAddress, wish: Wish) -> CommandResult:
    """To the end, with its streams joined to ours; killed when this is cancelled or fails."""
    return await _run(address, wish, Writer(STDOUT), Writer(STDERR))


async def collect(address: GuestAddress, wish: Wish) -> CommandResult:
    """To the end, with its output in the answer, for a program that wants one record."""
    out, err = Collector(_MOST_OUTPUT), Collector(_MOST_OUTPUT)
    result = await _run(address, replace(wish, tty=bool(wish.tty)), out, err)
    cut = out.is_full or err.is_full
    return replace(result, stdout=bytes(out.data), stderr=bytes(err.data), truncated=cut)


async def _run(address: GuestAddress, wish: Wish, out: Sink, err: Sink) -> CommandResult:
    deadline = None if wish.timeout_s is None else wish.timeout_s + _GRACE_S
    async with _explained(), Transport(address) as transport:
        try:
            async with asyncio.timeout(deadline):
                sinks = {"stdout": out, "pty": out, "stderr": err}
                return await _Attached(transport, wish, sinks).run()
        except TimeoutError:
            return _ended(124, Reason.DEADLINE)


@contextlib.asynccontextmanager
async def _explained() -> AsyncIterator[None]:
    """What the guest refuses is what was asked for; how it was called is nobody's business."""
    try:
        yield
    except (InvalidRequest, Unauthenticated) as error:
        message = re.sub(r"^[\w.]+/\w+: ", "", error.message)
        fix = "command, user and directory have to exist inside the sandbox"
        refused = InvalidRequest(message, remediation=error.remediation or fix)
        refused.exit_code = error.exit_code
        raise refused from error


def _ended(exit_code: int, reason: Reason) -> CommandResult:
    return CommandResult(exit_code, b"", b"", reason)


class _Attached:
    """One command and the streams that it shares with us."""

    def __init__(self, transport: Transport, wish: Wish, sinks: Mapping[str, Sink]) -> None:
        self._transport = transport
        self._wish = wish
        self._sinks = sinks
        self._terminal = wish.wants_terminal
        self._name = {"process": {"tag": f"cli-{new_ulid()}"}}

    async def run(self) -> CommandResult:
        try:
            with terminal.raw(STDIN) if self._terminal else contextlib.nullcontext():
                return await self._follow()
        except TimedOut:
            if self._wish.timeout_s is None:
                raise
            return _ended(124, Reason.DEADLINE)
        except BaseException:
            with contextlib.suppress(PaddockError):
                await self._call("SendSignal", signal="SIGNAL_SIGKILL", timeout=_KILL_S)
            raise

    async def _follow(self) -> CommandResult:
        async with contextlib.aclosing(self._start()) as stream, _Beside() as beside:
            async for message in stream:
                body = answers.inner(message, "event")
                match parse_event(body):
                    case Started():
                        beside.begin(self._feed())
                        beside.begin(self._follow_size())
                    case Output(name, data):
                        await self._sinks[name].write(data)
                    case Ended() as end:
                        return _result(end, answers.text(answers.inner(body, "end"), "reason", ""))
        raise Broken("the guest ended the stream of a command without saying how it ended")

    def _start(self) -> AsyncGenerator[answers.Message, None]:
        wish, env = self._wish, dict(self._wish.env)
        message: dict[str, Any] = {"tag": self._name["process"]["tag"]}
        message["stdin"] = terminal.is_readable(STDIN)
        if self._terminal:
            env.setdefault("TERM", os.environ.get("TERM", "xterm"))
            message["pty"] = self._size()
        message["process"] = {"cmd": wish.argv[0], "args": list(wish.argv[1:]), "envs": env}
        if wish.workdir:
            message["process"]["cwd"] = wish.workdir
        limit = round((wish.timeout_s or 0) * 1000)
        headers = {"connect-timeout-ms": str(limit)} if limit else {}
        stream = self._transport.stream(_START, message, user=wish.user, headers=headers)
        return cast(AsyncGenerator[answers.Message, None], stream)

    async def _feed(self) -> None:
        """Our input is its input; that it does not want any more is its right."""
        if not terminal.is_readable(STDIN):
            return
        kind = "pty" if self._terminal else "stdin"
        async for chunk in Reader(STDIN).chunks():
            await self._call("SendInput", input={kind: encode(chunk)}, timeout=_LONGEST_S)
        if not self._terminal:
            await self._call("CloseStdin")

    async def _follow_size(self) -> None:
        """The size of our terminal is the size of its terminal."""
        if not self._terminal:
            return
        loop, changed = asyncio.get_running_loop(), asyncio.Event()
        loop.add_signal_handler(signal.SIGWINCH, changed.set)
        try:
            while await changed.wait():
                changed.clear()
                await self._call("Update", pty=self._size())
        finally:
            loop.remove_signal_handler(signal.SIGWINCH)

    def _size(self) -> dict[str, dict[str, int]]:
        columns, rows = terminal.size(STDOUT, STDIN, STDERR)
        return {"size": {"cols": columns, "rows": rows}}

    async def _call(self, method: str, timeout: float = 30.0, **fields: object) -> None:
        message = {**self._name, **fields}
        await self._transport.call(f"process.Process/{method}", message, timeout=timeout)


class _Beside:
    """Work that goes on beside the main work and ends with it."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.ensure_future(work))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        for failure in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(failure, Exception):
                _log.debug("input ended early", exc_info=failure)


def _result(end: Ended, reason: str) -> CommandResult:
    """envd says -1 for a death by signal; a shell says 128 and the signal's number."""
    code = end.exit_code
    if not end.exited:
        code = 128 + _SIGNALS.get(end.status.removeprefix("signal: "), signal.SIGKILL)
    usual = Reason.EXITED if end.exited else Reason.CRASHED
    return _ended(code, Reason(reason) if reason in list(Reason) else usual)
