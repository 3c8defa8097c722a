"""Egress through a whole control plane: what survives its death, and what is told of it."""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from paddock.adapters.providers.local.layout import Layout
from tests.adapters.providers.docker.conftest import engine_host  # noqa: F401 - a fixture
from tests.harness.ports import free_port
from tests.upstreams import Upstream, upstream
from tests.wiring_server import Server, server

pytestmark = [
    pytest.mark.timeout(180),
]


async def command(made: Server, sandbox: str, *argv: str) -> tuple[int, str]:
    body = {"cmd": list(argv), "timeout_s": 20}
    answer = await made.admin.post(f"/v1/sandboxes/{sandbox}/exec", body)
    assert answer.status == 200, answer.body
    return answer["exit_code"], answer["stdout"] + answer["stderr"]


async def events(made: Server, sandbox: str) -> list[dict]:
    path = f"/v1/events?subject={sandbox}&kind=egress.allowed&kind=egress.denied&limit=500"
    return (await made.admin.get(path))["items"]


def gateway_pids(data: Path) -> list[int]:
    mark = f"--of={Layout.of(data).run}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if mark in (entry / "cmdline").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


NAMES = (
    *("model.example", "other.example", "app.example", "template.example", "own.example"),
    *("evil.example", "pypi.example"),
)


@pytest.fixture(scope="module")
async def there() -> AsyncIterator[Upstream]:
    async with upstream(*NAMES, "self.example") as made:
        yield made


def hosts(there: Upstream) -> dict[str, str]:
    names = {**dict.fromkeys(NAMES, there.address), "self.example": "127.0.0.1"}
    return {"egress__hosts": json.dumps(names)}


@pytest.fixture(scope="module")
async def shared(there: Upstream) -> AsyncIterator[Server]:
    async with server(**hosts(there)) as made:
        yield made
    async with asyncio.timeout(10):
        while gateway_pids(made.data):
            await asyncio.sleep(0.1)


@pytest.fixture
async def plane(shared: Server) -> Server:
    await shared.restart_if_ended()
    return shared


@pytest.fixture(scope="module")
async def everywhere(there: Upstream) -> AsyncIterator[Server]:
    """Listens in every way, on ports that the system chooses, and keeps a warm sandbox."""
    settings = {
        "server__tls_certificate": str(there.certificate),
        "server__tls_port": "0",
        "server__ssh_port": str(free_port()),
        "local__warm": json.dumps({"base": 1}),
    }
    async with server(port=0, **hosts(there), **settings) as made:
        yield made


async def ended(made: Server, path: str) -> str:
    """The output of a command that succeeds."""
    async with asyncio.timeout(30):
        while (found := await made.admin.get(path))["exit_code"] is None:
            await asyncio.sleep(0.05)
    assert found["exit_code"] == 0
    lines = made.admin.lines("GET", f"{path}/output?format=ndjson&follow=false")
    return "".join([line["data"] async for line in lines if line["type"] == "output"])


async def recorded(made: Server, sandbox: str, *wanted: tuple[str, str]) -> list[dict]:
    """The events of a sandbox, once there are some of these kinds and hosts."""
    async with asyncio.timeout(20):
        while True:
            told = await events(made, sandbox)
            if set(wanted) <= {(each["kind"], each["data"]["host"]) for each in told}:
                return told
            await asyncio.sleep(0.1)


@pytest.mark.proves("P16")
async def test_connections_survive_the_control_plane_and_policies_the_gateway(
    plane: Server, there: Upstream
):
    wish = {"name": "agent", "egress": {"preset": "", "rules": ["model.example"]}}
    sandbox = await plane.admin.post("/v1/sandboxes", wish)
    assert sandbox.status == 201, sandbox.body
    assert sandbox["egress"] == {"mode": "allowlist"}
    path = f"/v1/sandboxes/{sandbox['id']}"
    stream = ["curl", "-sS", "http://model.example/until?restarted"]
    run = await plane.admin.post(f"{path}/commands", {"cmd": stream})
    await there.was_asked("/until?restarted")
    (gateway,) = gateway_pids(plane.data)

    await plane.kill()
    await plane.start()
    assert gateway_pids(plane.data) == [gateway]
    there.end_streams("restarted")
    streamed = await ended(plane, f"{path}/commands/{run['id']}")
    assert streamed == "tick\n" * (len(streamed) // 5)
    code, said = await command(plane, "agent", "curl", "-sS", "http://model.example/x")
    assert (code, said) == (0, "GET model.example /x 0 \n")

    # A gateway takes with it what is not on record.
    allowed, denied = ("egress.allowed", "model.example"), ("egress.denied", "other.example")
    async with asyncio.timeout(20):
        while _received(await recorded(plane, sandbox["id"], allowed)) <= len(streamed):
            await asyncio.sleep(0.1)
    os.kill(gateway, signal.SIGKILL)
    async with asyncio.timeout(20):
        while gateway_pids(plane.data) in ([], [gateway]):
            await asyncio.sleep(0.05)
        while (await command(plane, "agent", "curl", "-sS", "http://model.example/"))[0]:
            await asyncio.sleep(0.1)
    assert (await command(plane, "agent", "curl", "-sS", "http://other.example/"))[0] == 6

    told = await recorded(plane, sandbox["id"], allowed, denied)
    good = [event for event in told if event["kind"] == "egress.allowed"]
    assert {event["data"]["rule"] for event in good} == {"model.example"}
    await plane.admin.delete(path)


def _received(told: list[dict]) -> int:
    return sum(each["data"].get("bytes_down", 0) for each in told)


def listening(pid: int) -> set[int]:
    """The ports that a process listens on, as others see it."""
    said = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True, check=True, timeout=10)
    return {
        int(line.split()[3].rpartition(":")[2])
        for line in said.stdout.splitlines()
        if f"pid={pid}," in line
    }


