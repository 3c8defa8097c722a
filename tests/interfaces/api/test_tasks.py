"""Tasks over HTTP: given, followed, told, compared, undone; and what is refused."""

import asyncio
import base64
import io
import json

import pytest

from paddock.testing.agent import prompt_of
from paddock.testing.simulated import SimulatedProvider
from tests.control_plane import disposable
from tests.tasks.conftest import SETTINGS, at_work

pytestmark = pytest.mark.timeout(90)
ENDED = {"completed", "failed", "cancelled"}
WRITES = ({"write": ["a.txt", "one\ntwo\n"]}, {"say": "It is there."})


@pytest.fixture(scope="module")
async def plane():
    async with disposable(provider=SimulatedProvider, settings=SETTINGS) as made, at_work(made):
        yield made


def wish(*steps, **more):
    return {"prompt": prompt_of(*steps), "agent": "scripted", "template": "plain", **more}


async def give(plane, *steps, **more):
    answer = await plane.admin.post("/v1/tasks", wish(*steps, **more))
    assert answer.status == 201, answer.body
    return answer.body


async def told(who, task, query=""):
    async with asyncio.timeout(30):
        path = f"/v1/tasks/{task['id']}/events?format=ndjson{query}"
        return [line async for line in who.lines("GET", path)]


async def ended(plane, task):
    await told(plane.admin, task)
    answer = await plane.admin.get(f"/v1/tasks/{task['id']}")
    assert answer["state"] in ENDED
    return answer.body


@pytest.mark.proves("T1", "T20", "T6")
async def test_a_task_is_given_followed_and_shown_with_its_result(plane):
    usage = {"input_tokens": 5, "cached_tokens": 0, "output_tokens": 2, "cost_usd": 0.25}
    task = await give(
        plane,
        {"usage": usage},
        *WRITES,
        name="first",
        labels={"of": "test"},
        env={"KEY": "a-value-to-hide"},
        files=[{"path": "in.bin", "base64": base64.b64encode(b"\0in").decode(), "mode": 0o600}],
        checks=[{"name": "there", "cmd": ["test", "-s", "a.txt"]}],
        budget={"tokens": 1000},
        timeout_s=60,
    )
    assert (task["state"], task["phase"], task["result"]) == ("pending", None, None)
    events = await told(plane.admin, task)
    assert (events[0]["kind"], events[-1]["kind"]) == ("task.pending", "task.completed")
    assert {each["subject"] for each in events} == {task["id"]}
    done = (await plane.admin.get(task["links"]["events"].removesuffix("/events"))).body
    assert (done["state"], done["name"], done["phase"]) == ("completed", "first", "sync_out")
    assert done["prompt"] == prompt_of({"usage": usage}, *WRITES)
    assert (done["env_names"], done["given_files"]) == (["KEY"], ["in.bin"])
    assert (done["budget"]["tokens"], done["timeout_s"], done["runs"]) == (1000, 60.0, 1)
    assert (done["spent"]["input_tokens"], done["spent"]["cost_usd"]) == (5, 0.25)
    result = done["result"]
    assert result["message"] == "It is there."
    changed = {"path": "a.txt", "kind": "added", "added": 2, "removed": 0}
    assert result["files"] == [changed]
    assert [(each["name"], each["exit_code"]) for each in result["checks"]] == [("there", 0)]
    assert done["checkpoint"]
    assert result["commit"]
    assert done["session"] == task["id"]
    box = await plane.admin.get(done["links"]["sandbox"])
    assert (box.status, box["id"]) == (200, done["sandbox_id"])
    listed = (await plane.admin.get(f"/v1/tasks?sandbox={done['sandbox_id']}"))["items"]
    (short,) = listed
    assert (short["result"]["files"], short["result"]["added"]) == (1, 2)
    assert short["prompt"] == task["prompt"]
    for shown in (task, done, short, events):
        assert "a-value-to-hide" not in json.dumps(shown)


