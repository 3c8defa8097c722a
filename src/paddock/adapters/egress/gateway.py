"""The control plane's end of the conversation with the gateway, which it starts if need be."""

import asyncio
import contextlib
import fcntl
import os
import signal
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from paddock.adapters.egress.authority import Authority, authorities
from paddock.adapters.egress.config import EgressConfig
from paddock.adapters.egress.elders import Elder, Elders
from paddock.adapters.egress.talk import connection, exchanged
from paddock.adapters.egress.told import batch_of, credential_of, prices_of, texts, wanted_of
from paddock.domain.broker.models import Prices
from paddock.domain.egress import EgressPolicy, OnBlock
from paddock.domain.errors import Broken, TooLarge, Unavailable
from paddock.gateway import protocol
from paddock.gateway.protocol import Channel, Message
from paddock.ports.egress import Credential, FlowBatch, Verdict, Wanted

_PAUSE_S = 0.05
_SOCKET_FD = 3


@dataclass(slots=True)
class HostGateway:
    """The gateway of one installation on this host; other processes may talk to it as well.

    Those of other versions, which it follows, hear of whatever changes as long as they are there.
    """

    place: Path
    """The installation's volatile directory."""
    config: EgressConfig
    authority: Authority | None = None
    """Without one no TLS is looked into; model routes need none."""
    closed_ports: frozenset[int] = frozenset()
    """The control plane's own."""
    _channel: Channel | None = None
    _here: protocol.Here | None = None
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _started: int | None = None
    _prices: Prices | None = None
    _elders: Elders = field(init=False)
    _drained: int = 0
    """How often, so that each of them has its turn."""
    _unsettled: set[str] = field(default_factory=set)
    """Sandboxes that are to be given their credentials anew: one that is retired was not told, or
    more was spent there than this gateway knows."""

    def __post_init__(self) -> None:
        self._elders = Elders(self.place)

    @property
    def door(self) -> Path:
        return self.place / "egress.sock"

    async def attach(
        self, ref: str, sockets: Sequence[socket.socket], policy: EgressPolicy, shown: str = ""
    ) -> None:
        said = protocol.Attach(ref, texts(policy), shown, self._ask_s(policy))
        await self._do(said, sockets)
        rules = protocol.SetRules(said.sandbox, said.rules, said.shown, said.ask_s)
        await self._elders.each(lambda each: each.tell(rules))

    async def change(self, ref: str, policy: EgressPolicy, shown: str = "") -> bool:
        said = protocol.SetRules(ref, texts(policy), shown, self._ask_s(policy))
        answer = await self._ask(said)
        await self._elders.each(lambda each: each.tell(said))
        return isinstance(answer, protocol.Done)

    @property
    def looks_into_tls(self) -> bool:
        return self.authority is not None

    async def close_ports(self, ports: frozenset[int]) -> None:
        """Whatever its rules, no sandbox reaches these of this host either."""
        self.closed_ports |= ports
        if self._channel is not None or self.is_there():
            await self._do(self._configuration)

    async def give(self, ref: str, mark: str, credentials: Sequence[Credential]) -> bool:
        told = [credential_of(each) for each in credentials]
        said = protocol.SetCredentials(ref, mark, told)
        owed = self._unsettled & {ref}
        self._unsettled -= owed  # what is noted from here on, these do not know of
        try:
            answer = await self._ask(said)
            owed = {ref}
            await self._elders.each(lambda each: each.tell(said))
        except BaseException:
            self._unsettled |= owed
            raise
        return isinstance(answer, protocol.Done)

    async def set_prices(self, prices: Prices) -> None:
        self._prices = prices
        if self._channel is not None or self.is_there():
            await self._do(prices_of(prices))

    async def marks(self) -> dict[str, str] | None:
        if self._channel is None and not self.is_there():
            return None
        here = await self._here_now()
        unmarked = dict.fromkeys(here.attached, "")
        again = {ref: "" for ref in self._unsettled if ref in unmarked}
        return unmarked | here.marks | again

    async def detach(self, ref: str) -> None:
        said = protocol.Detach(ref)
        self._unsettled.discard(ref)
        try:
            if self._channel is not None or self.is_there():
                await self._do(said)
        finally:
            await self._elders.each(lambda each: each.cut(ref))

    async def attached(self) -> frozenset[str]:
        if self._channel is None and not self.is_there():
            return frozenset()
        return frozenset((await self._here_now()).attached)

    async def _here_now(self) -> protocol.Here:
        answer = await self._ask(protocol.Hello())
        if not isinstance(answer, protocol.Here):
            raise Broken(f"the egress gateway does not say whom it serves: {answer}")
        return answer

    async def drain(self, stored: Mapping[str, int]) -> FlowBatch | None:
        """None where there is no gateway, or none has seen anything."""
        elders = self._elders.all()
        for each in elders:
            self._unsettled |= each.charged(stored)
        self._drained += 1
        turns = [*elders, None]
        for n in range(len(turns)):
            elder = turns[(self._drained + n) % len(turns)]
            if elder is None:
                batch = await self._own(stored)
            else:
                batch = await self._elders.drain(stored, elder)
            if batch is not None:
                return batch
        return None

    async def _own(self, stored: Mapping[str, int]) -> FlowBatch | None:
        if self._channel is None and not self.is_there():
            return None
        here = self._here or await self._here_now()
        answer = await self._ask(protocol.Drain(here.id, stored.get(here.id, 0)))
        if not isinstance(answer, protocol.Flows) or self._here is None:
            raise Broken(f"the egress gateway does not say what it saw: {answer}")
        return batch_of(self._here.id, answer)

    async def wanted(self) -> Sequence[Wanted]:
        held: list[protocol.Held] = []
        if self._channel is not None or self.is_there():
            answer = await self._ask(protocol.Ask())
            if not isinstance(answer, protocol.Waiting):
                raise Broken(f"the egress gateway does not say what is asked for: {answer}")
            held += answer.held
        for told in await self._elders.each(Elder.held):
            held += told
        return [wanted_of(each) for each in held]

    async def settle(self, wanted: Wanted, verdict: Verdict) -> None:
        fields = (wanted.ref, wanted.host, wanted.port, verdict.allowed, verdict.why, verdict.for_s)
        said = protocol.Settle(*fields)
        await self._do(said)
        await self._elders.each(lambda each: each.ask(said))

    def _ask_s(self, policy: EgressPolicy) -> float:
        return self.config.ask_timeout_s if policy.on_block is OnBlock.ASK else 0.0

    def is_there(self) -> bool:
        """Whether there is one, without starting it."""
        try:
            connection(self.door, within_s=0).close()
        except OSError:
            return False
        except Unavailable:
            return True  # one that hangs: who asks it is told so
        return True

    async def aclose(self) -> None:
        """The gateway goes on, unless there is nobody left to serve."""
        async with self._turn:
            self._let_go()
        self._elders.close()

    async def _do(self, said: Message, sockets: Sequence[socket.socket] = ()) -> None:
        answer = await self._ask(said, sockets)
        if isinstance(answer, protocol.Failed):
            raise Broken(f"the egress gateway could not do as asked: {answer.why}")

    async def _ask(self, said: Message, sockets: Sequence[socket.socket] = ()) -> protocol.Anything:
        """One that ended meanwhile is started anew, and asked again."""
        async with self._turn:
            for tries_left in (2, 1, 0):
                answer = await self._try(said, sockets, last=not tries_left)
                if answer is not None:
                    return answer
                await asyncio.sleep(_PAUSE_S)  # one that was killed still has its door for a moment
        raise AssertionError

    async def _try(
        self, said: Message, sockets: Sequence[socket.socket], *, last: bool
    ) -> protocol.Anything | None:
        """The answer; None when there was nobody to give one, and it may be tried again."""
        try:
            channel = self._channel or await self._open()
            return await exchanged(channel, said, sockets)
        except protocol.TooLarge as error:
            self._let_go()
            raise TooLarge(
                f"the egress gateway cannot be told: {error}",
                remediation="give the sandbox fewer or shorter rules, bindings and values",
            ) from error
        except (EOFError, OSError, msgspec.MsgspecError) as error:
            self._let_go()
            if last:
                raise Unavailable(f"the egress gateway is silent: {error}") from error
            return None
        except BaseException:
            self._let_go()  # the answer to this would be taken for that to the next
            raise

    async def _open(self) -> Channel:
        made, door = await asyncio.to_thread(self._connect_or_start)
        channel = self._channel = Channel(made)
        here = await exchanged(channel, protocol.Hello())
        if isinstance(here, protocol.Here) and here.version != protocol.VERSION:
            self._check_not_followed(here.version)
            # Those that are connected stay so; whoever attaches next does it to a new one.
            await asyncio.to_thread(self._set_aside, here.id, door)
            self._let_go()
            await self._elders.each(Elder.greet)
            return await self._open()
        if not isinstance(here, protocol.Here):
            raise Broken(f"what answers at {self.door} is no egress gateway")
        self._here = here
        known = await asyncio.to_thread(authorities, self.config.certificates)
        own = self.authority or Authority("", "")
        await exchanged(channel, protocol.Trust(known, own.certificate, own.key))
        if self._prices is not None:
            await exchanged(channel, prices_of(self._prices))
        if self.closed_ports or self.config.hosts or not here.attached:
            await exchanged(channel, self._configuration)
        return channel

    def _check_not_followed(self, version: int) -> None:
        """One that begins takes over whatever it finds. One that had a gateway, and finds a newer
        one in its place, was followed: two that retire each other's would do so for ever."""
        if self._here is not None and version > protocol.VERSION:
            raise Unavailable(
                f"a newer control plane has taken over: its egress gateway has version {version}, "
                f"this one needs {protocol.VERSION}",
                remediation="end this control plane, or start it anew to take over itself",
            )

    @property
    def _configuration(self) -> protocol.Configure:
        return protocol.Configure(dict(self.config.hosts), sorted(self.closed_ports))

    def _let_go(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._started is not None:
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(self._started, os.WNOHANG)[0] == 0:
                    return
            self._started = None

    def _connect_or_start(self) -> tuple[socket.socket, int]:
        """And which door it was."""
        with contextlib.suppress(OSError):
            return connection(self.door), self.door.stat().st_ino
        with _alone(self.place):
            with contextlib.suppress(OSError):  # another process was quicker
                return connection(self.door), self.door.stat().st_ino
            self._start()
            return connection(self.door), self.door.stat().st_ino

    def _set_aside(self, gateway: str, door: int) -> None:
        """It is found by another door from now on, also by who comes after us."""
        with _alone(self.place), contextlib.suppress(FileNotFoundError):
            if self.door.stat().st_ino == door:  # or another process was quicker
                self.door.rename(self._elders.door(gateway))

    def _start(self) -> None:
        self.door.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(str(self.door))
            self.door.chmod(0o600)
            listener.listen(64)
            log = str(self.place / "egress.log")
            self._started = os.posix_spawn(
                sys.executable,
                [
                    sys.executable,
                    "-m",
                    "paddock.gateway",
                    f"--socket-fd={_SOCKET_FD}",
                    f"--uid={self.config.gateway_uid}",
                    f"--of={self.place}",
                ],
                {"PATH": os.environ.get("PATH", ""), "LANG": "C.UTF-8", "MALLOC_ARENA_MAX": "2"},
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
                    (os.POSIX_SPAWN_DUP2, 1, 2),
                    (os.POSIX_SPAWN_DUP2, listener.fileno(), _SOCKET_FD),
                ],
                setsid=True,
                setsigmask=[],
                setsigdef=[signal.SIGINT, signal.SIGTERM, signal.SIGPIPE],
            )


@contextlib.contextmanager
def _alone(place: Path) -> Iterator[None]:
    """One process at a time starts a gateway."""
    descriptor = os.open(place / "egress.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
