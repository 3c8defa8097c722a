"""Commands in a sandbox: run to their end, or started and followed from any offset."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial

from paddock.domain.errors import (
    Conflict,
    InvalidRequest,
    NotFound,
    TimedOut,
    Unauthenticated,
    Unavailable,
)
from paddock.domain.guest import CommandResult
from paddock.domain.ids import is_id, new_id
from paddock.domain.team import Principal, Scope
from paddock.guest_client.runs import Gap, Run, RunExit, Told
from paddock.ports.clock import Clock
from paddock.ports.store import ANY_TEAM, Store
from paddock.services import shells
from paddock.services.command_log import CommandLog
from paddock.services.inside import Entered, Inside
from paddock.services.policies import Policies

COMMAND_PREFIX = "cmd"
_NOT_STARTED = {"reason": "not_started"}
"""How a command ended that the guest refused: there is no such program, user or directory."""
_REFUSED = (InvalidRequest, Unauthenticated)
DEFAULT_TIMEOUT_S = 60.0
MAX_TIMEOUT_S = 3600.0
MAX_BACKGROUND_S = 86400.0
_RECONNECTS = 5
_WAIT_S = 25.0
_PAUSE_S = 0.02
"""Before asking again: a guest that has nothing to tell may say so at once, for ever."""


@dataclass(frozen=True, slots=True)
class Command:
    """A program and what it starts with. Arguments reach it as they are, through no shell."""

    argv: tuple[str, ...]
    cwd: str = ""
    user: str = ""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    stdin: bytes = field(default=b"", repr=False)
    timeout_s: float | None = None
    login: bool = False
    """By way of a login shell, which brings version managers."""

    @property
    def inside(self) -> tuple[str, ...]:
        """What the guest is asked to run."""
        return shells.login(self.argv) if self.login else self.argv


@dataclass(frozen=True, slots=True)
class Background:
    """How a command that is not waited for differs."""

    terminal: tuple[int, int] | None = None
    """Columns and rows."""
    keep_stdin_open: bool = False
    key: str = ""
    """The same key is the same command, until it is forgotten."""
    drop_when_full: bool = False
    """Rather than wait for a reader, let output go that is more than is kept."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Output of one stream at its offset; `lost` bytes before it are not there any more."""

    stream: str
    offset: int
    data: bytes
    lost: int = 0

    @property
    def end(self) -> int:
        return self.offset + len(self.data)


