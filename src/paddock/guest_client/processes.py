"""Supervised processes: defined once, kept running, with logs that outlive restarts."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from paddock.domain.reason import Reason
from paddock.guest_client import answers, commands
from paddock.guest_client.answers import Message
from paddock.guest_client.runs import Chunk, Gap
from paddock.guest_client.transport import Transport

_SERVICE = "paddock.Guest"
_GRACE = 5.0
_SLACK = 15.0


class Restart(StrEnum):
    """When a process that ended by itself is started again."""

    ALWAYS = "always"
    ON_FAILURE = "on_failure"
    NEVER = "never"


class ProcessState(StrEnum):
    """What a supervised process is doing."""

    STOPPED = "stopped"
    RUNNING = "running"
    BACKOFF = "backoff"
    EXITED = "exited"
    GAVE_UP = "gave_up"


@dataclass(frozen=True, slots=True)
class Process:
    """A supervised process as it is now."""

    name: str
    cmd: tuple[str, ...]
    state: ProcessState
    restart: Restart
    wanted: bool
    restarts: int
    failures: int
    log_first: int
    log_end: int
    pid: int | None = None
    last_exit_code: int | None = None
    last_reason: Reason | None = None


class Processes:
    """The supervised processes of one sandbox."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def put(
        self,
        name: str,
        argv: Sequence[str],
        *,
        user: str | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        restart: Restart = Restart.ALWAYS,
    ) -> Process:
        """Define it, or define it anew; it is not started by this."""
        message = commands.request(argv, user=user, cwd=cwd, env=env)
        return await self._call("PutProcess", message | {"name": name, "restart": restart.value})

    async def start(self, name: str) -> Process:
        """Run it from now on, also when the supervisor had given up on it."""
        return await self._call("StartProcess", {"name": name})

    async def stop(self, name: str, grace: float = _GRACE) -> Process:
        return await self._end("StopProcess", name, grace)

    async def restart(self, name: str, grace: float = _GRACE) -> Process:
        return await self._end("RestartProcess", name, grace)

    async def get(self, name: str) -> Process:
        return await self._call("GetProcess", {"name": name})

    async def list(self) -> list[Process]:
        answer = await self._transport.call(f"{_SERVICE}/ListProcesses", {})
        return [_process(item) for item in answers.many(answer, "processes")]

    async def remove(self, name: str, grace: float = _GRACE) -> None:
        """Stopped and forgotten. Absent is success."""
        message = {"name": name, "graceMs": round(grace * 1000)}
        await self._transport.call(f"{_SERVICE}/RemoveProcess", message, timeout=grace + _SLACK)

    async def logs(
        self,
        name: str,
        *,
        offset: int | None = None,
        tail_bytes: int | None = None,
        follow: bool = False,
    ) -> AsyncIterator[Chunk | Gap]:
        """From an offset, or the last `tail_bytes`; with `follow` until it is removed."""
        message: Message = {"name": name, "follow": follow}
        if offset is not None:
            message["offset"] = offset
        if tail_bytes is not None:
            message["tailBytes"] = tail_bytes
        async for frame in self._transport.stream(f"{_SERVICE}/ProcessLogs", message):
            if "data" in frame:
                yield Chunk(answers.whole(frame, "offset"), answers.binary(frame, "data"))
            elif "gap" in frame:
                gap = answers.inner(frame, "gap")
                yield Gap(answers.whole(gap, "from"), answers.whole(gap, "to"))

    async def _end(self, method: str, name: str, grace: float) -> Process:
        message = {"name": name, "graceMs": round(grace * 1000)}
        return await self._call(method, message, timeout=grace + _SLACK)

    async def _call(self, method: str, message: Message, timeout: float = 30.0) -> Process:
        answer = await self._transport.call(f"{_SERVICE}/{method}", message, timeout=timeout)
        return _process(answers.inner(answer, "process"))


def _process(message: Message) -> Process:
    log = answers.inner(message, "log")
    last = answers.inner(message, "lastExit")
    return Process(
        name=answers.text(message, "name"),
        cmd=answers.words(message, "cmd"),
        state=answers.choice(message, "state", ProcessState),
        restart=answers.choice(message, "restart", Restart),
        wanted=answers.flag(message, "wanted"),
        restarts=answers.whole(message, "restarts"),
        failures=answers.whole(message, "failures"),
        log_first=answers.whole(log, "first"),
        log_end=answers.whole(log, "end"),
        pid=answers.whole(message, "pid") if "pid" in message else None,
        last_exit_code=answers.whole(last, "exitCode") if last else None,
        last_reason=answers.reason(last) if last else None,
    )
