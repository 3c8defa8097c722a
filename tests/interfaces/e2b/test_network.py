"""E2B's network options by its SDK, against servers outside that are there all the time."""

import asyncio
import json
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from typing import Any

import pytest
from e2b import (
    E2B,
    AuthenticationException,
    InvalidArgumentException,
    SandboxException,
)

from tests.conftest import Need
from tests.interfaces.e2b.javascript import installed, node
from tests.upstreams import Upstream, upstream
from tests.wiring_server import Server, server

pytestmark = [pytest.mark.timeout(180)]
KEY = "sk-the-real-key-0123456789"
FILLED = "the-teams-own-secret-4711"
NAMES = ("api.example.org", "deep.api.example.org", "example.org", "other.example")
ALL = "0.0.0.0/0"
FEW = ["sandboxes:read", "sandboxes:write", "secrets:read"]


@dataclass
class World:
    plane: Server
    there: Upstream
    e2b: E2B

    @asynccontextmanager
    async def sandbox(self, **options: Any) -> AsyncIterator[Any]:
        box = await self.e2b.AsyncSandbox.create(timeout=120, **options)
        try:
            yield box
        finally:
            await self.e2b.AsyncSandbox.kill(box.sandbox_id)

    def sent(self) -> str:
        """The last request that a server outside was sent."""
        return self.there.seen.read_text().splitlines()[-1]

    def kept(self) -> str:
        """What the database has of headers, by sandbox."""
        with closing(sqlite3.connect(f"file:{self.plane.data}/paddock.db?mode=ro", uri=True)) as db:
            return repr(db.execute("select name from value").fetchall())

    def client(self, token: str) -> E2B:
        return E2B(api_key=token, api_url=self.plane.url, sandbox_url=self.plane.url)


@asynccontextmanager
async def made(**more: str) -> AsyncIterator[World]:
    async with upstream(*NAMES) as there:
        hosts = json.dumps(dict.fromkeys(NAMES, there.address))
        more = {"egress__hosts": hosts, "egress__certificates": str(there.certificate), **more}
        async with server(**more) as plane:
            url, token = plane.url, plane.admin.token
            yield World(plane, there, E2B(api_key=token, api_url=url, sandbox_url=url))


@pytest.fixture(scope="module")
async def world() -> AsyncIterator[World]:
    async with made() as world:
        yield world


@pytest.fixture(scope="module")
async def open_world() -> AsyncIterator[World]:
    """Where the operator has opened the internet for clients of E2B."""
    async with made(e2b__internet="true") as world:
        yield world


async def run(box: Any, script: str) -> str:
    return (await box.commands.run(f"({script}) 2>&1 || true")).stdout


def get(url: str, *more: str) -> str:
    return " ".join(("curl", "-sS", "-m", "8", *more, url))


def sets(**headers: str) -> list[dict[str, Any]]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return [{"transform": {"headers": named}}]


async def test_headers_are_put_in_outside_and_their_values_never_inside(world: World):
    rules = {"api.example.org": sets(Authorization=f"Bearer {KEY}", X_Environment="production")}
    network = {"allow_out": lambda ctx: list(ctx.rules), "deny_out": [ALL], "rules": rules}
    async with world.sandbox(network=network) as box:
        url = "https://api.example.org/echo"
        said = await run(box, get(url, "-H", "'Authorization: Bearer mine'"))
        assert f"'authorization': 'Bearer {KEY}'" in world.sent()
        assert "mine" not in world.sent()
        assert "'x-environment': 'production'" in said
        assert KEY not in said
        assert KEY not in await run(box, "env; cat /proc/*/environ; cat /etc/hosts")
        plain = await run(box, get("http://api.example.org/echo"))
        assert "authorization" not in plain
        info = await box.get_info()
        told = info.network["rules"]["api.example.org"][0]["transform"]["headers"]
        assert told == {"Authorization": "Bearer ***", "X-Environment": "production"}
        assert (info.network["allow_out"], info.network["deny_out"]) == (["api.example.org"], [ALL])


async def test_the_nearest_host_counts_and_rules_allow_nothing(world: World):
    rules = {
        "*.example.org": sets(X_Of="domain", X_Only="domain"),
        "*.api.example.org": sets(X_Of="below"),
        "API.example.org": sets(X_Of="exact"),
    }
    network = {"allow_out": ["*.example.org", "example.org"], "deny_out": [ALL], "rules": rules}
    async with world.sandbox(network=network) as box:
        for host, of in (("api.example.org", "exact"), ("deep.api.example.org", "below")):
            await run(box, get(f"https://{host}/echo"))
            assert f"'x-of': '{of}'" in world.sent()
            assert "x-only" not in world.sent()
        # Below a domain is not the domain itself, whose TLS nobody looks into.
        await run(box, get("https://example.org/echo", "-k"))
        assert "x-of" not in world.sent()
        await box.update_network({"deny_out": [ALL], "rules": {"other.example": sets(X_Of="o")}})
        assert "resolve" in await run(box, get("https://other.example/echo"))


