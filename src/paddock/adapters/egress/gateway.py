"""The control plane's end of the conversation with the gateway, which it starts if need be."""

import asyncio
import contextlib
import fcntl
import os
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from paddock.adapters.egress.authority import Authority, authorities
from paddock.adapters.egress.config import EgressConfig
from paddock.domain.broker.models import Prices
from paddock.domain.egress import EgressPolicy, OnBlock
from paddock.domain.errors import Broken, TooLarge, Unavailable
from paddock.gateway import protocol
from paddock.gateway.protocol import Channel, Message, RuleText
from paddock.ports.egress import (
    Credential,
    CredentialUse,
    Flow,
    FlowBatch,
    ModelUse,
    Verdict,
    Wanted,
)

_ANSWER_S = 10.0
_PAUSE_S = 0.05
_SOCKET_FD = 3


@dataclass(slots=True)
class HostGateway:
    """The gateway of one installation on this host; other processes may talk to it as well."""

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

    @property
    def door(self) -> Path:
        return self.place / "egress.sock"

    async def attach(
        self, ref: str, sockets: Sequence[socket.socket], policy: EgressPolicy, shown: str = ""
    ) -> None:
        said = protocol.Attach(ref, _texts(policy), shown, self._ask_s(policy))
        await self._do(said, sockets)

    async def change(self, ref: str, policy: EgressPolicy, shown: str = "") -> bool:
        said = protocol.SetRules(ref, _texts(policy), shown, self._ask_s(policy))
        answer = await self._ask(said)
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
        told = [protocol.Credential(**_fields(each)) for each in credentials]
        answer = await self._ask(protocol.SetCredentials(ref, mark, told))
        return isinstance(answer, protocol.Done)

    async def set_prices(self, prices: Prices) -> None:
        self._prices = prices
        if self._channel is not None or self.is_there():
            await self._do(_told(prices))

    async def marks(self) -> dict[str, str] | None:
        if self._channel is None and not self.is_there():
            return None
        here = await self._here_now()
        return dict.fromkeys(here.attached, "") | here.marks

    async def detach(self, ref: str) -> None:
        if self._channel is None and not self.is_there():
            return
        await self._do(protocol.Detach(ref))

    async def attached(self) -> frozenset[str]:
        if self._channel is None and not self.is_there():
            return frozenset()
        return frozenset((await self._here_now()).attached)

    async def _here_now(self) -> protocol.Here:
        answer = await self._ask(protocol.Hello())
        if not isinstance(answer, protocol.Here):
            raise Broken(f"the egress gateway does not say whom it serves: {answer}")
        return answer

    async def drain(self, gateway: str, stored: int) -> FlowBatch | None:
        """None where there is no gateway, or it has seen nothing."""
        if self._channel is None and not self.is_there():
            return None
        answer = await self._ask(protocol.Drain(gateway, stored))
        if not isinstance(answer, protocol.Flows) or self._here is None:
            raise Broken(f"the egress gateway does not say what it saw: {answer}")
        return batch_of(self._here.id, answer)

    async def wanted(self) -> Sequence[Wanted]:
        if self._channel is None and not self.is_there():
            return ()
        answer = await self._ask(protocol.Ask())
        if not isinstance(answer, protocol.Waiting):
            raise Broken(f"the egress gateway does not say what is asked for: {answer}")
        return [_wanted(each) for each in answer.held]

    async def settle(self, wanted: Wanted, verdict: Verdict) -> None:
        fields = (wanted.ref, wanted.host, wanted.port, verdict.allowed, verdict.why, verdict.for_s)
        await self._do(protocol.Settle(*fields))

    def _ask_s(self, policy: EgressPolicy) -> float:
        return self.config.ask_timeout_s if policy.on_block is OnBlock.ASK else 0.0

    def is_there(self) -> bool:
        """Whether one answers, without starting it."""
        with contextlib.suppress(OSError), _connected(self.door):
            return True
        return False

    async def aclose(self) -> None:
        """The gateway goes on, unless there is nobody left to serve."""
        async with self._turn:
            self._let_go()

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
            return await _exchanged(channel, said, sockets)
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
        connection = await asyncio.to_thread(self._connect_or_start)
        channel = self._channel = Channel(connection)
        here = await _exchanged(channel, protocol.Hello())
        if isinstance(here, protocol.Here) and here.version != protocol.VERSION:
            # Those that are connected stay so; whoever attaches next does it to a new one.
            await _exchanged(channel, protocol.Retire())
            self._let_go()
            self.door.unlink(missing_ok=True)
            return await self._open()
        if not isinstance(here, protocol.Here):
            raise Broken(f"what answers at {self.door} is no egress gateway")
        self._here = here
        known = await asyncio.to_thread(authorities, self.config.certificates)
        own = self.authority or Authority("", "")
        await _exchanged(channel, protocol.Trust(known, own.certificate, own.key))
        if self._prices is not None:
            await _exchanged(channel, _told(self._prices))
        if self.closed_ports or self.config.hosts or not here.attached:
            await _exchanged(channel, self._configuration)
        return channel

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

    def _connect_or_start(self) -> socket.socket:
        try:
            return _connection(self.door)
        except OSError:
            with _alone(self.place):
                with contextlib.suppress(OSError):
                    return _connection(self.door)  # another process was quicker
                self._start()
                return _connection(self.door)

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


