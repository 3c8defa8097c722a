"""The commands of a sandbox: run to their end, or started and followed."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Literal, overload

from paddock.domain.errors import InvalidRequest, NotFound, PaddockError, Unavailable
from paddock.domain.ids import new_id
from paddock.domain.reason import Reason
from paddock.interfaces.client.command import MAX_KEPT, AsyncCommand, Listener, Listeners
from paddock.interfaces.client.failures import CommandFailed
from paddock.interfaces.client.following import messages, streaming
from paddock.interfaces.client.results import CommandInfo, CommandResult, read
from paddock.interfaces.client.server import Server, segment, without_nothing
from paddock.interfaces.client.shell import argument_vector, shown

DEFAULT_TIMEOUT_S = 60.0
_MOST_STDIN = 4 << 20
Cmd = str | Sequence[str]


class AsyncCommands:
    """What runs in a sandbox."""

    def __init__(self, server: Server, sandbox: str) -> None:
        self._server = server
        self._sandbox = sandbox
        self._path = f"/v1/sandboxes/{segment(sandbox)}"

    @overload
    async def run(
        self,
        cmd: Cmd,
        *,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        user: str = "",
        timeout: float | None = DEFAULT_TIMEOUT_S,
        stdin: bytes | str = b"",
        login: bool = False,
        on_stdout: Listener | None = None,
        on_stderr: Listener | None = None,
        check: bool = False,
        durable: bool = True,
        background: Literal[False] = False,
    ) -> CommandResult: ...
    @overload
    async def run(
        self,
        cmd: Cmd,
        *,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        user: str = "",
        timeout: float | None = None,
        stdin: bytes | str = b"",
        login: bool = False,
        on_stdout: Listener | None = None,
        on_stderr: Listener | None = None,
        background: Literal[True],
    ) -> AsyncCommand: ...
    @overload
    async def run(
        self, cmd: Cmd, *, background: bool, **how: Any
    ) -> CommandResult | AsyncCommand: ...
    async def run(
        self,
        cmd: Cmd,
        *,
        on_stdout: Listener | None = None,
        on_stderr: Listener | None = None,
        check: bool = False,
        durable: bool = True,
        background: bool = False,
        **how: Any,
    ) -> CommandResult | AsyncCommand:
        """Run a command. A string goes to the sandbox's shell, a list runs as it is.

        It is waited for, and ended when its time is up (exit code 124) or when the wait is
        cancelled. With `background` it is only started and goes on alone. With `login` it has
        what a person's terminal has, version managers included. One that is not `durable` costs
        less, tells nothing before its end, and ends with the connection.
        """
        if background:
            return await self.start(cmd, on_stdout=on_stdout, on_stderr=on_stderr, **how)
        wish = _wish(cmd, **{"timeout": DEFAULT_TIMEOUT_S, **how})
        if durable or on_stdout or on_stderr:
            result = await self._attend(wish, Listeners(on_stdout, on_stderr))
        else:
            result = await self._execute(wish)
        if check and not result.ok:
            raise CommandFailed(shown(wish["cmd"]), result.exit_code, result.stdout, result.stderr)
        return result

    async def start(
        self,
        cmd: Cmd,
        *,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        user: str = "",
        timeout: float | None = None,
        stdin: bytes | str = b"",
        login: bool = False,
        keep_stdin_open: bool = False,
        terminal: tuple[int, int] | None = None,
        on_stdout: Listener | None = None,
        on_stderr: Listener | None = None,
    ) -> AsyncCommand:
        """Start a command that goes on by itself; the same as `run(…, background=True)`.

        `keep_stdin_open` leaves its input to `send_input`; `terminal` gives it one of so many
        columns and rows.
        """
        wish = _wish(cmd, cwd=cwd, env=env, user=user, timeout=timeout, stdin=stdin, login=login)
        wish |= without_nothing(terminal=terminal, keep_stdin_open=keep_stdin_open or None)
        wanted = new_id("cmd")
        headers = {"idempotency-key": wanted}
        try:
            answer = await self._server.call(
                "POST", f"{self._path}/commands", json=wish, headers=headers
            )
            command_id = str(answer["id"])
        except Unavailable:
            if not await self._is_there(wanted):
                raise
            command_id = wanted
        return self._command(command_id, wish, Listeners(on_stdout, on_stderr))

    async def connect(
        self,
        command_id: str,
        *,
        cursor: str = "",
        on_stdout: Listener | None = None,
        on_stderr: Listener | None = None,
    ) -> AsyncCommand:
        """A command that was started before, by its id; its output from the cursor on."""
        found = await self.get(command_id)
        return AsyncCommand(
            self._server,
            self._sandbox,
            found.id,
            shown=shown(found.cmd),
            offsets=_offsets(cursor),
            listeners=Listeners(on_stdout, on_stderr),
        )

    async def get(self, command_id: str) -> CommandInfo:
        answer = await self._server.call("GET", f"{self._path}/commands/{segment(command_id)}")
        return read(CommandInfo, answer)

    async def list(self) -> Sequence[CommandInfo]:
        """Those that run, and those that ended and were not forgotten."""
        await self._server.errands_done()
        pages = self._server.pages(f"{self._path}/commands", {})
        return [read(CommandInfo, item) async for item in pages]

    async def _attend(self, wish: dict[str, Any], listeners: Listeners) -> CommandResult:
        command = await self._begin(wish, listeners)
        try:
            result = await command.wait()
        except PaddockError:
            raise
        except BaseException:
            await command.abandon()
            raise
        self._server.later(command.forget())
        return result

    async def _execute(self, wish: dict[str, Any]) -> CommandResult:
        wish = {**wish, "encoding": "base64", "max_output_bytes": MAX_KEPT}
        answer = await self._server.call("POST", f"{self._path}/exec", json=wish)
        return CommandResult(
            answer["exit_code"],
            base64.b64decode(answer["stdout"]),
            base64.b64decode(answer["stderr"]),
            Reason(answer["reason"]),
            answer["truncated"],
        )

    async def _begin(self, wish: dict[str, Any], listeners: Listeners) -> AsyncCommand:
        """Started and followed with one request. The id is ours, so that the command is known by
        it whatever happens to the answer."""
        wanted = new_id("cmd")
        call = streaming(
            "POST",
            f"{self._path}/exec/stream",
            json=wish,
            headers={"idempotency-key": wanted},
        )
        stream = messages(self._server, call)
        try:
            first = await anext(stream)
            command_id, opened = str(first["id"]), stream
        except (Unavailable, StopAsyncIteration) as error:
            if not await self._is_there(wanted):
                raise _unsure(error) from error
            command_id, opened = wanted, None
        return self._command(command_id, wish, listeners, opened=opened)

    def _command(
        self, command_id: str, wish: dict[str, Any], listeners: Listeners, **more: Any
    ) -> AsyncCommand:
        said = shown(wish["cmd"])
        return AsyncCommand(
            self._server, self._sandbox, command_id, shown=said, listeners=listeners, **more
        )

    async def _is_there(self, command_id: str) -> bool:
        try:
            await self.get(command_id)
        except (NotFound, Unavailable):
            return False
        return True


def _unsure(error: Exception) -> PaddockError:
    if isinstance(error, PaddockError):
        return error
    return Unavailable(
        "the server closed the stream before it said whether the command was started",
        remediation="`commands.list()` says whether it runs",
    )


def _wish(
    cmd: Cmd,
    *,
    cwd: str = "",
    env: Mapping[str, str] | None = None,
    user: str = "",
    timeout: float | None = None,
    stdin: bytes | str = b"",
    login: bool = False,
) -> dict[str, Any]:
    content = stdin.encode() if isinstance(stdin, str) else stdin
    if len(content) > _MOST_STDIN:
        raise InvalidRequest(
            f"stdin has {len(content)} bytes; it may have {_MOST_STDIN}",
            remediation="write it to a file, or start the command with keep_stdin_open "
            "and use send_input",
        )
    return without_nothing(
        cmd=argument_vector(cmd, login=login),
        login=login or None,
        cwd=cwd or None,
        user=user or None,
        env=dict(env) if env else None,
        timeout_s=timeout,
        stdin_base64=base64.b64encode(content).decode() or None,
    )


def _offsets(cursor: str) -> dict[str, int]:
    pairs = (part.partition(":") for part in cursor.split(",") if part)
    return {stream: int(place) for stream, _, place in pairs if place.isdigit()}
