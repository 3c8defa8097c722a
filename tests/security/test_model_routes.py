"""Routes to model APIs, tried from inside: a key that is used and cannot be had."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from paddock.adapters.egress.config import EgressConfig
from paddock.domain.broker.models import DEAR, Price, Prices, Tokens
from paddock.ports.egress import Credential, ModelUse
from tests.security.egress_world import NAMES, Inside, World, hosts, on_docker, on_local
from tests.upstreams import upstream

pytestmark = pytest.mark.timeout(120)
KEY = "sk-the-real-key-0123456789"
PLACEHOLDER = "pdk-MODEL-0123456789abcdef0123456789abcdef"
ROUTE = Credential(
    secret="MODEL",
    placeholder=PLACEHOLDER,
    hosts=["blocked.example"],
    way="model",
    value=KEY,
    route="own",
    dialect="openai",
    base_path="/v1",
    account="team/sandbox one",
)
URL = "http://own.models.paddock.internal"


@pytest.fixture(
    scope="module", params=["local-crun", pytest.param("docker", marks=pytest.mark.slow)]
)
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    async with upstream(*NAMES, "blocked.example") as there:
        egress = EgressConfig(hosts=hosts(there), certificates=str(there.certificate))
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
    await world.gateway.set_prices(Prices({"*": Price(10, 10, 1, 10)}))
    async with world.sandbox() as made:
        await give(made, ROUTE)
        yield made


async def give(made: Inside, *credentials: Credential) -> None:
    mark = f"mark-{time.monotonic_ns()}"
    assert await made.world.gateway.give(made.ref.id, mark, credentials)


async def models(made: Inside) -> list[ModelUse]:
    batch = await made.world.gateway.drain({})
    if batch is None:
        return []
    await made.world.gateway.drain({batch.gateway: batch.number})
    return [each for each in batch.models if each.ref == made.ref.id]


@pytest.mark.proves("K5")
async def test_a_route_has_the_key_and_the_sandbox_does_not(inside: Inside):
    header = f"Authorization: Bearer {PLACEHOLDER}"
    for body in ('{"stream": true}', "{}"):
        code, said = await inside.curl("-H", header, "-d", body, f"{URL}/chat/completions")
        assert (code, "gpt-5-mini" in said) == (0, True), said
    seen = inside.world.there.seen.read_text()
    assert seen.count(f"Bearer {KEY}") == 2
    assert "POST /v1/chat/completions" in seen
    assert PLACEHOLDER not in seen
    (use,) = await models(inside)
    assert (use.requests, use.input, use.cache_read, use.output) == (2, 2000, 800, 100)
    assert use.cost == pytest.approx((2000 * 10 + 800 + 100 * 10) / 1e6)
    await give(inside, replace(ROUTE, base_path=""))
    _, said = await inside.curl("-i", f"{URL}/echo")
    assert KEY not in said
    assert "pdk-MODEL" in said


@pytest.mark.proves("K5")
async def test_it_is_nobody_elses_and_no_way_to_its_host(world: World, inside: Inside):
    async with world.sandbox() as other:
        assert (await other.curl(f"{URL}/echo"))[0] == 6
    assert (await inside.curl("https://blocked.example/"))[0] == 6
    assert (await inside.curl("-k", "https://own.models.paddock.internal/"))[0] in (35, 56)
    for more, code in (
        (("-H", "Host: allowed.example"), "403"),
        (("--path-as-is", f"{URL}/../admin"), "403"),
        (("--path-as-is", f"{URL}/a/%2e%2e/admin"), "403"),
    ):
        _, said = await inside.curl("-i", *more, *([f"{URL}/x"] if more[0] == "-H" else []))
        assert f" {code} " in said.splitlines()[0], said
    assert inside.world.there.seen.read_text() == ""


async def test_connections_that_have_ended_leave_nothing_behind(world: World, inside: Inside):
    async with world.nothing_left():
        for body in ('{"stream": true}', "{}") * 3:
            close = ("-H", "Connection: close")
            assert (await inside.curl(*close, "-d", body, f"{URL}/chat/completions"))[0] == 0
            assert (await inside.curl("-d", body, f"{URL}/chat/completions"))[0] == 0


async def test_a_limit_is_kept_from_the_request_that_reaches_it_on(inside: Inside):
    await give(inside, replace(ROUTE, account=f"team/sandbox {inside.ref.id}", limit=0.01))
    for _ in range(2):
        _, said = await inside.curl("-i", "-d", "{}", f"{URL}/chat/completions")
    assert "403 Forbidden" in said
    assert "spend_limit_reached" in said
    assert inside.world.there.seen.read_text().count("\n") == 1
    await give(inside)
    assert (await inside.curl(f"{URL}/echo"))[0] in (6, 52, 56)


async def test_a_model_without_a_price_does_not_pass_a_limit_by_that(inside: Inside):
    await inside.world.gateway.set_prices(Prices({"another-model": Price(1, 1, 1, 1)}))
    await give(inside, replace(ROUTE, account=f"team/unpriced {inside.ref.id}", limit=0.01))
    for _ in range(2):
        _, said = await inside.curl("-i", "-d", "{}", f"{URL}/chat/completions")
    assert "spend_limit_reached" in said
    (use,) = await models(inside)
    assert use.assumed
    assert use.cost == pytest.approx(DEAR.cost(Tokens(1000, 50, 400)))


BODY = '{"stream": true, "max_tokens": 1000, "pad": "' + "x" * 4160 + '"}'
COST = (1000 * 10 + 400 * 1 + 50 * 10) / 1e6
MOST = (len(BODY) / 3 + 1000) * 10 / 1e6
_TOGETHER = """
import collections, http.client, sys, threading
codes, bodies = collections.Counter(), []
go = threading.Barrier(20)
def ask():
    there = http.client.HTTPConnection("own.models.paddock.internal", timeout=60)
    go.wait()
    there.request("POST", "/chat/completions", sys.argv[1])
    answer = there.getresponse()
    bodies.append(answer.read())
    codes[answer.status] += 1
    there.close()
