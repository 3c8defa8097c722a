"""The scripted model over HTTP: streams, failures, cuts, gates, and what it remembers."""

import asyncio
import gzip
import json
import signal
import subprocess
import sys
import time
import urllib.request

import aiohttp
import pytest

from paddock.testing.models import (
    BadScript,
    CallTool,
    Cut,
    Fail,
    RunShell,
    Script,
    ScriptedModel,
    Turn,
    Usage,
    scripted_model,
)
from paddock.testing.models.record import Attempts, Record, Request
from tests.testing.models.recorded import AGENTS, parsed, requests

PATHS = {
    "anthropic": "/v1/messages?beta=true",
    "responses": "/v1/responses",
    "chat": "/v1/chat/completions",
    "gemini": "/v1beta/models/m:generateContent",
}
HELLO = Script(
    (Turn(say="Hello there.", think="Hm.", usage=Usage(11, 7, 3, 2, 1)),), without_tools=True
)


def body(dialect, stream=False, said="hi"):
    text = {"role": "user", "content": said}
    bodies = {
        "anthropic": {"model": "m", "messages": [text]},
        "responses": {"model": "m", "input": said},
        "chat": {"model": "m", "messages": [text], "stream_options": {"include_usage": True}},
        "gemini": {"contents": [{"role": "user", "parts": [{"text": said}]}]},
    }
    return {**bodies[dialect], **({} if dialect == "gemini" else {"stream": stream})}


def path(dialect, stream=False):
    found = PATHS[dialect]
    return (
        found.replace(":generate", ":streamGenerate") + "?alt=sse"
        if (stream and dialect == "gemini")
        else found
    )


async def ask(model, dialect="chat", stream=False, said="hi", key="", timeout=20):
    headers = {"authorization": f"Bearer {key}"} if key else {}
    limit = aiohttp.ClientTimeout(total=timeout)
    url = model.url + path(dialect, stream)
    async with aiohttp.ClientSession(timeout=limit) as session:
        async with session.post(url, json=body(dialect, stream, said), headers=headers) as response:
            return response.status, await response.text(), response.headers


@pytest.mark.parametrize("dialect", PATHS)
async def test_a_reply_at_once_and_streamed_say_the_same(dialect):
    async with ScriptedModel(HELLO) as model:
        _, whole, _ = await ask(model, dialect)
        status, streamed, headers = await ask(model, dialect, stream=True)
    assert status == 200
    assert headers["content-type"] == "text/event-stream"
    assert headers["request-id"] == "req_000001"
    assert "Hello there." in whole
    assert "Hm." in whole
    assert "Hello there." in json.dumps(parsed(streamed))
    numbers = {"chat": '"completion_tokens":7', "gemini": '"candidatesTokenCount":7'}
    tokens = numbers.get(dialect, '"output_tokens":7')
    assert tokens in whole
    assert tokens in streamed


@pytest.mark.parametrize("dialect", PATHS)
async def test_a_turn_fails_as_often_as_it_says_and_is_then_played(dialect):
    fail = Fail(429, "slow down", headers={"retry-after": "1"}, times=2)
    async with ScriptedModel(Script((Turn(say="ok", fail=fail),), without_tools=True)) as model:
        answers = [await ask(model, dialect) for _ in range(3)]
        other = await ask(model, dialect, said="another conversation")
    assert [status for status, _, _ in answers] == [429, 429, 200]
    assert "slow down" in answers[0][1]
    assert answers[0][2]["retry-after"] == "1"
    assert other[0] == 429


async def test_without_times_a_failure_is_for_ever():
    async with ScriptedModel(Script((Turn(fail=Fail(500)),), without_tools=True)) as model:
        assert [(await ask(model))[0] for _ in range(4)] == [500] * 4


@pytest.mark.parametrize("dialect", PATHS)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_cut_breaks_the_connection_and_the_retry_gets_all(dialect, stream):
    turn = Turn(say="Hello there.", cut=Cut(after=1, times=1))
    async with ScriptedModel(Script((turn,), without_tools=True)) as model:
        with pytest.raises(aiohttp.ClientError):
            await ask(model, dialect, stream)
        _, text, _ = await ask(model, dialect, stream)
        assert [request.was_cut for request in model.requests] == [True, False]
    assert "Hello there." in text


async def test_a_cut_lets_the_events_before_it_through():
    turn = Turn(say="Hello there.", cut=Cut(after=2))
    got = b""
    async with ScriptedModel(Script((turn,), without_tools=True)) as model:
        async with aiohttp.ClientSession() as session:
            url = model.url + path("chat")
            async with session.post(url, json=body("chat", stream=True)) as response:
                with pytest.raises(aiohttp.ClientError):
                    while chunk := await response.content.readany():
                        got += chunk
    assert len(parsed(got.decode())) == 2


