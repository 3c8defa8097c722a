"""Credentials through a whole control plane: set, bound, used, changed, and told of."""

import asyncio
import base64
import json
import os
import re
import signal
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from paddock.adapters.providers.docker.config import RUN_ROOT
from paddock.adapters.providers.docker.names import Names
from paddock.adapters.providers.local.layout import Layout
from tests.adapters.providers.docker.conftest import engine_host  # noqa: F401 - a fixture
from tests.upstreams import Upstream, upstream
from tests.wiring.test_approvals import of_provider
from tests.wiring.test_egress import command, gateway_pids
from tests.wiring_server import Server, server

pytestmark = [
    pytest.mark.timeout(240),
]
VALUE = "sk-the-real-value-0123456789"
EXPOSED = "the-exposed-value-0123456789"
GIT = "git-password-0123456789"
NAMES = ("api.example", "git.example", "other.example")
ON_LOCAL: Mapping[str, str] = {}


@dataclass
class World:
    plane: Server
    there: Upstream
    earlier: int = 0
    """How many requests there were before the test."""

    async def call(self, method: str, path: str, body: object = None, status: int = 200) -> dict:
        answer = await self.plane.admin.call(method, path, body)
        assert answer.status == status, answer.body
        return answer.body

    async def bind(self, secret: str, way: str, **wish: object) -> dict:
        return await self.call("PUT", f"/v1/secrets/{secret}/bindings/{way}", wish)

    async def run(self, script: str, sandbox: str = "agent") -> str:
        code, said = await command(self.plane, sandbox, "bash", "-c", script)
        assert code == 0, said
        return said

    def sent(self) -> list[str]:
        return self.there.seen.read_text().splitlines()[self.earlier :]

    def anew(self) -> "World":
        """The same without the requests until now."""
        return replace(self, earlier=self.earlier + len(self.sent()))

    async def clear(self) -> None:
        """Nothing of a test is left to the next."""
        for kind, key in (("sandboxes", "id"), ("secrets", "name")):
            for each in (await self.call("GET", f"/v1/{kind}?limit=500"))["items"]:
                await self.plane.admin.delete(f"/v1/{kind}/{each[key]}")


@pytest.fixture(params=["local", pytest.param("docker", marks=pytest.mark.slow)])
def provider(request: pytest.FixtureRequest) -> dict[str, str]:
    """Settings for each provider whose sandboxes have an allowlist."""
    return of_provider(request)


Open = Callable[[Mapping[str, str]], Awaitable[World]]


@pytest.fixture(scope="module")
async def servers() -> AsyncIterator[Open]:
    """One server for each provider. Docker's starts when it is first needed."""
    async with AsyncExitStack() as stack:
        there = await stack.enter_async_context(upstream(*NAMES))
        hosts = json.dumps(dict.fromkeys(NAMES, there.address))
        more = {"egress__hosts": hosts, "egress__certificates": str(there.certificate)}
        worlds: dict[str, World] = {}

        async def open_on(provider: Mapping[str, str]) -> World:
            name = provider.get("provider", "local")
            if name not in worlds:
                plane = await stack.enter_async_context(server(**more, **provider))
                worlds[name] = World(plane, there)
            await worlds[name].plane.restart_if_ended()
            return worlds[name].anew()

        await open_on(ON_LOCAL)
        yield open_on


@asynccontextmanager
async def world(
    servers: Open, provider: Mapping[str, str] = ON_LOCAL, **wish: object
) -> AsyncIterator[World]:
    made = await servers(provider)
    try:
        await made.call("PUT", "/v1/secrets/API_KEY", {"value": VALUE})
        rules = {"preset": "", "rules": list(NAMES)}
        body = {"name": "agent", "egress": rules, **wish}
        # An engine that has no image of the template yet takes its time.
        sandbox = await made.plane.admin.post("/v1/sandboxes", body, within_s=180)
        assert sandbox.status == 201, sandbox.body
        yield made
    finally:
        await made.plane.restart_if_ended()
        await made.clear()


