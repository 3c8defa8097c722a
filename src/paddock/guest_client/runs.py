"""Durable runs: started once by key, followed from any offset, kept until acknowledged."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field

from paddock.domain.errors import Broken
from paddock.domain.reason import Reason
from paddock.guest_client import answers, commands
from paddock.guest_client.answers import Message
from paddock.guest_client.transport import CALL_TIMEOUT, Transport, encode

_SERVICE = "paddock.Guest"


@dataclass(frozen=True, slots=True)
class RunExit:
    """How a run ended; the code is -1 when the guest died with it and nobody knows."""

    exit_code: int
    reason: Reason
    started_at: float
    ended_at: float
    cpu_seconds: float
    max_rss_bytes: int


@dataclass(frozen=True, slots=True)
class RunStream:
    """What is kept of one stream: bytes from `first` to `end`, of which `acked` were read."""

    first: int
    end: int
    acked: int
    gaps: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Run:
    """A run as the guest knows it."""

    key: str
    cmd: tuple[str, ...]
    cwd: str
    user: str
    started_at: float
    streams: Mapping[str, RunStream] = field(default_factory=dict)
    pid: int | None = None
    exit: RunExit | None = None


@dataclass(frozen=True, slots=True)
class Chunk:
    """Output at an offset of its stream."""

    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Gap:
    """Bytes that are not there any more: acknowledged before, or let go when the log was full."""

    start: int
    end: int


TailEvent = Chunk | Gap | RunExit


@dataclass(frozen=True, slots=True)
class Told:
    """What was beyond some offsets, stream by stream in order, and the end with the last of it."""

    output: tuple[tuple[str, Chunk | Gap], ...]
    exit: RunExit | None = None


class Runs:
    """The runs of one sandbox."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def start(
        self,
        key: str,
        argv: Sequence[str],
        *,
        user: str | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        keep_stdin_open: bool = False,
        terminal: tuple[int, int] | None = None,
        timeout: float | None = None,
        log_cap: int | None = None,
        drop_when_full: bool = False,
        inbox: bool = True,
    ) -> Run:
        """Start it, or find it started: the same key with the same request is the same run.

        Another request under a known key is Conflict. `terminal` is columns and rows. One that
        nobody will send messages to needs no inbox, and starts sooner without.
        """
        message = commands.request(argv, user=user, cwd=cwd, env=env) | {"key": key}
        if stdin:
            message["stdin"] = encode(stdin)
        if keep_stdin_open:
            message["keepStdinOpen"] = True
        if terminal is not None:
            message["pty"] = {"cols": terminal[0], "rows": terminal[1]}
        if timeout is not None:
            message["timeoutMs"] = round(timeout * 1000)
        if log_cap is not None:
            message["logCapBytes"] = log_cap
        if drop_when_full:
            message["onFull"] = "drop"
        if not inbox:
            message["inbox"] = False
        return _run(answers.inner(await self._call("StartRun", message), "run"))

    async def get(self, key: str) -> Run:
        return _run(answers.inner(await self._call("GetRun", {"key": key}), "run"))

    async def list(self) -> list[Run]:
        return [_run(item) for item in answers.many(await self._call("ListRuns", {}), "runs")]

    async def tail(
        self, key: str, *, stream: str = "", offset: int = 0, follow: bool = True
    ) -> AsyncIterator[TailEvent]:
        """Output from an offset on, in order, and at last the RunExit.

        Without `follow` it ends with what is there now. When it breaks off (Unavailable), go on
        from the end of the last chunk.
        """
        message: Message = {"key": key, "offset": offset, "follow": follow}
        if stream:
            message["stream"] = stream
        async for frame in self._transport.stream(f"{_SERVICE}/TailRun", message):
            event = _tail_event(frame)
            if event is None:
                continue
            _check_order(event, offset)
            if not isinstance(event, RunExit):
                offset = _end(event)
            yield event

    async def read(self, key: str, offsets: Mapping[str, int], *, wait_s: float = 0.0) -> Told:
        """What there is beyond these offsets; when nothing, what comes within the wait.

        Cheaper than a tail, and of all streams at once. Whoever follows a run asks again.
        """
        message = {"key": key, "waitMs": round(wait_s * 1000), **offsets}
        answer = await self._transport.call(
            f"{_SERVICE}/ReadRun", message, timeout=wait_s + CALL_TIMEOUT
        )
        expected = dict(offsets)
        output = []
        for item in answers.many(answer, "told"):
            stream, event = answers.text(item, "stream"), _tail_event(item)
            if stream not in expected or not isinstance(event, Chunk | Gap):
                raise Broken(f"the guest told {item!r:.100}, which nobody asked for")
            _check_order(event, expected[stream])
            expected[stream] = _end(event)
            output.append((stream, event))
        ended = _exit(answers.inner(answer, "exit")) if "exit" in answer else None
        return Told(tuple(output), ended)

    async def ack(self, key: str, offsets: Mapping[str, int] | None = None) -> None:
        """With offsets by stream: so much was read and may go. Without: forget the ended run."""
        await self._call("AckRun", {"key": key, **(offsets or {})})

    async def signal(self, key: str, name: str = "SIGTERM") -> None:
        """SIGKILL ends the whole tree; others go to the program's process group."""
        await self._call("SignalRun", {"key": key, "signal": name})

    async def end(self, key: str, grace: float = 5.0) -> None:
        """SIGTERM, and after the grace the whole tree is killed. Returns at once."""
        await self._call("SignalRun", {"key": key, "graceMs": round(grace * 1000)})

    async def send_input(self, key: str, data: bytes, *, seq: int = 0) -> None:
        """Numbered from 1 on, what is sent again is taken once."""
        message: Message = {"key": key, "data": encode(data)}
        if seq:
            message["seq"] = seq
        await self._call("SendRunInput", message)

    async def close_input(self, key: str) -> None:
        await self._call("CloseRunInput", {"key": key})

    async def resize(self, key: str, columns: int, rows: int) -> None:
        await self._call("ResizeRun", {"key": key, "cols": columns, "rows": rows})

    async def _call(self, method: str, message: Message) -> Message:
        return await self._transport.call(f"{_SERVICE}/{method}", message)