async def _exchanged(
    channel: Channel, said: Message, sockets: Sequence[socket.socket] = ()
) -> protocol.Anything:
    try:
        async with asyncio.timeout(_ANSWER_S):
            await channel.send(said, sockets)
            return (await channel.receive())[0]
    except TimeoutError as error:
        raise Unavailable(f"the egress gateway did not answer for {_ANSWER_S:.0f} s") from error


def _connection(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        made.connect(str(path))
    except OSError:
        made.close()
        raise
    return made


@contextlib.contextmanager
def _connected(path: Path) -> Iterator[None]:
    with contextlib.closing(_connection(path)):
        yield


@contextlib.contextmanager
def _alone(place: Path) -> Iterator[None]:
    """One process at a time starts a gateway."""
    descriptor = os.open(place / "egress.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _texts(policy: EgressPolicy) -> list[RuleText]:
    return [RuleText(rule.text, rule.source) for rule in policy.rules]


def batch_of(gateway: str, told: protocol.Flows) -> FlowBatch | None:
    """None when there is nothing in it."""
    if not (told.flows or told.uses or told.models or told.dropped):
        return None
    flows = tuple(_flow(each) for each in told.flows)
    uses = tuple(_use(each) for each in told.uses)
    models = tuple(_model(each) for each in told.models)
    return FlowBatch(gateway, told.number, flows, told.dropped, uses, models, told.more)


def _flow(told: protocol.Flow) -> Flow:
    fields = msgspec.structs.asdict(told)
    return Flow(ref=fields.pop("sandbox"), sandbox=fields.pop("shown"), **fields)


def _use(told: protocol.CredentialUse) -> CredentialUse:
    fields = msgspec.structs.asdict(told)
    return CredentialUse(ref=fields.pop("sandbox"), sandbox=fields.pop("shown"), **fields)


def _model(told: protocol.ModelUse) -> ModelUse:
    fields = msgspec.structs.asdict(told)
    return ModelUse(ref=fields.pop("sandbox"), sandbox=fields.pop("shown"), **fields)


def _told(prices: Prices) -> protocol.SetPrices:
    table = {
        model: (price.input, price.output, price.cache_read, price.cache_write)
        for model, price in prices.table.items()
    }
    return protocol.SetPrices(table)


def _fields(credential: Credential) -> dict[str, Any]:
    return {name: getattr(credential, name) for name in protocol.Credential.__struct_fields__}


def _wanted(told: protocol.Held) -> Wanted:
    fields = msgspec.structs.asdict(told)
    return Wanted(ref=fields.pop("sandbox"), sandbox=fields.pop("shown"), **fields)