async def test_rules_are_replaced_while_it_runs_and_go_along_with_forks(world: World):
    allowed = {"allow_out": ["api.example.org"], "deny_out": [ALL]}
    ask = get("https://api.example.org/echo", "-k")
    async with world.sandbox(network=allowed) as box:
        await run(box, ask)
        assert "x-key" not in world.sent()
        await box.update_network({**allowed, "rules": {"api.example.org": sets(X_Key=KEY)}})
        await run(box, ask)
        assert f"'x-key': '{KEY}'" in world.sent()
        (fork,) = await world.e2b.AsyncSandbox.fork(box.sandbox_id, timeout=60)
        await run(fork, ask)
        assert f"'x-key': '{KEY}'" in world.sent()
        await fork.kill()
        for mode in ("full", "filesystem"):
            world.there.seen.write_text("none\n")
            await box.pause(mode=mode)
            again = await world.e2b.AsyncSandbox.connect(box.sandbox_id)
            await run(again, ask)
            assert f"'x-key': '{KEY}'" in world.sent()
        await box.update_network(allowed)
        await run(box, ask)
        assert "x-key" not in world.sent()
        assert "rules" not in (await box.get_info()).network


async def test_headers_outlive_the_server_and_are_nowhere_to_be_read(world: World):
    rules = {"api.example.org": sets(Authorization=f"Bearer {KEY}")}
    network = {"allow_out": ["api.example.org"], "deny_out": [ALL], "rules": rules}
    async with world.sandbox(network=network) as box:
        await world.plane.stop()
        await world.plane.start()
        await run(box, get("https://api.example.org/echo"))
        assert f"Bearer {KEY}" in world.sent()
        rotated = await world.plane.admin.call("POST", "/v1/secrets/rotate", {})
        assert rotated.status == 200, rotated.body
        await world.plane.stop()
        await world.plane.start()
        await run(box, get("https://api.example.org/echo"))
        assert f"Bearer {KEY}" in world.sent()
        said = json.dumps((await world.plane.admin.get("/v1/events?limit=500")).body)
        said += json.dumps((await world.plane.admin.get("/v1/audit?limit=500")).body)
        assert "api.example.org" in said
        assert KEY not in said + world.plane.log()
        for file in world.plane.data.glob("*.db*"):
            assert KEY.encode() not in file.read_bytes()


async def test_nothing_is_kept_of_one_that_is_gone(world: World):
    rules = {"api.example.org": sets(Authorization=f"Bearer {KEY}")}
    async with world.sandbox(network={"deny_out": [ALL], "allow_out": ["a.b"], "rules": rules}):
        assert "headers.sbx_" in world.kept()
    async with asyncio.timeout(30):
        while "headers.sbx_" in world.kept():
            await asyncio.sleep(0.2)


async def test_secrets_are_filled_in_by_who_may_bind_them(world: World):
    name = f"Of-Team-{time.time_ns()}"
    await world.e2b.AsyncSecret.create(name, FILLED)
    filled = f"Token {world.e2b.AsyncSecret.fill(name)}"
    rules = {"api.example.org": sets(Authorization=filled)}
    network = {"allow_out": ["api.example.org"], "deny_out": [ALL], "rules": rules}
    ask = get("https://api.example.org/echo")
    async with world.sandbox(network=network) as box:
        assert FILLED not in await run(box, ask)
        assert f"Token {FILLED}" in world.sent()
        told = (await box.get_info()).network["rules"]["api.example.org"][0]["transform"]
        assert told["headers"]["Authorization"] == f"Token ${{e2b.secrets.{name.lower()}}}"
        await world.e2b.AsyncSecret.update(name, "a-new-value-of-the-team")
        await run(box, ask)
        assert "Token a-new-value-of-the-team" in world.sent()
        few = {"name": f"few-{time.time_ns()}", "scopes": FEW}
        token = (await world.plane.admin.call("POST", "/v1/tokens", few)).body["token"]
        with pytest.raises(SandboxException, match=r"403: .*secrets:write"):
            await world.client(token).AsyncSandbox.create(network=network)
        await world.e2b.AsyncSecret.destroy(name)
        assert "was taken back" in await run(box, ask)
    with pytest.raises(SandboxException, match="there is no secret"):
        await world.e2b.AsyncSandbox.create(network=network)