@pytest.mark.proves("P16")
async def test_no_rule_opens_a_port_of_the_control_plane_also_where_the_system_chose_it(
    everywhere: Server,
):
    """The API, the same by TLS and the SSH gateway, with every address of this host opened."""
    rules = ["self.example:*", "127.0.0.1/32:*"]
    wish = {"name": "agent", "egress": {"preset": "", "rules": rules}}
    sandbox = await everywhere.admin.post("/v1/sandboxes", wish)
    assert sandbox.status == 201, sandbox.body
    own = listening(everywhere.pid)
    assert len(own) == 3
    assert everywhere.port in own
    proxy = ("-x", "http://127.0.0.1:3128")
    for port in own:
        for more in ((), proxy):
            url = f"http://self.example:{port}/v1/sandboxes"
            _code, said = await command(everywhere, "agent", "curl", "-sS", *more, url)
            assert "is Paddock's own, which no rule can allow" in said, (port, said)
    async with await asyncio.start_server(_greet, "127.0.0.1", 0) as other:
        port = other.sockets[0].getsockname()[1]
        said = await command(everywhere, "agent", "curl", "-sS", f"http://self.example:{port}/")
        assert said == (0, "host")
    await everywhere.admin.delete(f"/v1/sandboxes/{sandbox['id']}")


async def _greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\nhost")
    writer.close()


@pytest.mark.proves("P16")
async def test_rules_of_app_and_template_hold_at_once_in_sandboxes_that_run(plane: Server):
    names = ("app.example", "template.example", "own.example")
    wish = {"name": "shopping", "app": "shop", "egress": {"preset": ""}}
    sandbox = await plane.admin.post("/v1/sandboxes", wish)
    assert sandbox.status == 201, sandbox.body

    async def reached() -> set[str]:
        script = 'for name; do curl -sS -m 5 "http://$name/" >&2 && echo "$name"; done; true'
        body = {"cmd": ["sh", "-c", script, "sh", *names], "timeout_s": 20}
        answer = await plane.admin.post("/v1/sandboxes/shopping/exec", body)
        assert (answer.status, answer["exit_code"]) == (200, 0), answer.body
        return set(answer["stdout"].split())

    async def put(path: str, *rules: str) -> None:
        answer = await plane.admin.call("PUT", path, {"rules": rules})
        assert answer.status == 200, answer.body

    try:
        assert await reached() == set()
        await put("/v1/apps/shop/egress", "app.example")
        assert await reached() == {"app.example"}
        await put("/v1/templates/base/egress", "template.example")
        assert await reached() == {"app.example", "template.example"}
        await plane.admin.post("/v1/sandboxes/shopping/egress/allow", {"rules": names[2:]})
        assert await reached() == set(names)
        await put("/v1/templates/base/egress", "!app.example", "!own.example")
        assert await reached() == set(), "what a template denies, nobody nearer allows"
    finally:
        await put("/v1/templates/base/egress")
        await plane.admin.delete(f"/v1/sandboxes/{sandbox['id']}")


@pytest.mark.proves("P16")
async def test_what_is_denied_while_a_sandbox_sleeps_is_denied_when_it_wakes(plane: Server):
    await denied_while_asleep(plane, "stop", "archive")


