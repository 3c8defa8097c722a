"""process.Process of envd: commands and terminals whose output is streamed to whoever listens."""

from __future__ import annotations

import asyncio
import base64
import signal
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Callable

from . import connect, fields
from .connect import Call, Message, Stream, StreamOpener
from .errors import GuestError, invalid
from .process import Ending, Process
from .state import GuestState

_KEEPALIVE: Message = {"event": {"keepalive": {}}}
_KEPT_AFTER_END = 30.0
_MOST_ENDED = 500
_SIGNALS: dict[object, signal.Signals] = {
    9: signal.SIGKILL,
    15: signal.SIGTERM,
    # envd has the first two; the others are ours, for terminals that are hung up and the like.
    **{
        f"SIGNAL_SIG{name}": signal.Signals[f"SIG{name}"]
        for name in "KILL TERM HUP INT QUIT USR1 USR2 ALRM CONT STOP TSTP WINCH".split()
    },
}


@dataclass(eq=False)
class _Entry:
    """A process that can be named by its pid or its tag, and who listens to it."""

    process: Process
    config: Message
    tag: str
    listeners: set[Stream] = field(default_factory=set)

    def matches(self, selector: Message) -> bool:
        if selector.get("tag"):
            return bool(selector["tag"] == self.tag)
        return str(selector.get("pid")) == str(self.process.pid)


class ProcessService:
    """Every process started by Start, until 30 s after its end."""

    def __init__(self, state: GuestState) -> None:
        self._state = state
        self._entries: list[_Entry] = []
        self._ended: list[_Entry] = []

    async def start(self, call: Call, message: Message, opener: StreamOpener) -> None:
        config = fields.inner(message, "process")
        terminal = fields.size(message, "pty")
        command = self._state.command(
            [fields.text(config, "cmd"), *fields.words(config, "args")],
            account=call.account,
            env=fields.mapping(config, "envs"),
            cwd=fields.text(config, "cwd", ""),
            stdin=fields.flag(message, "stdin", default=True),
            terminal=terminal,
        )
        entry: _Entry

        def on_data(name: str, data: bytes) -> None:
            _broadcast(entry, name, data)

        process = Process(self._state, command, on_data, call.timeout, grace=0)
        entry = _Entry(process, config, fields.text(message, "tag", ""))
        self._entries.append(entry)
        process.done.add_done_callback(lambda _: self._on_end(entry))
        ending = await self._follow(entry, opener)
        if ending.reason == "deadline":
            raise GuestError("deadline_exceeded", "the command ran longer than it was allowed to")

    async def connect(self, call: Call, message: Message, opener: StreamOpener) -> None:
        entry = self._find(message)
        timeout = call.timeout
        if timeout is None:
            await self._follow(entry, opener)
            return
        try:
            await asyncio.wait_for(self._follow(entry, opener), timeout)
        except asyncio.TimeoutError:
            raise GuestError("deadline_exceeded", "the stream reached its time limit") from None

    async def list(self, call: Call, message: Message) -> Message:
        running = [entry for entry in self._entries if entry.process.is_running]
        return {"processes": [_describe(entry) for entry in running]}

    async def send_input(self, call: Call, message: Message) -> Message:
        await _write(self._find_running(message), fields.inner(message, "input"))
        return {}

    async def stream_input(self, call: Call) -> None:
        entry: _Entry | None = None
        failure: GuestError | None = None
        try:
            async for message in connect.frames(call.exchange):
                if "start" in message:
                    entry = self._find_running(fields.inner(message, "start"))
                elif "data" in message:
                    if entry is None:
                        raise invalid("the first message must say which process is meant")
                    await _write(entry, fields.inner(fields.inner(message, "data"), "input"))
        except GuestError as error:
            failure = error
        stream = Stream(call)
        if failure is None:
            stream.send({})
        stream.end(failure)

    async def close_stdin(self, call: Call, message: Message) -> Message:
        entry = self._find_running(message)
        if entry.process.command.terminal is not None:
            raise GuestError("failed_precondition", "a terminal has no standard input to close")
        stdin = entry.process.stdin
        if stdin is None or not stdin.is_open:
            raise GuestError("internal", "standard input is not open")
        stdin.close()
        return {}

    async def send_signal(self, call: Call, message: Message) -> Message:
        number = _SIGNALS.get(message.get("signal", ""))
        if number is None:
            raise invalid("signal must be SIGNAL_SIGKILL, SIGNAL_SIGTERM or another of its kind")
        await self._find_running(message).process.signal(number)
        return {}

    async def update(self, call: Call, message: Message) -> Message:
        size = fields.size(message, "pty")
        entry = self._find_running(message)
        if size is not None:
            if entry.process.command.terminal is None:
                raise GuestError("failed_precondition", "the process has no terminal")
            entry.process.resize(size)
        return {}

    async def _follow(self, entry: _Entry, opener: StreamOpener) -> Ending:
        stream = opener.open()
        stream.send({"event": {"start": {"pid": entry.process.pid}}})
        entry.listeners.add(stream)
        try:
            ending = await asyncio.shield(entry.process.done)
        finally:
            _leave(entry, stream)
        if ending.reason != "deadline":
            stream.send({"event": {"end": _end_event(ending)}})
        return ending

    def _find(self, message: Message) -> _Entry:
        selector = fields.inner(message, "process")
        for entry in reversed(self._entries):
            if entry.matches(selector):
                return entry
        name = selector.get("tag") or selector.get("pid")
        raise GuestError("not_found", f"no process {name!r} was started here, or it ended long ago")

    def _find_running(self, message: Message) -> _Entry:
        entry = self._find(message)
        if not entry.process.is_running:
            raise GuestError("not_found", f"process {entry.process.pid} has ended")
        return entry

    def _on_end(self, entry: _Entry) -> None:
        self._ended.append(entry)
        if len(self._ended) > _MOST_ENDED:
            self._forget(self._ended[0])
        asyncio.get_running_loop().call_later(_KEPT_AFTER_END, self._forget, entry)

    def _forget(self, entry: _Entry) -> None:
        if entry in self._ended:
            self._ended.remove(entry)
            self._entries.remove(entry)