async def test_what_is_no_header_or_no_host_is_refused_and_nothing_is_left(world: World):
    for rules in (
        {"*": sets(X_A="a")},
        {"*.org": sets(X_A="a")},
        {"10.0.0.1": sets(X_A="a")},
        {"api.example.org": sets(Host="a")},
        {"api.example.org": sets(X_A="a\r\nX-B: b")},
        {"api.example.org": sets(X_A="")},
    ):
        with pytest.raises(SandboxException, match="400"):
            await world.e2b.AsyncSandbox.create(network={"rules": rules})
    token = {"aws": {"audience": "a", "token_type": "JWT-SVID"}}
    with pytest.raises(SandboxException, match="workload identity"):
        await world.e2b.AsyncSandbox.create(iam={"tokens": token})
    with pytest.raises(SandboxException, match=r"501: .*egressProxy cannot be enforced"):
        await world.e2b.AsyncSandbox.create(network={"egress_proxy": {"address": "p.example:1"}})
    pages = world.e2b.AsyncSandbox.list()
    assert await pages.next_items() == []


async def test_the_installations_rules_win_over_allow_internet_access(world: World):
    """SDKs before 2.46 say `true` in every create."""
    ask = get(f"http://{world.there.address}/echo")
    async with world.sandbox(allow_internet_access=True) as box:
        assert "GET /echo" not in await run(box, ask)
        await box.update_network({"allow_internet_access": True})
        assert "GET /echo" not in await run(box, ask)


async def test_a_part_is_denied_while_all_else_is_open(open_world: World):
    world = open_world
    address = world.there.address
    block = address.rpartition(".")[0] + ".0/24"
    named, plain = get("https://other.example/echo", "-k"), get(f"http://{address}/echo")
    async with world.sandbox(allow_internet_access=True, network={"deny_out": ["8.8.8.8"]}) as box:
        assert "GET /echo" in await run(box, named)
        assert "GET /echo" in await run(box, plain)
        assert (await box.get_info()).network["deny_out"] == ["8.8.8.8"]
        await box.update_network({"deny_out": [block]})
        assert (await box.get_info()).allow_internet_access is True, "as it was said before"
        assert "GET /echo" not in await run(box, plain)
        assert "GET /echo" not in await run(box, named)
        # What is allowed wins over what is denied.
        wins = {"allow_internet_access": True, "deny_out": [block], "allow_out": [address]}
        await box.update_network(wins)
        assert "GET /echo" in await run(box, plain)
        assert "GET /echo" in await run(box, named)
        network = (await box.get_info()).network
        assert (network["allow_out"], network["deny_out"]) == ([address], [block])
        await box.update_network({"allow_internet_access": True, "deny_out": ["other.example"]})
        assert "GET /echo" not in await run(box, named)
        assert "GET /echo" in await run(box, plain)


async def test_headers_on_an_open_network(open_world: World):
    world = open_world
    network = {"rules": {"api.example.org": sets(X_Key=KEY)}}
    async with world.sandbox(allow_internet_access=True, network=network) as box:
        await run(box, get("https://api.example.org/echo"))
        assert f"'x-key': '{KEY}'" in world.sent()
        assert "GET /echo" in await run(box, get(f"http://{world.there.address}/echo"))


async def test_name_servers_that_are_named_answer(world: World):
    """By the gateway, whatever their address: nothing that is allowed hangs on them."""
    allowed = {"allow_out": ["api.example.org"], "deny_out": [ALL]}
    async with world.sandbox(network={**allowed, "dns_servers": [world.there.address]}) as box:
        asked = f"getent ahostsv4 api.example.org; {get(f'http://{world.there.address}/echo')}"
        said = await run(box, asked)
        assert said.startswith("198.1")
        assert "GET /echo" in said
    async with world.sandbox(network={**allowed, "dns_servers": []}) as box:
        assert (await run(box, asked)).startswith("198.1")
    with pytest.raises((SandboxException, InvalidArgumentException), match="400"):
        await world.e2b.AsyncSandbox.create(network={**allowed, "dns_servers": ["dns.example"]})


@pytest.mark.slow
async def test_the_javascript_sdk_says_the_same(open_world: World, need: Need):
    world = open_world
    address = world.there.address
    done = await asyncio.to_thread(
        node,
        installed(need),
        "rules.mjs",
        E2B_API_KEY=world.plane.admin.token,
        E2B_API_URL=world.plane.url,
        E2B_SANDBOX_URL=world.plane.url,
        ADDRESS=address,
        DENIED=f"{address.rpartition('.')[0]}.0/24",
    )
    assert done.stdout == b"ruled\n", done.stderr.decode()
    assert "GET /echo" in world.sent()


async def test_a_foreign_or_wrong_key_changes_no_network(world: World):
    async with world.sandbox() as box:
        with pytest.raises(AuthenticationException):
            wrong = world.client("e2b_" + "0" * 40)
            await wrong.AsyncSandbox.update_network(box.sandbox_id, {"deny_out": [ALL]})
