"""Egress through a whole control plane: what survives its death, and what is told of it."""

import asyncio
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.adapters.providers.docker.conftest import engine_host  # noqa: F401 - a fixture
from tests.upstreams import upstream
from tests.wiring_server import Server, free_port, server

pytestmark = [pytest.mark.timeout(180), pytest.mark.proves("P16")]


async def command(made: Server, sandbox: str, *argv: str) -> tuple[int, str]:
    body = {"cmd": list(argv), "timeout_s": 20}
    answer = await made.admin.post(f"/v1/sandboxes/{sandbox}/exec", body)
    assert answer.status == 200, answer.body
    return answer["exit_code"], answer["stdout"] + answer["stderr"]


async def events(made: Server, sandbox: str) -> list[dict]:
    path = f"/v1/events?subject={sandbox}&kind=egress.allowed&kind=egress.denied&limit=500"
    return (await made.admin.get(path))["items"]


def gateway_pids(data: Path) -> list[int]:
    from paddock.adapters.providers.local.layout import Layout

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


@pytest.mark.proves("L11")
async def test_connections_survive_the_control_plane_and_policies_the_gateway():
    names = ("model.example", "other.example")
    async with upstream(*names) as there:
        hosts = json.dumps(dict.fromkeys(names, there.address))
        async with server(egress__hosts=hosts) as made:
            wish = {"name": "agent", "egress": {"preset": "", "rules": ["model.example"]}}
            sandbox = await made.admin.post("/v1/sandboxes", wish)
            assert sandbox.status == 201, sandbox.body
            assert sandbox["egress"] == {"mode": "allowlist"}
            path = f"/v1/sandboxes/{sandbox['id']}"
            stream = ["curl", "-sS", "http://model.example/slow?60"]
            run = await made.admin.post(f"{path}/commands", {"cmd": stream})
            await asyncio.sleep(1)
            (gateway,) = gateway_pids(made.data)

            await made.kill()
            await asyncio.sleep(1)
            await made.start()
            assert gateway_pids(made.data) == [gateway]
            async with asyncio.timeout(30):
                while (await made.admin.get(f"{path}/commands/{run['id']}"))["exit_code"] is None:
                    await asyncio.sleep(0.2)
            ended = await made.admin.get(f"{path}/commands/{run['id']}")
            assert ended["exit_code"] == 0
            code, said = await command(made, "agent", "curl", "-sS", "http://model.example/x")
            assert (code, said) == (0, "GET model.example /x 0 \n")

            await asyncio.sleep(2.5)  # what was seen so far is on record then
            os.kill(gateway, signal.SIGKILL)
            async with asyncio.timeout(20):
                while not gateway_pids(made.data):
                    await asyncio.sleep(0.1)
                while (await command(made, "agent", "curl", "-sS", "http://model.example/"))[0]:
                    await asyncio.sleep(0.2)
            assert (await command(made, "agent", "curl", "-sS", "http://other.example/"))[0] == 6

            await asyncio.sleep(2.5)
            told = await events(made, sandbox["id"])
            good = [event for event in told if event["kind"] == "egress.allowed"]
            assert sum(event["data"]["bytes_down"] for event in good) > 60 * 5
            assert {event["data"]["rule"] for event in good} == {"model.example"}
            bad = [event for event in told if event["kind"] == "egress.denied"]
            assert "other.example" in {event["data"]["host"] for event in bad}
            await made.admin.delete(path)
        async with asyncio.timeout(10):
            while gateway_pids(made.data):
                await asyncio.sleep(0.1)


def listening(pid: int) -> set[int]:
    """The ports that a process listens on, as others see it."""
    said = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True, check=True, timeout=10)
    return {
        int(line.split()[3].rpartition(":")[2])
        for line in said.stdout.splitlines()
        if f"pid={pid}," in line
    }