def methods(state: GuestState) -> dict[str, Callable[[Call], Awaitable[None]]]:
    service = ProcessService(state)
    table = {
        "Start": connect.server_stream(service.start, _KEEPALIVE),
        "Connect": connect.server_stream(service.connect, _KEEPALIVE),
        "List": connect.unary(service.list),
        "SendInput": connect.unary(service.send_input, connect.INPUT_LIMIT),
        "StreamInput": service.stream_input,
        "CloseStdin": connect.unary(service.close_stdin),
        "SendSignal": connect.unary(service.send_signal),
        "Update": connect.unary(service.update),
    }
    return {f"POST /process.Process/{name}": method for name, method in table.items()}


def _broadcast(entry: _Entry, name: str, data: bytes) -> None:
    """To every listener. The slowest sets the pace; with none the output is let go."""
    message = {"event": {"data": {name: base64.b64encode(data).decode("ascii")}}}
    for stream in tuple(entry.listeners):
        if not stream.is_connected:
            _leave(entry, stream)
            continue
        stream.send(message)
        if stream.congestion.is_on:
            entry.process.pause_output()
            stream.congestion.when_over(lambda: _resume(entry))


def _resume(entry: _Entry) -> None:
    if not any(stream.congestion.is_on for stream in entry.listeners):
        entry.process.resume_output()


def _leave(entry: _Entry, stream: Stream) -> None:
    entry.listeners.discard(stream)
    _resume(entry)


async def _write(entry: _Entry, given: Message) -> None:
    wanted = "pty" if entry.process.command.terminal is not None else "stdin"
    if wanted not in given:
        raise GuestError("internal", f"the process takes its input as {wanted}")
    stdin = entry.process.stdin
    if stdin is None or not stdin.is_open:
        raise GuestError("internal", "standard input is not open")
    try:
        await stdin.write(fields.binary(given, wanted))
    except OSError as error:
        raise GuestError("internal", f"the process does not read its input: {error}") from None


def _describe(entry: _Entry) -> Message:
    config = {
        name: entry.config[name]
        for name in ("cmd", "args", "envs", "cwd")
        if entry.config.get(name)
    }
    described: Message = {"pid": entry.process.pid, "config": config}
    if entry.tag:
        described["tag"] = entry.tag
    return described


_MORE_THAN_A_STATUS = ("oom", "disk_full")


def _end_event(ending: Ending) -> Message:
    """envd's own convention, which is Go's: -1 for a death by signal. The reason is ours."""
    if ending.signal is not None:
        status = f"signal: {signal_text(ending.signal)}"
        event: Message = {"exitCode": -1, "exited": False, "status": status, "error": status}
    else:
        status = f"exit status {ending.exit_code}"
        event = {"exitCode": ending.exit_code, "exited": True, "status": status}
        if ending.exit_code:
            event["error"] = status
    if ending.reason in _MORE_THAN_A_STATUS:
        event["reason"] = ending.reason
    return event


def signal_text(number: int) -> str:
    """As Go says it: `killed`, `terminated`, `segmentation fault`."""
    text = signal.strsignal(number)
    return text.lower() if text else f"signal {number}"