threads = [threading.Thread(target=ask) for _ in range(20)]
[each.start() for each in threads]; [each.join() for each in threads]
print(codes[200], codes[403], codes[429], sum(b"spend_limit_reached" in each for each in bodies))
"""


async def test_requests_at_the_same_time_do_not_pass_a_limit_together(inside: Inside):
    limit = 0.06
    await give(inside, replace(ROUTE, account=f"team/together {inside.ref.id}", limit=limit))
    code, said = await inside.run("python3", "-c", _TOGETHER, BODY, timeout=90)
    assert code == 0, said
    answered, refused, busy, told = map(int, said.split())
    assert (answered + refused + busy, told) == (20, refused), said
    uses = await models(inside)
    spent = sum(each.cost for each in uses)
    assert spent == pytest.approx(answered * COST)
    # The last one was alone when something was left: what it cost is all that is too much.
    assert limit <= spent < limit + COST <= limit + MOST
    assert inside.world.there.seen.read_text().count("\n") == answered


async def test_an_answer_that_is_cut_off_is_charged_as_what_it_might_have_been(inside: Inside):
    account = f"team/cut {inside.ref.id}"
    ask = '{"max_tokens": 700, "model": "gpt-5-mini"}'
    streams = '{"max_tokens": 700, "model": "gpt-5-mini", "stream": true}'
    for limit in (1.0, None):
        await give(inside, replace(ROUTE, account=account, limit=limit))
        # What a stream has told of is no measure of what it took, where a limit is to be kept.
        of_stream = 1 if limit is None else 700
        for body, query, output in (
            (ask, "silent", 700),
            (ask, "breaks", 700),
            (streams, "breaks", of_stream),
        ):
            code, _ = await inside.curl("-d", body, f"{URL}/chat/completions?{query}")
            assert code in (18, 52, 56)
            (use,) = await _told(inside)
            assert (use.model, use.guessed, use.output) == ("gpt-5-mini", True, output)
            assert use.cost > 0


async def _told(inside: Inside) -> list[ModelUse]:
    async with asyncio.timeout(30):
        while not (found := await models(inside)):
            await asyncio.sleep(0.1)
    return found


async def test_what_is_not_counted_is_refused_where_there_is_a_limit(inside: Inside):
    limited = replace(ROUTE, account=f"team/uncounted {inside.ref.id}", limit=1.0)
    for dialect, path in (
        ("anthropic", "/messages/batches"),
        ("openai", "/batches"),
        ("openai", "/images/generations"),
        ("openai", "/files"),
        ("gemini", "/models/gemini-2.5-pro:batchGenerateContent"),
    ):
        await give(inside, replace(limited, dialect=dialect))
        _, said = await inside.curl("-i", "-d", "{}", f"{URL}{path}")
        assert "403 Forbidden" in said
        assert "is not counted, and the route own has a spend limit" in said
    await give(inside, limited)
    chat = f"{URL}/chat/completions"
    for more, status in (
        (("-d", "no json", chat), 400),
        (("-d", '{"max_tokens": 90000, "max_tokens": 1}', chat), 400),
        (("-H", "Content-Encoding: gzip", "-d", "{}", chat), 400),
        (("-d", '{"background": true}', f"{URL}/responses"), 403),
    ):
        _, said = await inside.curl("-i", *more)
        assert said.startswith(f"HTTP/1.1 {status} "), said
        assert "has a spend limit" in said
    assert inside.world.there.seen.read_text() == ""
    free = ((f"{URL}/models",), ("-d", "{}", f"{URL}/responses/input_tokens"))
    for more in free:
        assert " 200 " in (await inside.curl("-i", *more))[1]
    large = 'b=$(head -c 2000000 /dev/zero | tr "\\0" x); printf \'{"a": "%s"}\' "$b" | '
    code, said = await inside.run("sh", "-c", f"{large} curl -sS -m 8 -d @- {chat}")
    assert (code, "gpt-5-mini" in said) == (0, True), said
    assert [each.requests for each in await models(inside)] == [1]
    await give(inside, replace(limited, limit=None))
    assert " 200 " in (await inside.curl("-i", "-d", "{}", f"{URL}/batches"))[1]
    assert await models(inside) == []


@pytest.mark.proves("K5")
async def test_a_host_that_does_not_prove_to_be_it_gets_no_key(inside: Inside):
    await give(inside, replace(ROUTE, hosts=["trap.example:8443"]))
    _, said = await inside.curl("-i", f"{URL}/echo")
    assert "502" in said or "403" in said
    await give(inside, replace(ROUTE, hosts=["wild.example"]))
    _, said = await inside.curl("-i", f"{URL}/echo")
    assert "502 Bad Gateway" in said
    assert "does not prove to be it" in said
    assert inside.world.there.seen.read_text() == ""