async def test_no_rule_opens_a_port_of_the_control_plane_also_where_the_system_chose_it():
    """The API, the same by TLS and the SSH gateway, with every address of this host opened."""
    async with upstream("self.example") as there:
        settings = {
            "egress__hosts": json.dumps({"self.example": "127.0.0.1"}),
            "server__tls_certificate": str(there.certificate),
            "server__tls_port": "0",
            "server__ssh_port": str(free_port()),
        }
        async with server(port=0, **settings) as made:
            rules = ["self.example:*", "127.0.0.1/32:*"]
            wish = {"name": "agent", "egress": {"preset": "", "rules": rules}}
            sandbox = await made.admin.post("/v1/sandboxes", wish)
            assert sandbox.status == 201, sandbox.body
            own = listening(made.pid)
            assert len(own) == 3
            assert made.port in own
            proxy = ("-x", "http://127.0.0.1:3128")
            for port in own:
                for more in ((), proxy):
                    url = f"http://self.example:{port}/v1/sandboxes"
                    _code, said = await command(made, "agent", "curl", "-sS", *more, url)
                    assert "is Paddock's own, which no rule can allow" in said, (port, said)
            other = await asyncio.start_server(_greet, "127.0.0.1", 0)
            port = other.sockets[0].getsockname()[1]
            said = await command(made, "agent", "curl", "-sS", f"http://self.example:{port}/")
            assert said == (0, "host")
            other.close()
            await made.admin.delete(f"/v1/sandboxes/{sandbox['id']}")


async def _greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\nhost")
    writer.close()


async def test_rules_of_app_and_template_hold_at_once_in_sandboxes_that_run():
    names = ("app.example", "template.example", "own.example")
    async with upstream(*names) as there:
        hosts = json.dumps(dict.fromkeys(names, there.address))
        async with server(egress__hosts=hosts) as made:
            wish = {"name": "shopping", "app": "shop", "egress": {"preset": ""}}
            sandbox = await made.admin.post("/v1/sandboxes", wish)
            assert sandbox.status == 201, sandbox.body

            async def reached() -> set[str]:
                found = set()
                for name in names:
                    argv = ("curl", "-sS", "-m", "5", f"http://{name}/")
                    if (await command(made, "shopping", *argv))[0] == 0:
                        found.add(name)
                return found

            async def put(path: str, *rules: str) -> None:
                answer = await made.admin.call("PUT", path, {"rules": rules})
                assert answer.status == 200, answer.body

            assert await reached() == set()
            await put("/v1/apps/shop/egress", "app.example")
            assert await reached() == {"app.example"}
            await put("/v1/templates/base/egress", "template.example")
            assert await reached() == {"app.example", "template.example"}
            await made.admin.post("/v1/sandboxes/shopping/egress/allow", {"rules": names[2:]})
            assert await reached() == set(names)
            await put("/v1/templates/base/egress", "!app.example", "!own.example")
            assert await reached() == set(), "what a template denies, nobody nearer allows"
            await made.admin.delete(f"/v1/sandboxes/{sandbox['id']}")


@pytest.mark.parametrize("provider", ["local", "docker"], indirect=True)
async def test_what_is_denied_while_a_sandbox_sleeps_is_denied_when_it_wakes(
    provider: dict[str, str],
):
    async with upstream("evil.example") as there:
        hosts = json.dumps({"evil.example": there.address})
        async with server(egress__hosts=hosts, **provider) as made:
            rules = {"preset": "", "rules": ["evil.example"]}
            wish = {"name": "sleeper", "egress": rules}
            sandbox = await made.admin.post("/v1/sandboxes", wish, within_s=150)
            assert sandbox.status == 201, sandbox.body
            look = ("sleeper", "curl", "-sS", "--fail", "-m", "5", "http://evil.example/")
            assert (await command(made, *look))[0] == 0
            for verb in ("stop", "archive") if not provider else ("stop",):
                slept = await made.admin.post(f"/v1/sandboxes/sleeper/{verb}", {})
                assert slept.status == 200, slept.body
                for rules, reached in ((["!evil.example"], False), ([], True)):
                    path = "/v1/templates/base/egress"
                    told = await made.admin.call("PUT", path, {"rules": rules})
                    assert told.status == 200, told.body
                    started = await made.admin.post("/v1/sandboxes/sleeper/start", {})
                    assert started.status == 200, started.body
                    assert ((await command(made, *look))[0] == 0) is reached, (verb, rules)
                    assert (await made.admin.post("/v1/sandboxes/sleeper/stop", {})).status == 200
            await made.admin.delete(f"/v1/sandboxes/{sandbox['id']}")