def _run(message: Message) -> Run:
    streams = answers.inner(message, "streams")
    return Run(
        key=answers.text(message, "key"),
        cmd=answers.words(message, "cmd"),
        cwd=answers.text(message, "cwd", ""),
        user=answers.text(message, "user", ""),
        started_at=answers.number(message, "startedAt"),
        streams={name: _stream(answers.inner(streams, name)) for name in streams},
        pid=answers.whole(message, "pid") if "pid" in message else None,
        exit=_exit(answers.inner(message, "exit")) if "exit" in message else None,
    )


def _stream(message: Message) -> RunStream:
    gaps = answers.many(message, "gaps")
    return RunStream(
        first=answers.whole(message, "first"),
        end=answers.whole(message, "end"),
        acked=answers.whole(message, "acked"),
        gaps=tuple((answers.whole(gap, "from"), answers.whole(gap, "to")) for gap in gaps),
    )


def _exit(message: Message) -> RunExit:
    usage = answers.inner(message, "usage")
    return RunExit(
        exit_code=answers.whole(message, "exitCode"),
        reason=answers.reason(message),
        started_at=answers.number(message, "startedAt"),
        ended_at=answers.number(message, "endedAt"),
        cpu_seconds=answers.number(usage, "cpuSeconds", 0),
        max_rss_bytes=answers.whole(usage, "maxRssBytes", 0),
    )


def _tail_event(frame: Message) -> TailEvent | None:
    """None for a keep-alive."""
    if "data" in frame:
        return Chunk(answers.whole(frame, "offset"), answers.binary(frame, "data"))
    if "gap" in frame:
        gap = answers.inner(frame, "gap")
        return Gap(answers.whole(gap, "from"), answers.whole(gap, "to"))
    if "exit" in frame:
        return _exit(answers.inner(frame, "exit"))
    return None


def _end(event: Chunk | Gap) -> int:
    return event.offset + len(event.data) if isinstance(event, Chunk) else event.end


def _check_order(event: TailEvent, expected: int) -> None:
    """Nothing twice and nothing missing: the guest's word is not taken for it."""
    if isinstance(event, RunExit):
        return
    start = event.offset if isinstance(event, Chunk) else event.start
    if start != expected or _end(event) <= start:
        raise Broken(f"the guest sent {event!r:.100} where offset {expected} was due")