@pytest.mark.proves("T5")
async def test_events_are_resumed_at_any_place_and_end_with_the_task(plane):
    task = await give(plane, {"say": "one"}, {"await": 1}, {"say": "two"})
    first = []
    async with asyncio.timeout(30):
        path = f"/v1/tasks/{task['id']}/events?format=ndjson"
        async for event in plane.admin.lines("GET", path):
            first.append(event)
            if event["kind"] == "agent.message":
                break
    so_far = await told(plane.admin, task, "&follow=false")
    assert so_far[: len(first)] == first
    resumed = asyncio.create_task(told(plane.admin, task, f"&after={first[-1]['seq']}"))
    await plane.admin.post(f"/v1/tasks/{task['id']}/messages", {"text": "go on"})
    rest = await resumed
    assert rest[-1]["kind"] == "task.completed"
    assert first + rest == await told(plane.admin, task)
    here = f"/v1/tasks/{task['id']}/events"
    last = {"last-event-id": str(rest[-1]["seq"])}
    over = await plane.admin.get(here, headers=last)
    assert (over.status, over.body) == (204, b"")
    last = {"last-event-id": str(rest[-2]["seq"])}
    sse = await plane.admin.get(here, headers=last)
    assert sse.headers["content-type"].startswith("text/event-stream")
    began, told_last = (each["seq"] for each in rest[-2:])
    assert sse.body.startswith(f"id: {began}\n\nevent: task.completed\nid: {told_last}\n".encode())
    some = await told(plane.admin, task, "&kind=agent.message")
    assert [each["kind"] for each in some] == [*["agent.message"] * 2, "task.completed"]
    for bad in ("&after=-1", "&after=999999999999", "&kind=nothing"):
        assert (await plane.admin.get(f"{here}?x=1{bad}")).status == 400, bad


@pytest.mark.proves("M5", "M1")
async def test_messages_have_receipts_and_are_sent_once(plane):
    task = await give(plane, {"await": 2}, {"say": "heard"})
    path = f"/v1/tasks/{task['id']}/messages"
    key = {"idempotency-key": "said-once"}
    sent = await plane.admin.post(path, {"text": "one"}, headers=key)
    assert (sent.status, sent["mode"], sent["task_id"]) == (201, "now", task["id"])
    again = await plane.admin.post(path, {"text": "one"}, headers=key)
    assert (again.status, again["id"]) == (201, sent["id"])
    other = await plane.admin.post(path, {"text": "two"}, headers=key)
    assert other.status == 409
    await plane.admin.post(path, {"text": "two", "mode": "interrupt"})
    assert (await ended(plane, task))["state"] == "completed"
    found = (await plane.admin.get(path))["items"]
    assert [(each["text"], each["mode"], each["state"]) for each in found] == [
        ("one", "now", "seen"),
        ("two", "interrupt", "seen"),
    ]
    one = await plane.admin.get(f"{path}/{sent['id']}")
    assert one.body == found[0]
    assert one["queued_at"] <= one["delivered_at"] <= one["seen_at"]
    assert (one["expires_at"], one["expected_at"]) == (None, None)
    bad = await plane.admin.post(path, {"text": "x", "ttl_s": 0})
    assert (bad.status, bad["error"]["code"]) == (400, "invalid_request")
    page = await plane.admin.get(f"{path}?limit=1")
    assert [each["id"] for each in page["items"]] == [sent["id"]]
    page = await plane.admin.get(f"{path}?limit=1&cursor={page['next_cursor']}")
    assert ([each["text"] for each in page["items"]], page["next_cursor"]) == (["two"], None)
    late = await plane.admin.post(path, {"text": "late"})
    assert (late.status, late.error["code"]) == (409, "conflict")
    assert "follow" in late.error["remediation"]
    assert (await plane.admin.get(f"{path}/msg_nobody")).status == 404
    for bad in ({"text": ""}, {"text": " "}, {"text": "a\0b"}, {"text": "a", "mode": "later"}):
        assert (await plane.admin.post(path, bad)).status == 400, bad


@pytest.mark.proves("T8")
async def test_one_that_is_cancelled_ends_whatever_it_was_doing(plane):
    task = await give(plane, {"say": "begun"}, {"await": 1})
    path = f"/v1/tasks/{task['id']}/events?format=ndjson"
    async with asyncio.timeout(30):
        async for event in plane.admin.lines("GET", path):
            if event["kind"] == "agent.message":
                break
    asked = await plane.admin.post(f"/v1/tasks/{task['id']}/cancel")
    assert (asked.status, asked["cancelling"]) == (202, True)
    done = await ended(plane, task)
    assert (done["state"], done["reason"], done["cancelling"]) == ("cancelled", "cancelled", False)
    again = await plane.admin.post(f"/v1/tasks/{task['id']}/cancel")
    assert (again.status, again["state"]) == (202, "cancelled")
    waits = await give(plane, {"say": "x"}, after=[(await give(plane, {"await": 1}))["id"]])
    asked = await plane.admin.post(f"/v1/tasks/{waits['id']}/cancel")
    assert (asked.status, asked["state"]) == (202, "cancelled"), "it had not begun"