async def _until(true: Callable[[], bool], seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while not true():
            await asyncio.sleep(0.05)


@pytest.mark.proves("K3", "K5")
async def test_a_bound_secret_is_used_and_never_inside(servers: Open, provider: dict[str, str]):
    async with world(servers, provider, labels={"task": "fix-4711"}) as made:
        await made.bind("API_KEY", "header", hosts=["api.example"])
        said = await made.run("echo $API_KEY; curl -sS https://api.example/echo")
        placeholder = re.search(r"pdk-API_KEY-[0-9a-f]{40}", said)[0]
        assert VALUE not in said
        assert f"Bearer {VALUE}" in made.sent()[-1]
        (standing,) = (await made.call("GET", "/v1/sandboxes/agent/credentials"))["items"]
        assert (standing["placeholder"], standing["works"]) == (placeholder, True)
        assert (await made.call("GET", "/v1/sandboxes/agent"))["exposed_secrets"] == []

        # Another sandbox has another placeholder, which is nobody else's.
        other = await made.call("POST", "/v1/sandboxes", {"name": "other"}, 201)
        assert placeholder not in await made.run("env", "other")
        assert "pdk-API_KEY-" in await made.run("env", "other")
        (standing,) = (await made.call("GET", "/v1/sandboxes/other/credentials"))["items"]
        assert standing["why_not"] == "no rule lets it reach api.example"
        await made.plane.admin.delete(f"/v1/sandboxes/{other['id']}")

        # A new value is used at once; one that is gone is missed in so many words.
        await made.call("PUT", "/v1/secrets/API_KEY", {"value": "another-real-value"})
        await made.run("curl -sS https://api.example/echo")
        assert "Bearer another-real-value" in made.sent()[-1]
        await made.call("DELETE", "/v1/secrets/API_KEY", status=204)
        said = await made.run("curl -sS https://api.example/echo")
        assert "the secret API_KEY was taken back" in said
        assert "paddock secrets set API_KEY" in said
        await made.call("DELETE", "/v1/secrets/API_KEY/bindings/header", status=204)
        code, _ = await command(made.plane, "agent", "curl", "-sS", "https://api.example/echo")
        assert code == 60  # nobody looks into it any more

        used = await _uses(made)
        assert {each["secret"] for each in used} == {"API_KEY"}
        assert not any("task" in each for each in used), "a label makes no task"
        assert sum(each["count"] for each in used if "lacks" not in each) == 2
        assert [each["host"] for each in used if "lacks" in each] == ["api.example"]
        entries = (await made.call("GET", "/v1/audit?limit=500"))["items"]
        assert {"secret.bound", "secret.unbound", "secret.used"} <= {e["action"] for e in entries}
        everything = json.dumps([entries, (await made.call("GET", "/v1/events?limit=500"))])
        assert VALUE not in everything + made.plane.log() + _gateway_log(made.plane.data, provider)
        for file in made.plane.data.glob("*.db*"):
            assert VALUE.encode() not in file.read_bytes()


async def _uses(made: World) -> list[dict]:
    """What is on record of the agent's uses, once the last one is: the secret was lacking."""
    subject = (await made.call("GET", "/v1/sandboxes/agent"))["id"]
    path = f"/v1/events?kind=secret.used&subject={subject}&limit=100"
    async with asyncio.timeout(20):
        while True:
            used = [each["data"] for each in (await made.call("GET", path))["items"]]
            if any("lacks" in each for each in used):
                return used
            await asyncio.sleep(0.1)


def _gateway_log(data: Path, provider: Mapping[str, str]) -> str:
    run = Layout.of(data).run
    if installation := provider.get("docker__installation"):
        run = RUN_ROOT / f"docker-{Names(installation).tag}"
    return (run / "egress.log").read_text()


@pytest.mark.slow
@pytest.mark.proves("K5")
async def test_credentials_outlive_the_control_plane_and_are_given_to_a_new_gateway(servers: Open):
    async with world(servers) as made:
        await made.bind("API_KEY", "header", hosts=["api.example"])
        loop = "while sleep 0.1; do curl -sS -m 3 https://api.example/x; done"
        await made.call("POST", "/v1/sandboxes/agent/commands", {"cmd": ["bash", "-c", loop]}, 201)
        await _until(lambda: len(made.sent()) > 1)
        (gateway,) = gateway_pids(made.plane.data)
        await made.plane.kill()
        count = len(made.sent())
        await _until(lambda: len(made.sent()) > count + 3)
        assert all(VALUE in line for line in made.sent())

        await made.plane.start()
        assert gateway_pids(made.plane.data) == [gateway]
        os.kill(gateway, signal.SIGKILL)
        await _until(lambda: gateway_pids(made.plane.data) not in ([], [gateway]))
        count = len(made.sent())
        await _until(lambda: len(made.sent()) > count + 6)
        assert VALUE in made.sent()[-1]


@pytest.mark.proves("K6", "K5")
async def test_git_clones_and_pushes_with_nothing_inside(servers: Open, provider: dict[str, str]):
    async with world(servers, provider) as made:
        place = made.there.repositories / "shop.git"
        subprocess.run(["git", "init", "-q", "--bare", "-b", "main", place], check=True)
        subprocess.run(["git", "-C", place, "config", "http.receivepack", "true"], check=True)
        await made.call("PUT", "/v1/secrets/GIT_TOKEN", {"value": GIT})
        await made.bind("GIT_TOKEN", "git", hosts=["git.example"])
        said = await made.run(
            "set -e; cd /tmp; export GIT_TERMINAL_PROMPT=0\n"
            "git clone -q https://git.example/git/shop.git; cd shop\n"
            "git config user.email a@b; git config user.name a\n"
            "echo hello > file; git add file; git commit -qm first; git push -q origin HEAD:main\n"
            "cd ..; git clone -q https://git.example/git/shop.git again; cat again/file\n"
            "cat again/.git/config; env"
        )
        assert "hello" in said
        assert GIT not in said
        log = subprocess.run(
            ["git", "-C", place, "log", "--oneline", "main"], check=True, capture_output=True
        )
        assert b"first" in log.stdout
        # The rest of what the host serves is not for this token.
        shown = "$(env | grep -o 'pdk-GIT_TOKEN-[0-9a-f]*' | head -1)"
        await made.run(f"curl -sS -u x-access-token:{shown} https://git.example/api/user")
        assert "pdk-GIT" not in made.sent()[-1]  # it is in base64
        assert _basic(made.sent()[-1]).startswith("x-access-token:pdk-GIT_TOKEN-")


def _basic(line: str) -> str:
    return base64.b64decode(re.search(r"Basic ([A-Za-z0-9+/=]+)", line)[1]).decode()


@pytest.mark.proves("K3")
async def test_a_value_is_inside_only_where_that_is_said_and_then_it_is_told(servers: Open):
    async with world(servers) as made:
        wish = {"hosts": ["api.example"], "expose": True}
        refused = await made.plane.admin.call("PUT", "/v1/secrets/API_KEY/bindings/header", wish)
        assert (refused.status, refused["error"]["code"]) == (403, "forbidden")
        secret = {"value": VALUE, "policy": "agent_access"}
        await made.call("PUT", "/v1/secrets/API_KEY", secret)
        await made.bind("API_KEY", "header", **wish)
        assert VALUE in await made.run("echo $API_KEY")
        assert (await made.call("GET", "/v1/sandboxes/agent"))["exposed_secrets"] == ["API_KEY"]
        agent = (await made.call("GET", "/v1/sandboxes/agent"))["id"]
        exposed = f"/v1/events?kind=secret.exposed&subject={agent}&limit=100"
        told = (await made.call("GET", exposed))["items"]
        assert told[-1]["data"]["secrets"] == ["API_KEY"]
        report = {"source": "agent", "seq": 1, "kind": "custom.step", "data": {"said": [VALUE]}}
        await made.call("POST", "/v1/sandboxes/agent/events", [report])
        kept = await made.call("GET", f"/v1/events?subject={agent}&limit=500")
        assert '"said": ["pdk-API_KEY-' in json.dumps(kept)
        assert VALUE not in json.dumps(kept)

        # Only until the binding ends.
        ends = datetime.now(UTC) + timedelta(seconds=1)
        await made.bind("API_KEY", "header", **wish, expires_at=ends.isoformat())
        await _unexposed(made)
        assert (await made.call("GET", "/v1/sandboxes/agent"))["exposed_secrets"] == []
        late = await made.call("POST", "/v1/sandboxes", {"name": "late"}, 201)
        assert VALUE not in await made.run("env", "late")
        await made.plane.admin.delete(f"/v1/sandboxes/{late['id']}")

        # Nor does a command have it that begins after it was unbound or deleted.
        await made.bind("API_KEY", "header", **wish)
        assert VALUE in await made.run("env")
        await made.call("DELETE", "/v1/secrets/API_KEY/bindings/header", status=204)
        assert VALUE not in await made.run("env")
        await made.bind("API_KEY", "header", **wish)
        assert VALUE in await made.run("env")
        await made.call("DELETE", "/v1/secrets/API_KEY", status=204)
        assert VALUE not in await made.run("env")
        told = (await made.call("GET", exposed))["items"]
        taken = [each["data"]["taken_out"] for each in told if "taken_out" in each["data"]]
        assert taken == [["API_KEY"]] * 3


async def _unexposed(made: World) -> None:
    async with asyncio.timeout(60):
        while VALUE in await made.run("env"):
            await asyncio.sleep(0.2)


@pytest.mark.proves("K5")
async def test_no_value_gets_into_a_snapshot(servers: Open, provider: dict[str, str]):
    """Neither one that is used outside, nor one that programs have."""
    async with world(servers, provider) as made:
        await made.bind("API_KEY", "header", hosts=["api.example"])
        wish = {"value": EXPOSED, "policy": "agent_access"}
        await made.call("PUT", "/v1/secrets/OTHER_KEY", wish)
        await made.bind("OTHER_KEY", "placeholder", hosts=["other.example"], expose=True)
        body = {"cmd": ["bash", "-c", "curl -sS https://api.example/echo; sleep 60"]}
        await made.call("POST", "/v1/sandboxes/agent/commands", body, 201)
        await _until(lambda: any(VALUE in line for line in made.sent()))
        assert EXPOSED in await made.run("echo $OTHER_KEY")
        kept = await made.call("POST", "/v1/sandboxes/agent/snapshots", {"name": "kept"}, 201)
        copy = await made.call(
            "POST", "/v1/sandboxes", {"name": "copy", "snapshot": kept["id"]}, 201
        )
        look = (
            'find / -xdev -type f -mmin -30 -exec grep -laF "$(echo {} | base64 -d)" {{}} + ; true'
        )
        for value in (VALUE, EXPOSED):
            script = look.format(base64.b64encode(value.encode()).decode())
            body = {"cmd": ["bash", "-c", script], "user": "root"}
            said = await made.call("POST", "/v1/sandboxes/copy/exec", body)
            assert (said["exit_code"], said["stdout"]) == (0, ""), said
        here = {"cmd": ["bash", "-c", look.format(base64.b64encode(b"needle").decode())]}
        await made.run("mkdir -p ~/x; echo nee''dle > ~/x/file", "copy")
        found = await made.call("POST", "/v1/sandboxes/copy/exec", {**here, "user": "root"})
        assert "/x/file" in found["stdout"], "it is a search that finds something"
        await made.plane.admin.delete(f"/v1/sandboxes/{copy['id']}")
        await made.plane.admin.delete(f"/v1/snapshots/{kept['id']}")


async def test_bad_bindings_say_what_is_wrong(servers: Open):
    async with world(servers) as made:
        for way, wish, said in (
            ("header", {}, "bound to no host"),
            ("header", {"hosts": ["*"]}, "nearly every host"),
            ("header", {"hosts": ["*.com"]}, "nearly every host"),
            ("header", {"hosts": ["10.0.0.1"]}, "is no host"),
            ("header", {"hosts": ["http://a.example/x"]}, "is no host"),
            ("header", {"hosts": ["a.example"], "header": "Host"}, "no header to put"),
            ("header", {"hosts": ["a.example"], "format": "Bearer"}, "no place for the value"),
            ("query", {"hosts": ["a.example"]}, "no parameter"),
            ("basic", {"hosts": ["a.example"], "user": "a:b"}, "no user"),
            ("header", {"hosts": ["a.example"], "env": "a b"}, "no name of a variable"),
        ):
            path = f"/v1/secrets/API_KEY/bindings/{way}"
            answer = await made.plane.admin.call("PUT", path, wish)
            assert (answer.status, said in answer["error"]["message"]) == (400, True), answer.body
        answer = await made.plane.admin.call(
            "PUT", "/v1/secrets/NONE/bindings/header", {"hosts": ["a.example"]}
        )
        assert answer.status == 404
