"""What the control plane and the gateway say to each other, each answered in order.

A message is one packet of JSON. A large one is several, because a system sends and receives only
so much at once: the first begins with a zero byte and the size of all. Whoever says hello has to be
understood by those of other versions, so what is small stays as it was.
"""

import asyncio
import os
import socket
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

VERSION = 6
LINGERS = 6
"""From this version on one that is retired is still told of changes, and tells what it saw."""
LARGEST = 64 << 20
"""Of a message. All that may be lent to a sandbox has less."""
PIECE = 128 << 10
"""Of it in one packet; systems send at least 200 KiB unless they are told otherwise."""
_PACKET = 1 << 20
"""What is read at once: what gateways before version 5 said came in one."""
_HEAD = struct.Struct("!BQ")
MOST_SOCKETS = 4
"""In their order: transparent, proxy, DNS by TCP, DNS by UDP."""


class Message(msgspec.Struct, tag=True, frozen=True):
    """Anything that is said."""


class Hello(Message, frozen=True):
    """The first word of a control plane."""

    version: int = VERSION


class Here(Message, frozen=True):
    """The gateway's answer: which one it is, and whom it serves."""

    version: int
    id: str
    attached: list[str]
    marks: dict[str, str] = {}
    """Which credentials those who have some were given."""


class Configure(Message, frozen=True):
    """What holds for all sandboxes."""

    hosts: dict[str, str]
    """Names that are not asked anybody for."""
    closed_ports: list[int]
    """Of this host: the control plane's own."""


class Trust(Message, frozen=True):
    """Whom the gateway believes, and who it is to sandboxes where it has to be somebody else."""

    authorities: str
    """Certificates, in PEM, of those who vouch for servers outside."""
    certificate: str = ""
    """The installation's own authority, if sandboxes trust it."""
    key: str = ""

    def __repr__(self) -> str:
        return "Trust(…)"


class Credential(msgspec.Struct, frozen=True):
    """A value, and where and how it is used. It is held in memory, and shown nowhere."""

    secret: str
    placeholder: str
    hosts: list[str]
    way: str
    value: str = ""
    """Empty when there is none; `lacks` says why then."""
    header: str = ""
    format: str = ""
    own: bool = False
    """The header stands in place of what a request has of it, for the nearest of the hosts that
    have some, and what has no placeholder may come back."""
    user: str = ""
    parameter: str = ""
    expires_at: float | None = None
    lacks: str = ""
    remedy: str = ""
    """Who can do what, for a program that needs it and cannot have it."""
    route: str = ""
    """Of a model API: the first label of the name that it has inside."""
    dialect: str = ""
    base_path: str = ""
    plain: bool = False
    """The API speaks plain HTTP. An operator has set the route, so its host may be private."""
    account: str = ""
    """Whose spending it counts to; several sandboxes may share one."""
    limit: float | None = None
    """In dollars; None is no limit."""
    spent: float = 0.0
    """By the account before."""

    def __repr__(self) -> str:
        return f"Credential({self.secret})"


class SetCredentials(Message, frozen=True):
    """All that a sandbox has from now on, under a mark that tells them from others."""

    sandbox: str
    mark: str
    credentials: list[Credential]


class SetPrices(Message, frozen=True):
    """Of models, for a million tokens each: input, output, read from and written to a cache."""

    prices: dict[str, tuple[float, float, float, float]]


class RuleText(msgspec.Struct, frozen=True, array_like=True):
    """A rule and whose it is."""

    text: str
    source: str
    by_operator: bool = False


class Attach(Message, frozen=True):
    """A sandbox, with its sockets; whatever it had before is closed."""

    sandbox: str
    rules: list[RuleText]
    shown: str = ""
    """What people call it."""
    ask_s: float = 0.0
    """How long a connection that no rule is about is held at most; 0 refuses it at once."""


class SetRules(Message, frozen=True):
    """From now on; connections that they do not allow are closed."""

    sandbox: str
    rules: list[RuleText]
    shown: str = ""
    ask_s: float = 0.0


class Detach(Message, frozen=True):
    """Absent is success."""

    sandbox: str


class Retire(Message, frozen=True):
    """Accept nothing any more; end with the last connection, once all is told of it."""


class Drain(Message, frozen=True):
    """What was recorded is asked for; all up to `ack` of that gateway was stored."""

    gateway: str = ""
    ack: int = 0


class Ask(Message, frozen=True):
    """Which places connections are held for is asked for."""


class Settle(Message, frozen=True):
    """Somebody has answered: connections that are held for the place go on or are refused, and so
    are those of the next `for_s`."""

    sandbox: str
    host: str
    port: int
    allowed: bool
    why: str
    """Whose answer it is, for the record and for who is refused."""
    for_s: float


class Done(Message, frozen=True):
    """It is as was asked."""


class Failed(Message, frozen=True):
    """It is not, and why."""

    why: str


class Flow(msgspec.Struct, frozen=True):
    """Connections of one sandbox to one place with one outcome, in one stretch of time."""

    sandbox: str
    host: str
    port: int
    allowed: bool
    rule: str
    source: str
    why: str
    connections: int
    bytes_up: int
    bytes_down: int
    first_at: float
    last_at: float
    shown: str = ""