class Commands:
    """The commands of a team's sandboxes."""

    def __init__(self, inside: Inside, store: Store, clock: Clock, policies: Policies) -> None:
        self._policies = policies
        self._inside = inside
        self._store = store
        self._clock = clock
        self.log = CommandLog(store, clock)

    async def run(
        self, principal: Principal, name: str, command: Command, max_output: int = 8 << 20
    ) -> CommandResult:
        """To its end. It ends with its caller, and at its deadline with exit code 124."""
        timeout = _checked(command, DEFAULT_TIMEOUT_S, MAX_TIMEOUT_S)
        assert timeout is not None
        command_id = new_id(COMMAND_PREFIX)
        async with self._inside.enter(principal, name, "command") as entered:
            await self._check(principal, entered, command)
            began = self._clock.now()
            note = self._note(principal, entered, command, command_id)
            noted = asyncio.create_task(note)
            try:
                result = await entered.guest.exec(
                    command.inside,
                    user=command.user or None,
                    cwd=command.cwd or None,
                    env=command.env,
                    stdin=command.stdin,
                    timeout=timeout,
                    max_output=max_output,
                )
            except _REFUSED:
                await noted
                self.log.ended(principal, entered.sandbox, command_id, _NOT_STARTED)
                raise
            finally:
                await noted
            seconds = round(self._clock.now() - began, 3)
            how = {"exit_code": result.exit_code, "reason": result.reason, "seconds": seconds}
            self.log.ended(principal, entered.sandbox, command_id, how)
            return result

    async def run_once(
        self, principal: Principal, name: str, command: Command, *, key: str, max_output: int
    ) -> CommandResult:
        """To its end, once for all who ask with the same key, also after a restart. So that they
        can ask again, it goes on without its caller; at its deadline it ends with 124."""
        timeout = _checked(command, DEFAULT_TIMEOUT_S, MAX_TIMEOUT_S)
        background = Background(key=key, drop_when_full=True)
        bounded = replace(command, timeout_s=timeout)
        command_id, _ = await self.start(principal, name, bounded, background)
        pieces = self.follow(principal, name, command_id, {})
        return await collected(pieces, max_output)

    async def start(
        self, principal: Principal, name: str, command: Command, background: Background
    ) -> tuple[str, Run]:
        """Its id, and the command as it has begun. It goes on whoever goes away."""
        timeout = _checked(command, None, MAX_BACKGROUND_S)
        async with self._inside.enter(principal, name, "command") as entered:
            await self._check(principal, entered, command)
            command_id = await self._named(principal, entered, command, background)
            note = self._note(principal, entered, command, command_id, action="command.start")
            noted = asyncio.create_task(note)
            try:
                run = await entered.guest.runs.start(
                    command_id,
                    command.inside,
                    user=command.user or None,
                    cwd=command.cwd or None,
                    env=command.env,
                    stdin=command.stdin,
                    keep_stdin_open=background.keep_stdin_open,
                    terminal=background.terminal,
                    timeout=timeout,
                    drop_when_full=background.drop_when_full,
                    inbox=False,
                )
            except _REFUSED:
                await noted
                if not background.key:  # with a key, the same command may run already
                    self.log.ended(principal, entered.sandbox, command_id, _NOT_STARTED)
                raise
            finally:
                await noted
            here = entered.sandbox  # by its id: its name may change
            ended = partial(self._has_ended, principal, here.id, command_id)
            self.log.attend(here, command_id, ended)
            return command_id, run

    async def _check(self, principal: Principal, entered: Entered, command: Command) -> None:
        """By the policies that apply; it may take as long as somebody takes to approve."""
        where = {"cwd": command.cwd, "user": command.user}
        await self._policies.check(principal, entered.sandbox, command.argv, command.env, **where)

    async def _has_ended(self, principal: Principal, sandbox_id: str, command_id: str) -> bool:
        """Also with its sandbox, whose own end was told."""
        try:
            return (await self.get(principal, sandbox_id, command_id)).exit is not None
        except Conflict:
            found = await self._store.read(lambda tx: tx.sandboxes.get(ANY_TEAM, sandbox_id))
            if found is None or found.has_ended:
                return True
            raise

    async def _named(
        self, principal: Principal, entered: Entered, command: Command, background: Background
    ) -> str:
        """Its id. A key that is one already is known to the guest, which holds it against what was
        asked for before; any other key is given one."""
        key = background.key
        if not key or is_id(key, COMMAND_PREFIX):
            return key or new_id(COMMAND_PREFIX)
        asked = f"command {entered.sandbox.id} {asdict(command)!r} {background!r}"
        return await self._store.write(
            lambda tx: tx.keys.claim(
                principal.team_id,
                key,
                fingerprint=hashlib.sha256(asked.encode("utf-8", "surrogatepass")).hexdigest(),
                object_id=new_id(COMMAND_PREFIX),
                now=self._clock.wall(),
            )
        )

    async def get(self, principal: Principal, name: str, command_id: str) -> Run:
        async with self._at(principal, name, command_id, Scope.SANDBOXES_READ) as entered:
            run = await entered.guest.runs.get(command_id)
            self._tell_end(principal, entered, command_id, run.exit)
            return run

    async def list(self, principal: Principal, name: str) -> Sequence[Run]:
        async with self._inside.enter(principal, name, "", Scope.SANDBOXES_READ) as entered:
            return await entered.guest.runs.list()

    async def follow(
        self,
        principal: Principal,
        name: str,
        command_id: str,
        offsets: Mapping[str, int],
        *,
        follow: bool = True,
        known: Run | None = None,
    ) -> AsyncIterator[Piece | RunExit]:
        """Its output from these offsets on, all streams as they come, and at last how it ended.

        Who knows the command already saves a look at it.
        """
        async with self._at(principal, name, command_id, Scope.SANDBOXES_READ) as entered:
            run = known or await entered.guest.runs.get(command_id)
            places = {stream: offsets.get(stream, 0) for stream in run.streams}
            async for item in _following(entered, command_id, places, follow=follow):
                if isinstance(item, RunExit):
                    self._tell_end(principal, entered, command_id, item)
                yield item

    async def send_input(
        self, principal: Principal, name: str, command_id: str, data: bytes
    ) -> None:
        async with self._at(principal, name, command_id) as entered:
            await entered.guest.runs.send_input(command_id, data)

    async def close_input(self, principal: Principal, name: str, command_id: str) -> None:
        async with self._at(principal, name, command_id) as entered:
            await entered.guest.runs.close_input(command_id)

    async def resize(
        self, principal: Principal, name: str, command_id: str, size: tuple[int, int]
    ) -> None:
        async with self._at(principal, name, command_id) as entered:
            await entered.guest.runs.resize(command_id, *size)

    async def signal(self, principal: Principal, name: str, command_id: str, signal: str) -> None:
        async with self._at(principal, name, command_id) as entered:
            await entered.guest.runs.signal(command_id, signal)

    async def end(
        self, principal: Principal, name: str, command_id: str, grace_s: float = 5.0
    ) -> None:
        """SIGTERM, after the grace the whole tree is killed. Its record stays."""
        async with self._at(principal, name, command_id) as entered:
            await entered.guest.runs.end(command_id, grace_s)

    async def forget(self, principal: Principal, name: str, command_id: str) -> None:
        """An ended command's output and record may go."""
        async with self._at(principal, name, command_id) as entered:
            await entered.guest.runs.ack(command_id)

    @asynccontextmanager
    async def _at(
        self,
        principal: Principal,
        name: str,
        command_id: str,
        scope: Scope = Scope.SANDBOXES_WRITE,
    ) -> AsyncIterator[Entered]:
        if not is_id(command_id, COMMAND_PREFIX):
            raise NotFound(
                f"there is no command {command_id[:80]}",
                remediation=f"a command's id looks like {COMMAND_PREFIX}_…",
            )
        what = "" if scope is Scope.SANDBOXES_READ else "command"
        async with self._inside.enter(principal, name, what, scope) as entered:
            yield entered

    async def _note(
        self,
        principal: Principal,
        entered: Entered,
        command: Command,
        command_id: str,
        *,
        action: str = "command.run",
    ) -> None:
        """Only the program's name is noted: arguments may hold what nobody should read later."""
        detail = {"program": command.argv[0][:200], "user": command.user}
        await self.log.began(principal, entered.sandbox, command_id, action=action, detail=detail)

    def _tell_end(
        self, principal: Principal, entered: Entered, command_id: str, ended: RunExit | None
    ) -> None:
        if ended is not None:
            seconds = round(ended.ended_at - ended.started_at, 3)
            how = {"exit_code": ended.exit_code, "reason": ended.reason, "seconds": seconds}
            self.log.ended(principal, entered.sandbox, command_id, how, seen_by_all=True)


