"""Commands: run to the end, or followed while they run."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paddock.domain.errors import Broken, Conflict
from paddock.domain.guest import CommandResult
from paddock.guest_client import answers
from paddock.guest_client.transport import Transport, dump, encode, frame, read_all

_SLACK = 10.0  # the guest's own five seconds between SIGTERM and SIGKILL, and as much again
_BASE64 = 1.4
_STREAMS = ("stdout", "stderr", "pty")
_SERVICE = "process.Process"


@dataclass(frozen=True, slots=True)
class Started:
    """The command runs; the pid is the one inside the sandbox."""

    pid: int


@dataclass(frozen=True, slots=True)
class Output:
    """What the command wrote to one of its streams."""

    stream: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Ended:
    """The command has ended; the code is -1 when a signal killed it."""

    exit_code: int
    exited: bool
    status: str


CommandEvent = Started | Output | Ended


def request(
    argv: Sequence[str],
    *,
    user: str | None = None,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The fields that every call about a command has."""
    message: dict[str, Any] = {"cmd": list(argv)}
    if user:
        message["user"] = user
    if cwd:
        message["cwd"] = cwd
    if env:
        message["env"] = dict(env)
    return message


async def execute(
    transport: Transport,
    message: dict[str, Any],
    *,
    stdin: bytes,
    timeout: float,
    max_output: int,
) -> CommandResult:
    message |= {"timeoutMs": round(timeout * 1000), "maxOutputBytes": max_output}
    if stdin:
        message["stdin"] = encode(stdin)
    answer = await transport.call(
        "paddock.Guest/Exec",
        message,
        timeout=timeout + _SLACK,
        limit=int(2 * max_output * _BASE64) + 65536,
    )
    return CommandResult(
        exit_code=answers.whole(answer, "exitCode"),
        stdout=answers.binary(answer, "stdout"),
        stderr=answers.binary(answer, "stderr"),
        reason=answers.reason(answer),
        truncated=answers.flag(answer, "truncated"),
    )


def start_message(
    argv: Sequence[str],
    *,
    cwd: str | None,
    env: Mapping[str, str] | None,
    terminal: tuple[int, int] | None,
    stdin: bool,
) -> dict[str, Any]:
    process: dict[str, Any] = {"cmd": argv[0], "args": list(argv[1:]), "envs": dict(env or {})}
    if cwd:
        process["cwd"] = cwd
    message: dict[str, Any] = {"process": process, "stdin": stdin}
    if terminal is not None:
        message["pty"] = {"size": {"cols": terminal[0], "rows": terminal[1]}}
    return message


async def events(
    transport: Transport,
    method: str,
    message: dict[str, Any],
    *,
    user: str | None = None,
    timeout: float | None = None,
) -> AsyncIterator[CommandEvent]:
    """What envd's Start and Connect tell of a process."""
    headers = {} if timeout is None else {"connect-timeout-ms": str(round(timeout * 1000))}
    stream = transport.stream(f"{_SERVICE}/{method}", message, user=user or "", headers=headers)
    async for told in stream:
        event = parse_event(answers.inner(told, "event"))
        if event is not None:
            yield event


class Commands:
    """Commands that were started with Guest.start and still run, by their pid."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def connect(self, pid: int) -> AsyncIterator[CommandEvent]:
        """Listen again: what it writes from now on, and its end."""
        return events(self._transport, "Connect", _process(pid))

    async def list(self) -> dict[int, tuple[str, ...]]:
        """The commands by pid."""
        answer = await self._call("List", {})
        found = {}
        for item in answers.many(answer, "processes"):
            config = answers.inner(item, "config")
            argv = (answers.text(config, "cmd"), *answers.words(config, "args"))
            found[answers.whole(item, "pid")] = argv
        return found

    async def send_input(self, pid: int, data: bytes, *, terminal: bool = False) -> None:
        kind = "pty" if terminal else "stdin"
        await self._call("SendInput", _process(pid) | {"input": {kind: encode(data)}})

    async def stream_input(
        self, pid: int, pieces: AsyncIterator[bytes], *, terminal: bool = False
    ) -> None:
        """Input as it comes, taken as fast as the program reads, however long that takes.

        It goes on when the caller stops; NotFound or Conflict when the program reads no more.
        """
        kind = "pty" if terminal else "stdin"

        async def frames() -> AsyncIterator[bytes]:
            yield frame(0, dump({"start": _process(pid)}))
            async for data in pieces:
                yield frame(0, dump({"data": {"input": {kind: encode(data)}}}))

        headers = {"content-type": "application/connect+json"}
        async with self._transport.request(
            "POST", f"{_SERVICE}/StreamInput", headers=headers, body=frames()
        ) as answer:
            said = await read_all(answer, 1 << 16, "StreamInput")
        if b'"error"' in said:
            raise Conflict("the program reads no more input")

    async def close_input(self, pid: int) -> None:
        await self._call("CloseStdin", _process(pid))

    async def resize(self, pid: int, columns: int, rows: int) -> None:
        size = {"cols": columns, "rows": rows}
        await self._call("Update", _process(pid) | {"pty": {"size": size}})

    async def kill(self, pid: int) -> None:
        """The whole tree. NotFound when it has ended."""
        await self._call("SendSignal", _process(pid) | {"signal": "SIGNAL_SIGKILL"})

    async def terminate(self, pid: int) -> None:
        await self._call("SendSignal", _process(pid) | {"signal": "SIGNAL_SIGTERM"})

    async def signal(self, pid: int, name: str) -> None:
        """By name, such as SIGHUP, to the program's process group. NotFound when it has ended."""
        await self._call("SendSignal", _process(pid) | {"signal": f"SIGNAL_{name}"})

    async def _call(self, method: str, message: dict[str, Any]) -> answers.Message:
        return await self._transport.call(f"{_SERVICE}/{method}", message)


def _process(pid: int) -> dict[str, Any]:
    return {"process": {"pid": pid}}


def parse_event(event: answers.Message) -> CommandEvent | None:
    """One event of envd's process stream; None for a keep-alive."""
    if "start" in event:
        return Started(answers.whole(answers.inner(event, "start"), "pid"))
    if "data" in event:
        data = answers.inner(event, "data")
        name = next((name for name in _STREAMS if name in data), None)
        if name is None:
            raise Broken("the guest sent output of no stream")
        return Output(name, answers.binary(data, name))
    if "end" in event:
        end = answers.inner(event, "end")
        return Ended(
            answers.whole(end, "exitCode", 0),
            answers.flag(end, "exited"),
            answers.text(end, "status", ""),
        )
    return None
