"""Model APIs from inside a sandbox, with the key outside: used, counted, and limited."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator

import pytest

from paddock import AsyncSandbox, Server
from tests.upstreams import upstream
from tests.wiring.test_broker import World
from tests.wiring.test_egress import command, gateway_pids
from tests.wiring_server import server

pytestmark = [
    pytest.mark.timeout(240),
]
HOSTS = {
    "anthropic": "api.anthropic.com",
    "openai": "api.openai.com",
    "gemini": "generativelanguage.googleapis.com",
    "openrouter": "openrouter.ai",
    "own": "llm.example",
}
KEY = "sk-real-key-of-"


@pytest.fixture(scope="module")
async def shared() -> AsyncIterator[World]:
    names = tuple(HOSTS.values())
    async with upstream(*names) as there:
        hosts = json.dumps(dict.fromkeys(names, there.address))
        more = {"egress__hosts": hosts, "egress__certificates": str(there.certificate)}
        async with server(**more) as plane:
            yield World(plane, there)


@pytest.fixture
async def made(shared: World) -> AsyncIterator[World]:
    """The shared server with every secret, and without sandboxes."""
    for route in HOSTS:
        secret = f"{route.upper()}_SECRET"
        await shared.call("PUT", f"/v1/secrets/{secret}", {"value": KEY + route})
    yield shared.anew()
    await shared.clear()


async def _bind(made: World, route: str, **more: object) -> None:
    await made.bind(f"{route.upper()}_SECRET", "model", route=route, **more)


async def _sandbox(made: World, name: str, rules: tuple[str, ...] = (), **more: object) -> None:
    wish = {"name": name, "egress": {"preset": "", "rules": list(rules)}, **more}
    await made.call("POST", "/v1/sandboxes", wish, 201)


async def _used(made: World, sandbox: str, requests: int) -> dict:
    async with asyncio.timeout(20):
        while True:
            found = await made.call("GET", f"/v1/sandboxes/{sandbox}/models")
            if sum(each["requests"] for each in found["used"]) >= requests:
                return found
            await asyncio.sleep(0.2)


async def _without_its_gateway(made: World, sandbox: str) -> None:
    """Another one serves it, which knows nothing but what the control plane tells it."""
    (gateway,) = gateway_pids(made.plane.data)
    os.kill(gateway, signal.SIGKILL)
    knows = ["getent", "hosts", "gemini.models.paddock.internal"]
    async with asyncio.timeout(60):
        while gateway_pids(made.plane.data) in ([], [gateway]):
            await asyncio.sleep(0.1)
        while (await command(made.plane, sandbox, *knows))[0]:
            await asyncio.sleep(0.2)


POST = "curl -sS -m 10 -H 'content-type: application/json'"


@pytest.mark.proves("K5")
async def test_every_dialect_is_spoken_with_the_key_outside_and_counted(made: World):
    for route in HOSTS:
        more = {"base_url": "https://llm.example/v1"} if route == "own" else {}
        await _bind(made, route, **more)
    await _sandbox(made, "agent")
    env = await made.run("env")
    assert "ANTHROPIC_BASE_URL=http://anthropic.models.paddock.internal\n" in env
    assert "OPENAI_BASE_URL=http://openai.models.paddock.internal/v1\n" in env
    assert "OPENROUTER_BASE_URL=http://openrouter.models.paddock.internal/api/v1\n" in env
    assert "OWN_BASE_URL=http://own.models.paddock.internal\n" in env
    assert "ANTHROPIC_API_KEY=pdk-" in env
    assert KEY not in env
    chat = "/chat/completions -d '{\"stream\": true}'"
    gemini = "v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse"
    said = await made.run(
        f"{POST} $ANTHROPIC_BASE_URL/v1/messages -H \"x-api-key: $OPENAI_API_KEY\" -d '{{}}'\n"
        f"{POST} $ANTHROPIC_BASE_URL/v1/messages -d '{{\"stream\": true}}'\n"
        f'{POST} $OPENAI_BASE_URL{chat} -H "Authorization: Bearer $OPENAI_API_KEY"\n'
        f"{POST} $OPENROUTER_BASE_URL{chat}\n"
        f"{POST} $OWN_BASE_URL/chat/completions -d '{{}}'\n"
        f"{POST} \"$GOOGLE_GEMINI_BASE_URL/{gemini}&key=$GEMINI_API_KEY\" -d '{{}}'\n"
        f"{POST} -x http://127.0.0.1:3128 -p $OPENAI_BASE_URL{chat} || true\n"
    )
    assert said.count("claude-sonnet") == 2
    assert KEY not in said
    anthropic, _, openai, router, own, google, *_ = made.sent()
    assert f"'x-api-key': '{KEY}anthropic'" in anthropic
    assert "'host': 'api.anthropic.com'" in anthropic
    assert "POST /v1/chat/completions " in openai
    assert f"Bearer {KEY}openai" in openai
    assert "POST /api/v1/chat/completions " in router
    assert "POST /v1/chat/completions " in own
    assert f"/{gemini} " in google
    assert f"'x-goog-api-key': '{KEY}gemini'" in google
    assert not any("pdk-" in line for line in made.sent())

    found = await _used(made, "agent", 6)
    counted = {(each["route"], each["model"]): each for each in found["used"]}
    first = counted["anthropic", "claude-sonnet-4-5"]
    assert (first["requests"], first["input_tokens"], first["output_tokens"]) == (2, 2000, 100)
    assert first["cache_read_tokens"] == 800
    assert not first["assumed_price"]
    assert first["cost_usd"] == pytest.approx((2000 * 3 + 800 * 0.3 + 100 * 15) / 1e6)
    for key in (
        ("openrouter", "gpt-5-mini"),
        ("own", "gpt-5-mini"),
        ("gemini", "gemini-2.5-pro"),
    ):
        each = counted[key]
        assert (each["input_tokens"], each["cache_read_tokens"]) == (1000, 400)
        assert (each["output_tokens"], each["guessed"]) == (50, False)
    async with Server(made.plane.url, made.plane.admin.token) as sdk:
        box = await AsyncSandbox.connect("agent", server=sdk)
        spending = await box.models()
        assert spending.spent_usd == found["spent_usd"]
        assert {each.model for each in spending.used} == {model for _, model in counted}
        assert all(each.works for each in await box.credentials())
    agent = (await made.call("GET", "/v1/sandboxes/agent"))["id"]
    path = f"/v1/events?kind=model.used&subject={agent}&limit=100"
    events = (await made.call("GET", path))["items"]
    total = sum(each["data"]["cost_usd"] for each in events)
    assert total == pytest.approx(found["spent_usd"], abs=1e-4)
    # A route is no way to its host: that is still closed.
    assert (
        await made.plane.admin.post(
            "/v1/sandboxes/agent/exec", {"cmd": ["curl", "-sS", "https://api.openai.com/"]}
        )
    )["exit_code"] == 6


async def test_who_has_spent_enough_is_told_in_the_words_of_the_api(made: World):
    for route in ("anthropic", "openai", "gemini"):
        await _bind(made, route, spend_limit_usd=0.01)
    labels = {"task": "fix-4711"}
    await _sandbox(made, "agent", labels=labels)
    ask = f"{POST} $ANTHROPIC_BASE_URL/v1/messages -d '{{}}'"
    for _ in range(3):
        assert "claude-sonnet" in await made.run(ask)
    said = json.loads(await made.run(ask))
    assert (said["type"], said["error"]["type"]) == ("error", "permission_error")
    whose = f"sandbox {(await made.call('GET', '/v1/sandboxes/agent'))['id']}"
    assert f"spend limit of 0.01 USD for {whose} is reached" in said["error"]["message"]
    assert "paddock secrets bind" in said["error"]["message"]
    assert (await _used(made, "agent", 3))["account"] == whose

    # It has no more in any dialect, also when its gateway is another; a label is no account.
    said = await made.run(f"{POST} $OPENAI_BASE_URL/chat/completions -d '{{}}'")
    assert json.loads(said)["error"]["code"] == "spend_limit_reached"
    await _without_its_gateway(made, "agent")
    url = "$GOOGLE_GEMINI_BASE_URL/v1beta/models/x:generateContent"
    said = await made.run(f"{POST} {url} -d '{{}}'")
    assert json.loads(said)["error"]["status"] == "PERMISSION_DENIED"
    await _sandbox(made, "third", labels=labels)
    assert "claude-sonnet" in await made.run(ask, "third")

    # More money, other prices, and no key at all: each from the next request on.
    await _bind(made, "anthropic", spend_limit_usd=1)
    assert "claude-sonnet" in await made.run(ask)
    price = {"input": 1000.0, "output": 0.0, "cache_read": 0.0, "cache_write": 0.0}
    table = {"prices": {"claude": price, "*": price}, "as_of": "2026-11-16", "note": "ours"}
    assert await made.call("PUT", "/v1/models/prices", table) == table
    assert "claude-sonnet" in await made.run(ask)
    assert "is reached" in await made.run(ask)
    shipped = await made.call("DELETE", "/v1/models/prices")
    assert len(shipped["prices"]) > 10
    assert shipped["as_of"]
    assert "compared with no maker's price list" in shipped["note"]
    await made.call("DELETE", "/v1/secrets/ANTHROPIC_SECRET", status=204)
    said = json.loads(await made.run(ask))
    assert "ANTHROPIC_SECRET was taken back" in said["error"]["message"]

    # What an operator denies by name is denied to a route as well.
    await made.call("POST", "/v1/sandboxes/third/egress/allow", {"rules": ["!api.openai.com"]})
    said = await made.run(f"{POST} $OPENAI_BASE_URL/chat/completions -d '{{}}'", "third")
    assert "denied by the rule !api.openai.com" in json.loads(said)["error"]["message"]


async def test_bad_routes_say_what_is_wrong(made: World):
    for wish, said in (
        ({}, "is no route"),
        ({"route": "Own"}, "is no route"),
        ({"route": "own"}, "is not a valid base URL"),
        ({"route": "own", "base_url": "ftp://llm.example"}, "is not a valid base URL"),
        ({"route": "openai", "hosts": ["evil.example"]}, "of its base URL alone"),
        ({"route": "openai", "spend_limit_usd": -1}, "is none"),
    ):
        path = "/v1/secrets/OPENAI_SECRET/bindings/model"
        answer = await made.plane.admin.call("PUT", path, wish)
        assert (answer.status, said in answer["error"]["message"]) == (400, True), answer.body
    path = "/v1/secrets/OPENAI_SECRET/bindings/header"
    wish = {"hosts": ["a.example"], "route": "openai"}
    assert (await made.plane.admin.call("PUT", path, wish)).status == 400