async def test_what_an_agent_wrote_is_read_as_it_was_written(plane):
    task = await give(plane, {"say": "one"}, {"garbage": 1}, {"flood": 200_000}, {"say": "two"})
    assert (await ended(plane, task))["state"] == "completed"
    path = f"/v1/tasks/{task['id']}/output"
    plain = await plane.admin.get(path)
    assert plain.headers["content-type"].startswith("text/plain")
    assert plain.headers["x-content-type-options"] == "nosniff"
    assert b'{"type": "say", "text": "one"}\n\x00\xff{not json 0\n' in plain.body
    assert len(plain.body) > 200_000
    pieces = [line async for line in plane.admin.lines("GET", f"{path}?format=ndjson")]
    assert b"".join(_data(piece) for piece in pieces) == plain.body
    after = pieces[0]
    query = f"format=ndjson&run={after['run']}&offset={after['offset']}"
    rest = [line async for line in plane.admin.lines("GET", f"{path}?{query}")]
    assert rest == pieces[1:]


def _data(piece):
    if "data_base64" in piece:
        return base64.b64decode(piece["data_base64"])
    return piece["data"].encode()


@pytest.mark.proves("T9")
async def test_what_it_changed_is_had_as_a_diff_and_undone(plane):
    task = await give(plane, *WRITES)
    path = f"/v1/tasks/{task['id']}"
    for verb, call in (("diff", plane.admin.get), ("revert", plane.admin.post)):
        early = await call(f"{path}/{verb}")
        assert (early.status, early.error["code"]) == (409, "conflict"), early.body
        assert early.error["remediation"]
    done = await ended(plane, task)
    diff = await plane.admin.get(f"{path}/diff")
    assert diff.headers["content-type"].startswith("text/x-diff")
    assert diff.headers["x-paddock-cut"] == "false"
    assert b"+++ b/a.txt" in diff.body
    assert b"+two\n" in diff.body
    undone = await plane.admin.post(f"{path}/revert")
    assert undone.status == 200, undone.body
    look = {"cmd": ["ls", "-A", done["directory"]]}
    ran = await plane.admin.post(f"/v1/sandboxes/{done['sandbox_id']}/exec", look)
    assert "a.txt" not in ran["stdout"].split()
    events = await told(plane.admin, task)
    assert events[-1]["kind"] == "task.reverted"


@pytest.mark.proves("M11")
async def test_a_follow_up_goes_on_with_the_session_where_it_was(plane):
    first = await ended(plane, await give(plane, *WRITES))
    body = {"prompt": "One more thing.", "follows": first["id"]}
    answer = await plane.admin.post("/v1/tasks", body)
    assert answer.status == 201, answer.body
    second = await ended(plane, answer)
    assert second["agent"] == "scripted"
    assert (second["follows"], second["session"]) == (first["id"], first["session"])
    assert second["sandbox_id"] == first["sandbox_id"]
    assert second["directory"] == first["directory"]


async def test_a_batch_is_made_whole_or_not_at_all(plane):
    key = {"idempotency-key": "a batch / with any key"}
    body = {"tasks": [wish({"say": "one"}, name="one"), wish({"say": "two"}, name="two")]}
    made = await plane.admin.post("/v1/tasks/batch", body, headers=key)
    assert made.status == 201, made.body
    again = await plane.admin.post("/v1/tasks/batch", body, headers=key)
    assert [each["id"] for each in again["tasks"]] == [each["id"] for each in made["tasks"]]
    listed = await plane.admin.get(f"/v1/tasks?batch={made['batch']}")
    assert [each["name"] for each in listed["items"]] == ["two", "one"]
    for task in made["tasks"]:
        assert (await ended(plane, task))["state"] == "completed"
    before = len((await plane.admin.get("/v1/tasks?limit=500"))["items"])
    bad = {"tasks": [wish({"say": "one"}), wish({"say": "two"}, agent="nobody")]}
    refused = await plane.admin.post("/v1/tasks/batch", bad)
    assert (refused.status, refused.error["code"]) == (400, "invalid_request")
    assert "nobody" in refused.error["message"]
    assert len((await plane.admin.get("/v1/tasks?limit=500"))["items"]) == before
    assert (await plane.admin.post("/v1/tasks/batch", {"tasks": []})).status == 400