async def test_failures_come_before_cuts_and_both_before_the_turn():
    turn = Turn(say="ok", fail=Fail(503, times=1), cut=Cut(0, times=1))
    async with ScriptedModel(Script((turn,), without_tools=True)) as model:
        assert (await ask(model))[0] == 503
        with pytest.raises(aiohttp.ClientError):
            await ask(model)
        assert (await ask(model))[0] == 200


async def test_waits_and_pauses_take_their_time():
    turn = Turn(say="Hello there.", wait_s=0.2, pause_s=0.05)
    async with ScriptedModel(Script((turn,), without_tools=True)) as model:
        began = time.monotonic()
        _, text, _ = await ask(model, stream=True)
    assert time.monotonic() - began > 0.2 + 0.05 * len(parsed(text)) - 0.01


async def test_a_gate_holds_a_turn_until_it_is_opened():
    async with ScriptedModel(Script((Turn(say="ok", gate="go"),), without_tools=True)) as model:
        asking = asyncio.create_task(ask(model))
        await model.wait_for(lambda request: request.is_turn)
        await asyncio.sleep(0.1)
        assert not asking.done()
        model.open("go")
        assert (await asking)[0] == 200


async def test_a_gate_that_no_script_has_is_an_error():
    script = Script((Turn(say="ok", gate="go"),), afterwards=Turn(say="ok", gate="on"))
    async with ScriptedModel(script) as model, aiohttp.ClientSession() as session:
        with pytest.raises(BadScript, match="no script has a gate 'og'; there are: go, on"):
            model.open("og")
        for gate, status in (("on", 204), ("og", 404)):
            async with session.post(f"{model.url}/__open/{gate}") as response:
                assert response.status == status


async def test_a_turn_that_hangs_ends_with_the_server():
    async with ScriptedModel(Script((Turn(hang=True),), without_tools=True)) as model:
        with pytest.raises(TimeoutError):
            await ask(model, timeout=0.3)
        asking = asyncio.create_task(ask(model))
        await model.wait_for(lambda request: request.number == 1)
        began = time.monotonic()
    assert time.monotonic() - began < 20
    with pytest.raises(aiohttp.ClientError):
        await asking


async def test_several_scripts_at_once():
    scripts = [
        Script((Turn(say="for a"),), "a", key="ka", without_tools=True),
        Script((Turn(say="for b"),), "b", marker="[b]", without_tools=True),
    ]
    async with ScriptedModel(*scripts) as model:
        answers = await asyncio.gather(ask(model, key="ka"), ask(model, said="go [b]", key="x"))
        refused = await ask(model, key="x")
        assert {request.script for request in model.turns} == {"a", "b"}
        assert len(model.problems) == 1
    assert "for a" in answers[0][1]
    assert "for b" in answers[1][1]
    assert refused[0] == 400
    assert "none of the markers [b]" in refused[1]


async def test_a_message_in_a_later_request_can_be_waited_for():
    script = Script((Turn(say="one"), Turn(say="two")), without_tools=True)
    async with ScriptedModel(script) as model:
        waiting = asyncio.create_task(model.wait_for(lambda request: "steer" in request.said()))
        await ask(model)
        await ask(model, said="steer left")
        found = await waiting
        with pytest.raises(TimeoutError):
            await model.wait_for(lambda request: request.turn == 7, timeout_s=0.05)
    assert found.number == 1
    assert found.body["messages"][0]["content"] == "steer left"


@pytest.mark.parametrize("agent", AGENTS)
async def test_recorded_requests_of_agents_are_answered(agent):
    script = Script((Turn(say="t", calls=(RunShell("ls"),)), Turn(say="Done.")))
    limit = aiohttp.ClientTimeout(total=20)
    async with ScriptedModel(script) as model, aiohttp.ClientSession(timeout=limit) as session:
        offered = None
        for sent in requests(agent):
            again = "same list" in str(sent.body.get("tools"))
            given = {**sent.body, "tools": offered} if again else sent.body
            offered = given.get("tools")
            async with session.post(model.url + sent.path, json=given) as response:
                assert response.status == 200, await response.text()
                text = await response.text()
                assert ('{"response":{' in text) == sent.path.startswith("/v1internal")
        assert [request.turn for request in model.turns] in ([0], [0, 1])
        assert not model.problems


@pytest.mark.parametrize("dialect", PATHS)
async def test_a_turn_without_a_tool_for_it_is_an_error_that_says_so(dialect):
    script = Script((Turn(calls=(RunShell("ls"),)),), without_tools=True)
    async with ScriptedModel(script) as model:
        status, text, _ = await ask(model, dialect, stream=True)
        assert "cannot be played: no tool of the agent runs a command" in model.problems[0]
    assert status == 400
    assert "it offers: none" in text


