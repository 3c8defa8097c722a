"""The name inside TLS, against servers of several stacks. Issue: SNI check.

A client sends its first message in every form that a stack might tolerate. Whatever form makes a
server complete a handshake, the gateway has read the name in it and found it right.
"""

import asyncio
import itertools
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.gateway.fence import Fence
from paddock.gateway.inbound import Proxied
from paddock.gateway.journal import Journal
from paddock.gateway.outside import Outside
from paddock.gateway.protocol import RuleText
from tests.conftest import Need
from tests.gateway.tls_servers.programs import of_stack
from tests.harness.fuzz import fuzzed
from tests.upstreams import certificate

pytestmark = pytest.mark.timeout(300)
ALLOWED, FORBIDDEN = "allowed.example", "blocked.example"
_QUIET_S = 0.1
WARNING = bytes.fromhex("1503010002015a")
Rewrite = Callable[[bytes], Sequence[bytes]]
"""What is written instead of a client's first message, one piece at a time."""


@dataclass
class World:
    fence: Fence
    gate: int
    names: list[str] = field(default_factory=list)
    """Those that the servers in this process were asked for."""

    def rules(self, *texts: str) -> None:
        given = [RuleText(text, "test") for text in (*texts, "127.0.0.1/32:*")]
        self.fence.set_rules(given)


@pytest.fixture(scope="module")
async def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    both = tmp_path_factory.mktemp("tls") / "both.pem"
    both.write_bytes(certificate((ALLOWED, FORBIDDEN)))
    return both


@pytest.fixture(scope="module")
async def world() -> AsyncIterator[World]:
    outside = Outside()
    outside.hosts = {ALLOWED: "127.0.0.1"}
    fence = Fence("sbx_1", outside, Journal())
    loop = asyncio.get_running_loop()

    def client() -> asyncio.Protocol:
        return Proxied(fence).relay.client_side()

    gate = await loop.create_server(client, "127.0.0.1", 0)
    made = World(fence, gate.sockets[0].getsockname()[1])
    made.rules(f"{ALLOWED}:*")
    try:
        yield made
    finally:
        fence.close()
        gate.close()
        while fence.busy:
            await asyncio.sleep(0.01)


@asynccontextmanager
async def openssl(world: World, pem: Path, *, curve: str = "") -> AsyncIterator[int]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    context.sni_callback = lambda _tls, name, _context: world.names.append(name or "")
    if curve:
        context.set_ecdh_curve(curve)

    async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@dataclass
class Client:
    """OpenSSL's, whose messages are written down before they are sent."""

    name: str
    tls: ssl.SSLObject = field(init=False)
    incoming: ssl.MemoryBIO = field(default_factory=ssl.MemoryBIO)
    outgoing: ssl.MemoryBIO = field(default_factory=ssl.MemoryBIO)

    def __post_init__(self) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        name = self.name or None
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname=name)

    def says(self) -> bytes:
        """Empty once the handshake is complete."""
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            return self.outgoing.read()
        return b""


async def reaches(
    name: str,
    *place: str | int,
    through: int = 0,
    first: Rewrite,
    second: Rewrite | None = None,
    within_s: float = 20,
) -> bool:
    """Whether a handshake for the name completes; `through` is the gateway's port."""
    reader, writer = await asyncio.open_connection("127.0.0.1", through or place[1])
    try:
        async with asyncio.timeout(within_s):
            if through:
                writer.write("CONNECT {}:{} HTTP/1.1\r\n\r\n".format(*place).encode())
                await reader.readuntil(b"\r\n\r\n")
            return await _agrees(Client(name), reader, writer, [first, second])
    except (ConnectionError, ssl.SSLError, asyncio.IncompleteReadError, TimeoutError):
        return False
    finally:
        writer.transport.abort()


