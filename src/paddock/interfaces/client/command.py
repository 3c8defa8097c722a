"""One command that was started: its output as it comes, its input, its end."""

import asyncio
import base64
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from paddock.domain.errors import NotFound, PaddockError
from paddock.interfaces.client.failures import CommandFailed
from paddock.interfaces.client.following import Message, Tail
from paddock.interfaces.client.results import CommandInfo, CommandResult, Exit, Output, read
from paddock.interfaces.client.server import Server, segment

Listener = Callable[[str], Awaitable[None] | None]
MAX_KEPT = 64 << 20
_INPUT_CHUNK = 1 << 20
_ABANDON_S = 10.0


@dataclass(frozen=True, slots=True)
class Listeners:
    """Who is told of output as it comes."""

    stdout: Listener | None = None
    stderr: Listener | None = None

    async def tell(self, piece: Output) -> None:
        listener = self.stderr if piece.stream == "stderr" else self.stdout
        if listener is not None:
            waiting = listener(piece.text)
            if inspect.isawaitable(waiting):
                await waiting


@dataclass(slots=True)
class _Kept:
    """What has passed through, for the result; the beginning, when it is too much."""

    data: dict[str, bytearray] = field(default_factory=dict)
    truncated: bool = False

    def add(self, piece: Output) -> None:
        name = "stderr" if piece.stream == "stderr" else "stdout"
        kept = self.data.setdefault(name, bytearray())
        room = MAX_KEPT - len(kept)
        self.truncated |= len(piece.data) > room or piece.lost_bytes > 0
        kept += piece.data[:room]


class AsyncCommand:
    """A command that goes on by itself. Iterate over it for its output, or wait for its end.

    It survives this process and the server's restarts: `commands.connect(id)` takes it up again.
    """

    def __init__(
        self,
        server: Server,
        sandbox: str,
        command_id: str,
        *,
        shown: str = "",
        offsets: Mapping[str, int] | None = None,
        listeners: Listeners | None = None,
        opened: AsyncGenerator[Message, None] | None = None,
    ) -> None:
        self._server = server
        self._path = f"/v1/sandboxes/{segment(sandbox)}/commands/{segment(command_id)}"
        self._id = command_id
        self._shown = shown or command_id
        self._listeners = listeners or Listeners()
        self._opened = opened
        self._tail = Tail(server, self._path, offsets or {})
        self._kept = _Kept()

    @property
    def id(self) -> str:
        return self._id

    @property
    def cursor(self) -> str:
        """How far its output was read here; `commands.connect(id, cursor=…)` goes on from it."""
        return self._tail.cursor

    async def __aiter__(self) -> AsyncIterator[Output]:
        async for piece in self.output():
            yield piece

    async def output(self, *, follow: bool = True) -> AsyncIterator[Output]:
        """What it says until it has ended or, without `follow`, what it has said so far."""
        opened, self._opened = self._opened, None
        async for piece in self._tail.pieces(opened, follow=follow):
            self._kept.add(piece)
            await self._listeners.tell(piece)
            yield piece

    async def wait(self, *, check: bool = False) -> CommandResult:
        """How it ended, with the output that has passed through this object.

        With `check`, CommandFailed unless it ended with 0.
        """
        async for _ in self:
            pass
        assert self._tail.exit is not None
        result = self._result(self._tail.exit)
        if check and not result.ok:
            raise CommandFailed(self._shown, result.exit_code, result.stdout, result.stderr)
        return result

    def _result(self, ended: Exit) -> CommandResult:
        kept = self._kept.data
        return CommandResult(
            ended.exit_code,
            bytes(kept.get("stdout", b"")),
            bytes(kept.get("stderr", b"")),
            ended.reason,
            self._kept.truncated,
            ended.seconds,
        )

    async def send_input(self, data: bytes | str) -> None:
        """Write to its standard input, or type on its terminal."""
        content = data.encode() if isinstance(data, str) else data
        for start in range(0, len(content), _INPUT_CHUNK):
            part = base64.b64encode(content[start : start + _INPUT_CHUNK]).decode()
            await self._server.call("POST", f"{self._path}/input", json={"data_base64": part})

    async def close_input(self) -> None:
        """Nothing more will come: what it reads ends there."""
        await self._server.call(
            "POST", f"{self._path}/input", json={"close": True}, repeatable=True
        )

    async def send_signal(self, signal: str = "SIGINT") -> None:
        """To its process group."""
        await self._server.call("POST", f"{self._path}/signal", json={"signal": signal})

    async def resize(self, columns: int, rows: int) -> None:
        """Of its terminal."""
        size = {"columns": columns, "rows": rows}
        await self._server.call("POST", f"{self._path}/resize", json=size, repeatable=True)

    async def kill(self, grace: float = 5.0) -> None:
        """End it with everything it started: SIGTERM, and SIGKILL after the grace."""
        await self._server.call(
            "POST", f"{self._path}/kill", query={"grace_s": grace}, repeatable=True
        )

    async def info(self) -> CommandInfo:
        return read(CommandInfo, await self._server.call("GET", self._path))

    async def forget(self) -> None:
        """Let go of the output that is kept of it. It must have ended."""
        with suppress(NotFound):
            await self._server.call("DELETE", self._path)

    async def abandon(self) -> None:
        """Whoever waited for it has gone: end it and let go of it, as far as that is possible."""
        with suppress(PaddockError, TimeoutError):
            async with asyncio.timeout(_ABANDON_S):
                await self.kill(0.0)
                async for _ in self._tail.pieces():
                    pass
                await self.forget()