class CredentialUse(msgspec.Struct, frozen=True):
    """Requests of one sandbox to one host that one credential was put into, or was lacking for."""

    sandbox: str
    secret: str
    host: str
    port: int
    way: str
    rule: str
    """What allowed the host."""
    lacks: str
    """Why it was not put in; empty when it was."""
    count: int
    first_at: float
    last_at: float
    shown: str = ""


class ModelUse(msgspec.Struct, frozen=True):
    """Answers of one model to one sandbox, in one stretch of time."""

    sandbox: str
    account: str
    route: str
    model: str
    guessed: bool
    """Nobody has said how many tokens they were."""
    requests: int
    input: int
    output: int
    cache_read: int
    cache_write: int
    cost: float
    first_at: float
    last_at: float
    shown: str = ""
    assumed: bool = False
    """The table has no price for it."""
    reasoning: int = 0
    """Of the output."""


class Flows(Message, frozen=True):
    """A batch, told again until it is acknowledged. `dropped` were too many to be told."""

    number: int
    flows: list[Flow]
    dropped: int = 0
    uses: list[CredentialUse] = []
    models: list[ModelUse] = []
    more: bool = False
    """There is another at once."""


class Held(msgspec.Struct, frozen=True):
    """A place that connections of a sandbox wait for."""

    sandbox: str
    host: str
    port: int
    attempts: int
    """Since it was last told."""
    connections: int
    """That are held now; none when they gave up before anybody was told."""
    shown: str = ""


class Waiting(Message, frozen=True):
    """All that are held, every time: whoever forgets what it was told is told again."""

    held: list[Held]


Policy = Attach | SetRules | SetCredentials | Detach
Asking = Ask | Settle
Said = Hello | Configure | Trust | SetPrices | Policy | Asking | Retire | Drain
Answer = Here | Done | Failed | Flows | Waiting
Anything = Said | Answer

_decoder = msgspec.json.Decoder(Anything)
_encoder = msgspec.json.Encoder()


_Parts = Sequence[bytes | memoryview]


class TooLarge(OSError):
    """More than a message may have. What was to be sent was not begun."""

    def __init__(self, what: str, size: int) -> None:
        super().__init__(f"{what} has {size} bytes; a message has at most {LARGEST}")


class Channel:
    """One end of a conversation: messages, with sockets that travel along."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        with suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * PIECE)
        self._socket = connection
        self._loop = asyncio.get_running_loop()

    async def send(self, message: Message, sockets: Sequence[socket.socket] = ()) -> None:
        content = memoryview(_encoder.encode(message))
        if len(content) > LARGEST:
            raise TooLarge(type(message).__name__, len(content))
        head = [_HEAD.pack(0, len(content))] if len(content) > PIECE else []
        await self._put([*head, content[:PIECE]], sockets)
        for start in range(PIECE, len(content), PIECE):
            await self._put([content[start : start + PIECE]])

    async def _put(self, parts: _Parts, sockets: Sequence[socket.socket] = ()) -> None:
        while True:
            try:
                socket.send_fds(self._socket, parts, [each.fileno() for each in sockets])
                return
            except BlockingIOError:
                await self._ready(self._loop.add_writer, self._loop.remove_writer)

    async def receive(self) -> tuple[Anything, list[socket.socket]]:
        """EOFError when the other side has gone."""
        content, sockets = await self._packet()
        try:
            if content[0] == 0:
                content = await self._whole(content)
            return _decoder.decode(content), sockets
        except BaseException:
            for each in sockets:
                each.close()
            raise

    async def _whole(self, first: bytes) -> bytes:
        """The message that begins with this packet."""
        if len(first) < _HEAD.size:
            raise OSError("a packet is the beginning of nothing")
        size: int = _HEAD.unpack_from(first)[1]
        if size > LARGEST:
            raise TooLarge("what the other side sends", size)
        parts, missing = [first[_HEAD.size :]], size - len(first) + _HEAD.size
        while missing > 0:
            part, sockets = await self._packet()
            for each in sockets:
                each.close()
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    async def _packet(self) -> tuple[bytes, list[socket.socket]]:
        while True:
            try:
                content, numbers, flags, _ = socket.recv_fds(self._socket, _PACKET, MOST_SOCKETS)
                break
            except BlockingIOError:
                await self._ready(self._loop.add_reader, self._loop.remove_reader)
            except ConnectionError as error:
                raise EOFError("the other side has gone") from error
        for number in numbers:
            os.set_inheritable(number, False)
        sockets = [socket.socket(fileno=number) for number in numbers]
        if content and not flags & socket.MSG_TRUNC:
            return content, sockets
        for each in sockets:
            each.close()
        if content:
            raise OSError(f"a packet has more than {_PACKET} bytes")
        raise EOFError("the other side has gone")

    async def _ready(self, add: Callable[..., None], remove: Callable[[int], object]) -> None:
        ready = asyncio.Event()
        add(self._socket.fileno(), ready.set)
        try:
            await ready.wait()
        finally:
            remove(self._socket.fileno())

    def close(self) -> None:
        self._socket.close()