async def _agrees(
    client: Client,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    rewrites: Sequence[Rewrite | None],
) -> bool:
    for number in itertools.count():
        said = client.says()
        if not said and client.tls.version() and client.tls.cipher() and _is_done(client):
            return True
        rewrite = rewrites[number] if number < len(rewrites) else None
        for piece in rewrite(said) if rewrite is not None else [said]:
            writer.write(piece)
            await asyncio.sleep(0)
        data = await reader.read(65536)
        if not data:
            return False
        client.incoming.write(data)
    return False


def _is_done(client: Client) -> bool:
    try:
        client.tls.do_handshake()
    except ssl.SSLError:
        return False
    return True


def as_it_is(said: bytes) -> Sequence[bytes]:
    return [said]


def record(kind: int, content: bytes, version: bytes = b"\3\1") -> bytes:
    return bytes([kind]) + version + len(content).to_bytes(2, "big") + content


@dataclass(frozen=True)
class Form:
    """How a client writes its first message down."""

    before: tuple[bytes, ...] = ()
    cuts: tuple[int, ...] = ()
    between: bytes = b""
    version: bytes = b"\3\1"
    pieces: tuple[int, ...] = ()
    decoy: bool = False

    def __call__(self, said: bytes) -> Sequence[bytes]:
        message = said[5:]
        edges = [0, *sorted({1 + cut % (len(message) - 1) for cut in self.cuts}), len(message)]
        parts = [record(0x16, message[a:b], self.version) for a, b in itertools.pairwise(edges)]
        decoy = Client(ALLOWED).says() if self.decoy else b""
        text = b"".join((*self.before, decoy)) + self.between.join(parts)
        ends = [0, *sorted({1 + end % (len(text) - 1) for end in self.pieces}), len(text)]
        return [text[a:b] for a, b in itertools.pairwise(ends)]


ODD = st.one_of(
    st.sampled_from(
        [
            WARNING,
            record(0x15, b"\1\0"),
            record(0x14, b"\1", b"\3\3"),
            record(0x16, b""),
            record(0x16, b"\0\0\0\0"),
            record(0x17, b""),
            record(0x17, b"early", b"\3\3"),
            record(0x18, b"\1\0\0"),
            bytes.fromhex("802e0100020015000000100100800300800700c0060040020080040080") + bytes(19),
            b"GET / HTTP/1.1\r\n\r\n",
            b"\r\n",
        ]
    ),
    st.builds(
        record, st.integers(0, 255), st.binary(max_size=6), st.binary(min_size=2, max_size=2)
    ),
    st.binary(min_size=1, max_size=6),
)
NUMBERS = st.lists(st.integers(0, 2000), max_size=4).map(tuple)
FORMS = st.builds(
    Form,
    before=st.lists(ODD, max_size=3).map(tuple),
    cuts=NUMBERS,
    between=st.one_of(st.just(b""), ODD),
    version=st.sampled_from([b"\3\1", b"\3\3", b"\3\0", b"\3\4", b"\2\0", b"\1\1", b"\x0f\xff"]),
    pieces=NUMBERS,
    decoy=st.booleans(),
)
STACKS = [
    "openssl",
    "gnutls",
    pytest.param("go", marks=pytest.mark.slow),
    pytest.param("rustls", marks=pytest.mark.soak),
]