@pytest.fixture
def provider(request: pytest.FixtureRequest) -> dict[str, str]:
    """Settings for it."""
    if request.param == "local":
        return {}
    host, installation = request.getfixturevalue("engine_host"), f"sleeping-{os.getpid()}"
    return {"provider": "docker", "docker__host": host, "docker__installation": installation}


@pytest.mark.proves("L11")
async def test_the_same_holds_for_containers_of_an_engine(engine_host: str):  # noqa: F811
    """A restart of the control plane interrupts nothing, and what was seen is on record."""
    names = ("model.example", "other.example")
    async with upstream(*names) as there:
        settings = {
            "provider": "docker",
            "docker__host": engine_host,
            "docker__installation": f"wiring-{os.getpid()}",
            "egress__hosts": json.dumps(dict.fromkeys(names, there.address)),
        }
        async with server(**settings) as made:
            wish = {"name": "agent", "egress": {"preset": "", "rules": ["model.example"]}}
            sandbox = await made.admin.post("/v1/sandboxes", wish)
            assert sandbox.status == 201, sandbox.body
            path = f"/v1/sandboxes/{sandbox['id']}"
            try:
                stream = ["curl", "-sS", "http://model.example/slow?80"]
                run = await made.admin.post(f"{path}/commands", {"cmd": stream})
                await asyncio.sleep(1)
                await made.kill()
                await made.start()
                code, said = await command(made, "agent", "curl", "-sS", "http://model.example/x")
                assert (code, said) == (0, "GET model.example /x 0 \n")
                assert (await command(made, "agent", "curl", "-sS", "http://other.example/"))[0]
                async with asyncio.timeout(40):
                    while (ended := await made.admin.get(f"{path}/commands/{run['id']}"))[
                        "exit_code"
                    ] is None:
                        await asyncio.sleep(0.2)
                assert ended["exit_code"] == 0
                await asyncio.sleep(2.5)
                told = await events(made, sandbox["id"])
                assert {(each["kind"], each["data"]["host"]) for each in told} == {
                    ("egress.allowed", "model.example"),
                    ("egress.denied", "other.example"),
                }
            finally:
                assert (await made.admin.delete(path)).status in (200, 202, 204)


async def test_a_sandbox_has_the_development_preset_unless_said_otherwise():
    async with upstream("pypi.example") as there:
        hosts = json.dumps({"pypi.example": there.address})
        warm = json.dumps({"base": 1})
        async with server(egress__hosts=hosts, local__warm=warm) as made:
            sandbox = await made.admin.post("/v1/sandboxes", {"name": "plain"})
            standing = await made.admin.get("/v1/sandboxes/plain/egress")
            assert standing["mode"] == "allowlist"
            assert standing["preset"] == "development"
            assert {rule["source"] for rule in standing["rules"]} == {"preset development"}
            assert standing["warnings"] == []
            assert (await command(made, "plain", "curl", "-sS", "http://pypi.example/"))[0] == 6
            answer = await made.admin.post(
                "/v1/sandboxes/plain/egress/allow", {"rules": ["pypi.example"]}
            )
            assert answer["rules"][0] == {"rule": "pypi.example", "source": "sandbox"}
            assert (await command(made, "plain", "curl", "-sS", "http://pypi.example/"))[0] == 0
            closed = await made.admin.post(
                "/v1/sandboxes", {"name": "closed", "egress": {"mode": "none"}}
            )
            assert closed["egress"] == {"mode": "none"}
            assert (await command(made, "closed", "curl", "-sS", "http://pypi.example/"))[0] == 6
            address = f"http://{there.address}/"
            assert (await command(made, "closed", "curl", "-sS", address))[0] == 7
            for each in (sandbox, closed):
                await made.admin.delete(f"/v1/sandboxes/{each['id']}")
