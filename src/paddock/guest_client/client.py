"""The guest as the rest of Paddock sees it."""

from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Self

from paddock.domain.guest import CommandResult, GuestAddress
from paddock.guest_client import answers, commands, host
from paddock.guest_client.commands import CommandEvent, Commands
from paddock.guest_client.desks import Desks
from paddock.guest_client.files import Files
from paddock.guest_client.messages import Messages
from paddock.guest_client.posix import PosixFiles
from paddock.guest_client.processes import Processes
from paddock.guest_client.runs import Runs
from paddock.guest_client.transport import Transport

_MAX_OUTPUT = 8 << 20
_SHUTDOWN_SLACK = 15.0
_LET_GO_S = 5.0


class Guest:
    """One sandbox's guest: `async with Guest(address) as guest`.

    Everything raises only errors of the domain: Unavailable when nobody answers, Broken when what
    is answered cannot be, TimedOut when it takes too long.
    """

    def __init__(self, address: GuestAddress) -> None:
        self._transport = Transport(address)
        self.commands = Commands(self._transport)
        self.files = Files(self._transport)
        self.posix = PosixFiles(self._transport)
        self.runs = Runs(self._transport)
        self.messages = Messages(self._transport)
        self.processes = Processes(self._transport)
        self.desks = Desks(self._transport)

    async def __aenter__(self) -> Self:
        await self._transport.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._transport.__aexit__(kind, error, trace)

    async def health(self, timeout: float = 5.0) -> None:
        """Returns when the guest answers; Unavailable when nobody does."""
        async with self._transport.request("GET", "health", timeout=timeout):
            return

    async def init(
        self,
        *,
        env: Mapping[str, str] | None = None,
        token: str | None = None,
        sandbox_id: str | None = None,
        user: str | None = None,
        workdir: str | None = None,
    ) -> None:
        """Tell the guest who it is. What is None stays as it is; `env` is added to what it has."""
        given = {
            "envVars": None if env is None else dict(env),
            "accessToken": token,
            "sandboxId": sandbox_id,
            "defaultUser": user,
            "defaultWorkdir": workdir,
        }
        await self._transport.post_plain("init", {k: v for k, v in given.items() if v is not None})

    async def exec(
        self,
        argv: Sequence[str],
        *,
        user: str | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        timeout: float = 60.0,
        max_output: int = _MAX_OUTPUT,
    ) -> CommandResult:
        """Run a command to its end. At the deadline its tree is killed and the code is 124.

        A caller that goes away before the end takes the command with it.
        """
        request = commands.request(argv, user=user, cwd=cwd, env=env)
        return await commands.execute(
            self._transport, request, stdin=stdin, timeout=timeout, max_output=max_output
        )

    def start(
        self,
        argv: Sequence[str],
        *,
        user: str | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        terminal: tuple[int, int] | None = None,
        stdin: bool = False,
        timeout: float | None = None,
    ) -> AsyncIterator[CommandEvent]:
        """Run a command and hear of it as it happens: Started, Output…, Ended.

        It goes on when the caller stops listening; `commands` takes it up again by its pid.
        """
        message = commands.start_message(argv, cwd=cwd, env=env, terminal=terminal, stdin=stdin)
        return commands.events(self._transport, "Start", message, user=user, timeout=timeout)

    async def ports(self) -> list[host.Port]:
        answer = await self._transport.call("paddock.Guest/ListPorts", {})
        return [host.parse_port(item) for item in answers.many(answer, "ports")]

    async def usage(self) -> host.GuestUsage:
        return host.parse_usage(await self._transport.call("paddock.Guest/Usage", {}))

    async def shutdown(self, grace: float = 5.0) -> None:
        """End processes and runs in good order, before the sandbox stops."""
        message = {"graceMs": round(grace * 1000)}
        await self._transport.call(
            "paddock.Guest/Shutdown", message, timeout=grace + _SHUTDOWN_SLACK
        )

    async def let_go(self) -> None:
        """Have it leave its socket, until it finds a letter beside it (`guest.door`)."""
        await self._transport.call("paddock.Guest/LetGo", {}, timeout=_LET_GO_S)