async def test_attempts_are_compared_and_one_is_adopted(plane, box):
    steps = ({"write": ["made.txt", "good\n"]}, {"say": "made"})
    task = wish(*steps, sandbox=box["id"], checks=[{"name": "is", "cmd": ["cat", "made.txt"]}])
    del task["template"]
    body = {"task": task, "variants": [{"agent": "scripted"}, {}]}
    begun = await plane.admin.post("/v1/attempts", body)
    assert begun.status == 201, begun.body
    first, second = begun["attempts"]
    early = await plane.admin.post(f"/v1/tasks/{first['id']}/adopt")
    assert early.status == 409
    for each in (first, second):
        assert (await ended(plane, each))["state"] == "completed"
    side = await plane.admin.get(f"/v1/attempts/{begun['id']}")
    assert [each["id"] for each in side["attempts"]] == [first["id"], second["id"]]
    boxes = {each["sandbox_id"] for each in side["attempts"]}
    assert len(boxes | {box["id"]}) == 3
    for each in side["attempts"]:
        assert (each["result"]["files"], each["result"]["added"]) == (1, 1)
        assert [(c["name"], c["exit_code"]) for c in each["result"]["checks"]] == [("is", 0)]
    adopted = await plane.admin.post(f"/v1/tasks/{second['id']}/adopt")
    assert (adopted.status, adopted["adopted"]) == (200, True), adopted.body
    look = {"cmd": ["sh", "-c", "cat */made.txt"]}
    found = await plane.admin.post(f"/v1/sandboxes/{box['id']}/exec", look)
    assert found["stdout"] == "good\n", found.body
    other = await plane.admin.post(f"/v1/tasks/{first['id']}/adopt")
    assert other.status == 409
    assert second["id"] in other.error["message"]
    assert (await plane.admin.get("/v1/attempts/att_nobody")).status == 404
    alone = {"task": task, "variants": [{}]}
    assert (await plane.admin.post("/v1/attempts", alone)).status == 400


@pytest.mark.parametrize(
    ("body", "says"),
    [
        pytest.param({"prompt": ""}, "the prompt is empty", id="empty"),
        pytest.param({"prompt": " \n"}, "the prompt is empty", id="blank"),
        pytest.param({"prompt": "a\0b"}, "NUL", id="nul"),
        pytest.param({"agent": "nobody"}, "there is no agent 'nobody'", id="agent"),
        pytest.param({"sandbox": ""}, "sandbox", id="no sandbox"),
        pytest.param({"model": "any"}, "it has no model", id="model"),
        pytest.param({"fork": "x"}, "one place", id="two places"),
        pytest.param({"timeout_s": 86401}, "timeout_s", id="timeout"),
        pytest.param({"budget": {"turns": 0}}, "turns", id="budget"),
        pytest.param({"files": [{"path": "../x"}]}, "no place for a file", id="outside"),
        pytest.param({"files": [{"path": "x", "text": "a", "base64": "YQ=="}]}, "exclude", id="2x"),
        pytest.param({"files": [{"path": "x", "base64": "?"}]}, "base64", id="base64"),
        pytest.param({"checks": [{"name": "!", "cmd": ["x"]}]}, "no usable name", id="check"),
        pytest.param({"tools": [{"name": "x"}]}, "either a command or a url", id="tool"),
        pytest.param({"directory": "/a/../b"}, "no directory", id="directory"),
        pytest.param({"promt": "x"}, "promt", id="misspelt"),
    ],
)
async def test_what_is_wrong_is_said_before_anything_is_made(plane, body, says):
    answer = await plane.admin.post("/v1/tasks", {**wish({"say": "x"}), **body})
    assert (answer.status, answer.error["code"]) == (400, "invalid_request"), answer.body
    assert says in answer.error["message"], answer.error
    assert answer.error["remediation"]


async def test_a_prompt_of_any_content_is_kept_as_it_is_up_to_its_longest(plane):
    asks = {"agent": "scripted", "template": "plain", "after": [(await idle(plane))["id"]]}
    words = "$(rm -rf /) `id` 'x' \"y\" \\ \u202e \N{PILE OF POO} \r\n\t -- --help %s {0}"
    for prompt in (words, words + "x" * ((1 << 20) - len(words.encode()))):
        answer = await plane.admin.call("POST", "/v1/tasks", **sent({**asks, "prompt": prompt}))
        assert answer.status == 201, answer.body
        assert answer["prompt"] == prompt
        (listed, *_) = (await plane.admin.get("/v1/tasks"))["items"]
        assert listed["prompt"] == prompt[:200]
    long = {**asks, "prompt": "x" * ((1 << 20) + 1)}
    answer = await plane.admin.call("POST", "/v1/tasks", **sent(long))
    assert answer.status == 400
    assert "1048576 are the most" in answer.error["message"]


def sent(body):
    """What is large is sent piece by piece."""
    headers = {"content-type": "application/json"}
    return {"data": io.BytesIO(json.dumps(body).encode()), "headers": headers}