async def collected(pieces: AsyncIterator[Piece | RunExit], max_output: int) -> CommandResult:
    """All of it in memory, of each stream as much as was asked for."""
    kept = {"stdout": bytearray(), "stderr": bytearray()}
    truncated = False
    async for item in pieces:
        if isinstance(item, RunExit):
            out, err = (bytes(kept[stream]) for stream in ("stdout", "stderr"))
            return CommandResult(item.exit_code, out, err, item.reason, truncated)
        room = max_output - len(kept[item.stream])
        kept[item.stream] += item.data[:room]
        truncated |= len(item.data) > room or item.lost > 0
    raise Unavailable("the command's output broke off", remediation="ask again with the same key")


async def _following(
    entered: Entered, command_id: str, places: dict[str, int], *, follow: bool
) -> AsyncIterator[Piece | RunExit]:
    """A connection that breaks is taken up where it broke."""
    attempts = 0
    while True:
        try:
            wait_s = _WAIT_S if follow else 0.0
            told = await entered.guest.runs.read(command_id, places, wait_s=wait_s)
        except TimedOut:
            # Nobody can say anything while the sandbox is held still.
            await asyncio.sleep(_PAUSE_S)
            continue
        except Unavailable:
            attempts += 1
            if attempts > _RECONNECTS:
                raise
            await asyncio.sleep(0.05 * 2**attempts)
            continue
        attempts = 0
        for piece in _pieces(told):
            places[piece.stream] = piece.end
            yield piece
        if told.exit is not None:
            yield told.exit
            return
        if not told.output:
            if not follow:
                return
            await asyncio.sleep(_PAUSE_S)


def _pieces(told: Told) -> Iterator[Piece]:
    """A gap is told with the piece after it, or with an empty one at the end."""
    lost: dict[str, Gap] = {}
    for stream, event in told.output:
        if isinstance(event, Gap):
            start = lost[stream].start if stream in lost else event.start
            lost[stream] = Gap(start, event.end)
            continue
        gap = lost.pop(stream, None)
        yield Piece(stream, event.offset, event.data, gap.end - gap.start if gap else 0)
    for stream, gap in lost.items():
        yield Piece(stream, gap.end, b"", gap.end - gap.start)


def _checked(command: Command, default: float | None, most: float) -> float | None:
    if not command.argv or not command.argv[0]:
        raise InvalidRequest(
            "there is no command to run", remediation='give it as a list, such as ["ls", "-l"]'
        )
    timeout = default if command.timeout_s is None else command.timeout_s
    if timeout is not None and not 0 < timeout <= most:
        raise InvalidRequest(
            f"timeout_s is {timeout:g}; it must be more than 0 and at most {most:g}",
            remediation="run it in the background if it takes longer",
        )
    return timeout