@pytest.fixture(scope="module", params=STACKS)
def stack(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
async def port(stack: str, world: World, pem: Path, need: Need) -> AsyncIterator[int]:
    opening = openssl(world, pem) if stack == "openssl" else of_stack(stack, pem, need)
    async with opening as made:
        yield made


@pytest.mark.proves("P16")
@pytest.mark.parametrize("cuts", [(), (3,), (1, 60, 200)])
async def test_an_ordinary_client_reaches_the_name_that_it_connected_to(
    world: World, port: int, cuts: tuple[int, ...]
):
    through = world.gate
    form = Form(cuts=cuts, pieces=(2, 5, 77))
    assert await reaches(ALLOWED, ALLOWED, port, through=through, first=form)
    assert not await reaches(FORBIDDEN, ALLOWED, port, through=through, first=form)
    assert not await reaches("", ALLOWED, port, through=through, first=form)


SKIPPED = {
    "openssl": Form(before=(record(0x16, b""),)),
    "gnutls": Form(before=(record(0x14, b"\1", b"\3\3"),)),
    "go": Form(before=(WARNING,)),
    "rustls": Form(cuts=(3, 70)),
}
"""What each stack lets come with a ClientHello, and others do not."""


@pytest.mark.proves("P16")
@pytest.mark.parametrize("form", SKIPPED.values(), ids=SKIPPED)
async def test_what_a_server_skips_before_the_client_hello_opens_no_other_name(
    world: World, stack: str, port: int, form: Form
):
    through = world.gate
    if form == SKIPPED[stack]:
        assert await reaches(FORBIDDEN, ALLOWED, port, first=form), "without a gateway"
    assert not await reaches(FORBIDDEN, ALLOWED, port, through=through, first=form)
    in_two = replace(form, pieces=(0,))
    assert not await reaches(FORBIDDEN, ALLOWED, port, through=through, first=in_two)


@pytest.mark.proves("P16")
@fuzzed(50)
@given(form=FORMS, name=st.sampled_from([FORBIDDEN, ""]))
async def test_fuzzed_records_reach_no_name_that_was_not_judged(
    world: World, port: int, form: Form, name: str
):
    # Whoever waits for more to come has not agreed to anything.
    assert not await reaches(name, ALLOWED, port, through=world.gate, first=form, within_s=_QUIET_S)


@pytest.mark.proves("P16")
async def test_the_second_client_hello_that_a_server_asks_for_is_judged_as_well(
    world: World, pem: Path
):
    def other(said: bytes) -> Sequence[bytes]:
        assert ALLOWED.encode() in said
        return [said.replace(ALLOWED.encode(), FORBIDDEN.encode())]

    def together(said: bytes) -> Sequence[bytes]:
        """Sent ahead, before the server has asked for it."""
        return [said + Client(FORBIDDEN).says()]

    async with openssl(world, pem, curve="secp521r1") as port:
        place = (ALLOWED, port)
        world.names.clear()
        assert await reaches(ALLOWED, *place, through=world.gate, first=as_it_is)
        assert set(world.names) == {ALLOWED}
        assert len(world.names) == 2, "it was asked for"
        await reaches(ALLOWED, *place, through=world.gate, first=as_it_is, second=other)
        await reaches(ALLOWED, *place, through=world.gate, first=together)
        assert set(world.names) == {ALLOWED}
        await reaches(ALLOWED, *place, first=as_it_is, second=other)
        assert FORBIDDEN in world.names, "without a gateway the server goes by the second"


@pytest.mark.proves("P16")
@pytest.mark.parametrize("said", [b"\0binary", b"EHLO me\r\n", b"\x80\x2e\x00", b"\x03\0\0\x0b\6"])
async def test_what_is_no_tls_is_refused_where_a_rule_says_https(
    world: World, pem: Path, said: bytes
):
    async with openssl(world, pem) as port:
        world.rules(f"https://{ALLOWED}:{port}")
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", world.gate)
            writer.write(f"CONNECT {ALLOWED}:{port} HTTP/1.1\r\n\r\n".encode())
            await reader.readuntil(b"\r\n\r\n")
            writer.write(said)
            with pytest.raises(ConnectionError):
                await reader.read()
            assert await reaches(ALLOWED, ALLOWED, port, through=world.gate, first=as_it_is)
        finally:
            world.rules(f"{ALLOWED}:*")
            writer.transport.abort()
    world.fence.flush()
    whys = {flow.why for flow in world.fence.journal.drain(0).flows if not flow.allowed}
    assert "it does not begin as TLS, HTTP or SSH, as this port requires" in whys