async def idle(plane):
    """One that waits for a word, so that what comes after it waits too."""
    return await give(plane, {"await": 1})


async def test_what_is_missing_is_named(plane):
    for body, name in (
        ({"sandbox": "sbx_nobody", "template": None}, "sbx_nobody"),
        ({"after": ["tsk_nobody"]}, "tsk_nobody"),
        ({"follows": "tsk_nobody"}, "tsk_nobody"),
    ):
        whole = {**wish({"say": "x"}), **body}
        said = {name: value for name, value in whole.items() if value is not None}
        answer = await plane.admin.post("/v1/tasks", said)
        assert (answer.status, answer.error["code"]) == (404, "not_found"), answer.body
        assert name in answer.error["message"]


@pytest.mark.proves("T20")
async def test_lists_are_paged_and_filtered(plane):
    first = await give(plane, {"say": "x"}, template="plain")
    await ended(plane, first)
    await give(plane, {"await": 1})
    page, seen = await plane.admin.get("/v1/tasks?limit=2"), []
    seen += page["items"]
    while page["next_cursor"]:
        page = await plane.admin.get(f"/v1/tasks?limit=2&cursor={page['next_cursor']}")
        seen += page["items"]
    ids = [each["id"] for each in seen]
    assert ids == sorted(set(ids), reverse=True)
    completed = (await plane.admin.get("/v1/tasks?state=completed&limit=500"))["items"]
    assert {each["state"] for each in completed} == {"completed"}
    assert first["id"] in {each["id"] for each in completed}
    both = await plane.admin.get("/v1/tasks?state=running&state=creating&state=pending")
    assert {each["state"] for each in both["items"]} <= {"running", "creating", "pending"}
    assert both["items"]
    assert (await plane.admin.get("/v1/tasks?agent=nobody"))["items"] == []
    assert (await plane.admin.get("/v1/tasks?state=lost")).status == 400


@pytest.mark.proves("U3")
async def test_who_may_do_what(plane):
    task = await give(plane, {"await": 1})
    here = f"/v1/tasks/{task['id']}"
    viewer = await plane.member(role="viewer")
    narrow = await plane.member(role="member", scopes=["sandboxes:write", "sandboxes:read"])
    assert (await viewer.get(here)).status == 200
    for verb in ("cancel", "resume", "revert", "adopt"):
        assert (await viewer.post(f"{here}/{verb}")).status == 403, verb
    assert (await viewer.post(f"{here}/messages", {"text": "x"})).status == 403
    assert (await viewer.post("/v1/tasks", wish({"say": "x"}))).status == 403
    for path in (here, f"{here}/events", f"{here}/output", f"{here}/messages", "/v1/tasks"):
        assert (await narrow.get(path)).status == 403, path


@pytest.mark.proves("T17", "K9")
async def test_a_prompt_has_variables_but_never_a_secret(plane):
    value = "sk-never-in-a-prompt"
    made = await plane.admin.call("PUT", "/v1/secrets/API_KEY", {"value": value})
    assert made.status in (200, 201), made.body
    for wrong, said in (
        ({"prompt": "{{title}} {{branch}}", "variables": {"title": "x"}}, "nobody gave: branch"),
        ({"prompt": "x", "variables": {"API_KEY": "x"}}, "called like a secret"),
        ({"prompt": "x", "variables": {"key": f"Bearer {value}"}}, "holds the value of a secret"),
        ({"prompt": "x", "variables": {"task_id": "x"}}, "Paddock's own"),
    ):
        body = {"agent": "scripted", "template": "plain", **wrong}
        for path in ("/v1/tasks", "/v1/tasks/check"):
            refused = await plane.admin.post(path, body)
            assert 400 <= refused.status <= 422, (wrong, refused.body)
            assert said in refused.error["message"]
            assert value not in str(refused.body)
    steps = prompt_of({"say": "{{id}} {{task_id}} {{sandbox_id}}"})
    wish = {"prompt": steps, "agent": "scripted", "template": "plain"}
    batch = [{**wish, "variables": {"id": f"n{n}"}} for n in (1, 2)]
    many = await plane.admin.post("/v1/tasks/batch", {"tasks": [*batch, wish]})
    assert many.status == 201, many.body
    done = [await ended(plane, each) for each in many["tasks"]]
    said = [each["result"]["message"] for each in done]
    assert said[:2] == [f"n{n} {done[n - 1]['id']} {done[n - 1]['sandbox_id']}" for n in (1, 2)]
    assert said[2] == "{{id}} {{task_id}} {{sandbox_id}}"
    assert [each["variables"] for each in done] == [{"id": "n1"}, {"id": "n2"}, None]