@pytest.mark.parametrize(
    ("data", "reason"),
    [(b"{", "not JSON"), (b"[]", "not an object but list"), (b"\xff", "not JSON")],
)
async def test_a_request_that_is_no_request_is_refused(data, reason):
    async with ScriptedModel(HELLO) as model, aiohttp.ClientSession() as session:
        async with session.post(f"{model.url}/v1/messages", data=data) as response:
            assert response.status == 400
            assert reason in await response.text()


async def test_bodies_may_be_compressed():
    data = gzip.compress(json.dumps(body("chat")).encode())
    async with ScriptedModel(HELLO) as model, aiohttp.ClientSession() as session:
        url, headers = f"{model.url}/v1/chat/completions", {"content-encoding": "gzip"}
        async with session.post(url, data=data, headers=headers) as response:
            assert "Hello there." in await response.text()


@pytest.mark.parametrize(
    ("method", "way", "status", "part"),
    [
        ("POST", "/v1/messages/count_tokens", 200, '"input_tokens": '),
        ("POST", "/v1beta/models/m:countTokens", 200, '"totalTokens": '),
        ("POST", "/v1internal:loadCodeAssist", 200, "standard-tier"),
        ("GET", "/v1/models", 200, '"has_more": false'),
        ("GET", "/v1beta/models", 200, '"models/scripted"'),
        ("HEAD", "/api/hello", 404, ""),
        ("POST", "/v1/embeddings", 404, "POST /v1/embeddings is no model API"),
    ],
)
async def test_what_clients_ask_besides(method, way, status, part):
    async with ScriptedModel(HELLO) as model, aiohttp.ClientSession() as session:
        async with session.request(method, model.url + way, json={}) as response:
            assert response.status == status
            assert part in await response.text()
        assert not model.turns


async def test_a_websocket_is_refused_at_once():
    async with ScriptedModel(HELLO) as model, aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await session.ws_connect(f"{model.url}/v1/responses")
    assert refused.value.status == 426


async def test_a_large_reply_arrives_whole():
    content = "x" * 1_000_000
    script = Script((Turn(calls=(CallTool("w", {"content": content}),)),), without_tools=True)
    async with ScriptedModel(script) as model:
        _, text, _ = await ask(model, "anthropic", stream=True)
    deltas = [data.get("delta", {}) for _, data in parsed(text)]
    assert json.loads("".join(delta.get("partial_json", "") for delta in deltas)) == {
        "content": content
    }


def test_the_record_is_bounded_by_count_and_by_bytes():
    def request(number, size):
        return Request(number, 0, "/", {}, size)

    record = Record(limit=3, limit_bytes=100)
    for number in range(5):
        record.add(request(number, 10))
    assert [each.number for each in record] == [2, 3, 4]
    record.add(request(5, 95))
    assert [each.number for each in record] == [5]
    record.add(request(6, 500))
    assert [each.number for each in record] == [6]
    assert (record.dropped, record.count) == (6, 7)


def test_attempts_are_counted_within_bounds():
    attempts = Attempts(limit=2)
    assert [attempts.next("a"), attempts.next("a"), attempts.next("b")] == [0, 1, 0]
    attempts.next("c")
    assert attempts.next("a") == 0


def test_it_works_without_an_event_loop():
    with scripted_model(HELLO) as model:
        data = json.dumps(body("chat")).encode()
        with urllib.request.urlopen(f"{model.url}/v1/chat/completions", data, 20) as response:
            assert b"Hello there." in response.read()
        assert model.wait_for(lambda request: request.is_turn).status == 200
        assert len(model.requests) == len(model.turns) == 1
        assert not model.problems
    assert len(model.requests) == 1


def test_a_bad_script_fails_where_it_is_started():
    with pytest.raises(ValueError, match="no script at all"), scripted_model():
        pass


def test_it_serves_a_file_from_the_command_line(tmp_path):
    file = tmp_path / "hello.toml"
    file.write_text('without_tools = true\nturns = [{say = "Hello there.", gate = "go"}]')
    command = [sys.executable, "-m", "paddock.testing.models", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            url = process.stdout.readline().strip()
            urllib.request.urlopen(f"{url}/__open/go", b"", 20).close()
            data = json.dumps(body("chat")).encode()
            with urllib.request.urlopen(f"{url}/v1/chat/completions", data, 20) as response:
                assert b"Hello there." in response.read()
            with urllib.request.urlopen(f"{url}/__log", timeout=20) as response:
                (logged,) = json.load(response)
            assert logged["body"] == body("chat")
            assert (logged["turn"], logged["status"]) == (0, 200)
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
        finally:
            process.kill()