@pytest.mark.slow
async def test_what_is_denied_while_a_container_sleeps_is_denied_when_it_wakes(
    engine_host: str,  # noqa: F811
    there: Upstream,
):
    async with server(**hosts(there), **engine(engine_host, "sleeping")) as made:
        await denied_while_asleep(made, "stop")


async def denied_while_asleep(made: Server, *verbs: str) -> None:
    wish = {"name": "sleeper", "egress": {"preset": "", "rules": ["evil.example"]}}
    sandbox = await made.admin.post("/v1/sandboxes", wish, within_s=150)
    assert sandbox.status == 201, sandbox.body
    look = ("sleeper", "curl", "-sS", "--fail", "-m", "5", "http://evil.example/")
    assert (await command(made, *look))[0] == 0
    for verb in verbs:
        slept = await made.admin.post(f"/v1/sandboxes/sleeper/{verb}", {})
        assert slept.status == 200, slept.body
        for rules, reached in ((["!evil.example"], False), ([], True)):
            told = await made.admin.call("PUT", "/v1/templates/base/egress", {"rules": rules})
            assert told.status == 200, told.body
            started = await made.admin.post("/v1/sandboxes/sleeper/start", {})
            assert started.status == 200, started.body
            assert ((await command(made, *look))[0] == 0) is reached, (verb, rules)
            assert (await made.admin.post("/v1/sandboxes/sleeper/stop", {})).status == 200
    await made.admin.delete(f"/v1/sandboxes/{sandbox['id']}")


def engine(host: str, name: str) -> dict[str, str]:
    """Settings for an installation of its own on a Docker engine."""
    installation = f"{name}-{os.getpid()}"
    return {"provider": "docker", "docker__host": host, "docker__installation": installation}


@pytest.mark.proves("P16")
@pytest.mark.slow
async def test_the_same_holds_for_containers_of_an_engine(
    engine_host: str,  # noqa: F811
    there: Upstream,
):
    """A restart of the control plane interrupts nothing, and what was seen is on record."""
    async with server(**hosts(there), **engine(engine_host, "wiring")) as made:
        wish = {"name": "agent", "egress": {"preset": "", "rules": ["model.example"]}}
        sandbox = await made.admin.post("/v1/sandboxes", wish, within_s=150)
        assert sandbox.status == 201, sandbox.body
        path = f"/v1/sandboxes/{sandbox['id']}"
        try:
            stream = ["curl", "-sS", "http://model.example/until?engine"]
            run = await made.admin.post(f"{path}/commands", {"cmd": stream})
            await there.was_asked("/until?engine")
            await made.kill()
            await made.start()
            code, said = await command(made, "agent", "curl", "-sS", "http://model.example/x")
            assert (code, said) == (0, "GET model.example /x 0 \n")
            assert (await command(made, "agent", "curl", "-sS", "http://other.example/"))[0]
            there.end_streams("engine")
            assert "tick\n" in await ended(made, f"{path}/commands/{run['id']}")
            seen = {("egress.allowed", "model.example"), ("egress.denied", "other.example")}
            told = await recorded(made, sandbox["id"], *seen)
            assert {(each["kind"], each["data"]["host"]) for each in told} == seen
        finally:
            assert (await made.admin.delete(path)).status in (200, 202, 204)


@pytest.mark.proves("P16")
async def test_a_sandbox_has_the_development_preset_unless_said_otherwise(
    everywhere: Server, there: Upstream
):
    made = everywhere
    sandbox = await made.admin.post("/v1/sandboxes", {"name": "plain"})
    standing = await made.admin.get("/v1/sandboxes/plain/egress")
    assert standing["mode"] == "allowlist"
    assert standing["preset"] == "development"
    assert {rule["source"] for rule in standing["rules"]} == {"preset development"}
    assert standing["warnings"] == []
    assert (await command(made, "plain", "curl", "-sS", "http://pypi.example/"))[0] == 6
    rules = {"rules": ["pypi.example"]}
    answer = await made.admin.post("/v1/sandboxes/plain/egress/allow", rules)
    assert answer["rules"][0] == {"rule": "pypi.example", "source": "sandbox"}
    assert (await command(made, "plain", "curl", "-sS", "http://pypi.example/"))[0] == 0
    wish = {"name": "closed", "egress": {"mode": "none"}}
    closed = await made.admin.post("/v1/sandboxes", wish)
    assert closed["egress"] == {"mode": "none"}
    assert (await command(made, "closed", "curl", "-sS", "http://pypi.example/"))[0] == 6
    assert (await command(made, "closed", "curl", "-sS", f"http://{there.address}/"))[0] == 7
    for each in (sandbox, closed):
        await made.admin.delete(f"/v1/sandboxes/{each['id']}")
