"""A task's own desk: its agent asks somebody, tells how far it is, and speaks of checks."""

import asyncio
import json

import pytest

from paddock.domain.approval import Answer, Kind, State
from paddock.domain.errors import Conflict, InvalidRequest
from paddock.domain.message import MessageState
from paddock.domain.task import TaskState
from paddock.domain.task_wish import Check, TaskWish, Workspace
from paddock.ports.approvals import ApprovalFilter
from paddock.ports.store import Page
from paddock.services.task_plans import Submission

S = TaskState
QUESTION = {"question": "Which database?", "options": ["SQLite", "PostgreSQL"]}


def ask(**more):
    return {"desk": ["/ask", {**QUESTION, **more}]}


@pytest.fixture(scope="module", autouse=True)
async def expiring(working):
    """What nobody answers in time is told of, as in any server."""
    async with asyncio.TaskGroup() as group:
        rounds = group.create_task(working.plane.rounds.egress_asks.run())
        yield
        rounds.cancel()


async def answer(working, approval, state=State.ALLOWED_ONCE, note=""):
    approvals = working.plane.services.approvals
    return await approvals.answer(working.who, approval, Answer(state, note=note))


async def waiting(working, *steps, **more):
    task = await working.begin(*steps, **more)
    return await working.until(task, lambda now: now.state is S.WAITING or now.state.is_final)


async def questions(working, task):
    approvals = working.plane.services.approvals
    found = await approvals.list(working.who, ApprovalFilter(kind=Kind.AGENT), Page(100))
    return [each for each in found if each.task_id == task.id]


async def replies(working, task):
    """What the desk answered."""
    told = [each for each in await working.said(task) if each[:3].isdigit()]
    return [(int(each[:3]), json.loads(each[4:] or "null")) for each in told]


@pytest.mark.proves("M10")
async def test_an_agent_asks_ends_its_turn_and_goes_on_with_the_answer(working):
    task = await waiting(working, ask(), {"say": "I wait."})
    assert task.state is S.WAITING, task.detail
    assert (task.waits_rule, task.conversation.has_ended) == ("agent", True)
    (asked,) = await questions(working, task)
    assert (asked.id, asked.title, asked.state) == (task.waits_for, QUESTION["question"], "pending")
    assert asked.detail == {"options": QUESTION["options"]}
    ((status, told),) = await replies(working, task)
    assert (status, told["id"]) == (200, asked.id)
    assert "End your turn now" in told["message"]
    with pytest.raises(Conflict, match=f"waits for the answer to {asked.id}"):
        await working.tasks.resume(working.who, task.id)
    with pytest.raises(InvalidRequest, match="the answer has no words"):
        await answer(working, asked.id)
    await answer(working, asked.id, note="2")
    ended = await working.ended(task)
    assert (ended.state, ended.conversation.run) == (S.COMPLETED, 2)
    (sent,) = await working.tasks.messages(working.who, task.id)
    assert sent.text == "You asked: Which database?\nThe answer: PostgreSQL"
    assert (sent.state, sent.actor) == (MessageState.SEEN, working.who.actor)
    assert ended.deadline > task.deadline


@pytest.mark.proves("M10")
async def test_an_answer_that_comes_while_the_agent_works_reaches_it_there(working):
    task = await working.begin(ask(), {"await": 1}, {"say": "understood"})
    async with asyncio.timeout(60):
        while not (asked := await questions(working, task)):
            await asyncio.sleep(0.02)
    await answer(working, asked[0].id, note="whatever you like")
    ended = await working.ended(task)
    assert (ended.state, ended.conversation.run) == (S.COMPLETED, 1)
    (sent,) = await working.tasks.messages(working.who, task.id)
    assert sent.text.endswith("The answer: whatever you like")
    assert (sent.mode, sent.state) == ("now", MessageState.SEEN)


@pytest.mark.slow
@pytest.mark.proves("M10")
@pytest.mark.parametrize("how", ["denied", "expired"])
async def test_an_agent_that_gets_no_answer_is_told_so_and_goes_on(working, how):
    more = {} if how == "denied" else {"timeout_s": 4}
    task = await waiting(working, ask(**more))
    if how == "denied":
        await answer(working, task.waits_for, State.DENIED, "ask nobody")
    ended = await working.ended(task)
    assert (ended.state, ended.conversation.run) == (S.COMPLETED, 2)
    (sent,) = await working.tasks.messages(working.who, task.id)
    said = "refused: ask nobody" if how == "denied" else "no answer: nobody answered in time"
    assert said in sent.text


@pytest.mark.proves("M10")
async def test_who_cancels_a_task_withdraws_what_it_asks(working):
    task = await waiting(working, ask())
    with pytest.raises(Conflict, match="stands still already"):
        await working.tasks.pause(working.who, task.id)
    await working.tasks.cancel(working.who, task.id)
    assert (await working.ended(task)).state is S.CANCELLED
    async with asyncio.timeout(60):
        while (await questions(working, task))[0].state is State.PENDING:
            await asyncio.sleep(0.02)
    (asked,) = await questions(working, task)
    assert (asked.state, asked.note) == (State.EXPIRED, "its task is over")
    assert await working.tasks.messages(working.who, task.id) == []


FORGETFUL = """
import http.client, os, sys
prompt = sys.stdin.read()
if "The answer: blue" in prompt:
    open("colour", "w").write(prompt)
else:
    desk = http.client.HTTPConnection(os.environ["PADDOCK_TASK_URL"][7:])
    token = {"Authorization": "Bearer " + os.environ["PADDOCK_TASK_TOKEN"]}
    desk.request("POST", "/ask", '{"question": "Which colour?"}', token)
    assert desk.getresponse().status == 200
"""


@pytest.mark.proves("M10")
async def test_one_that_remembers_nothing_is_told_everything_again(working):
    options = {"command": ["python3", "-c", FORGETFUL]}
    wish = TaskWish("Paint it.", "command", workspace=Workspace(template="plain"), options=options)
    task = await working.tasks.create(working.who, Submission(wish))
    task = await working.until(task, lambda now: now.state is S.WAITING or now.state.is_final)
    assert task.state is S.WAITING, task.detail
    await answer(working, task.waits_for, note="blue")
    await working.until(task, lambda now: now.conversation.run == 2 and now.state.is_final)
    told = await working.read(await working.get(task), "colour")
    assert told == "Paint it.\n\nYou asked: Which colour?\nThe answer: blue"
    (sent,) = await working.tasks.messages(working.who, task.id)
    assert sent.state is not MessageState.QUEUED


@pytest.mark.proves("M10")
async def test_what_an_agent_asks_is_bounded(working):
    many = [{"desk": ["/ask", {"question": f"{n}?"}]} for n in range(4)]
    again = {"desk": ["/ask", {"question": "0?"}]}
    wrong = [
        ask(options=[str(n) for n in range(11)]),
        ask(options=["a", "a"]),
        ask(question="x" * 2001),
        ask(question=" "),
        ask(timeout_s=0),
        ask(whom="everybody"),
        {"desk": ["/ask", ["question"]]},
        {"desk": ["/nothing", {}]},
    ]
    task = await waiting(working, *many, again, *wrong)
    found = await replies(working, task)
    assert [status for status, _ in found] == [200] * 3 + [429, 200] + [400] * 7 + [404]
    assert found[0][1]["id"] == found[4][1]["id"]
    assert "10 is the most" in found[5][1]["error"]["remediation"]
    assert len(await questions(working, task)) == 3
    await working.tasks.cancel(working.who, task.id)
    assert (await working.ended(task)).state is S.CANCELLED


@pytest.mark.proves("T15")
async def test_an_agent_tells_how_far_it_is_and_what_it_makes_of_a_check(working):
    task = await working.done(
        {"desk": ["/progress", {"text": "half way", "percent": 50}]},
        *({"desk": ["/progress", {"text": "at once again"}]} for _ in range(5)),
        {"desk": ["/verdict", {"name": "tests", "passed": False}]},
        {"desk": ["/verdict", {"name": "tests", "passed": True, "detail": "12 passed"}]},
        {"desk": ["/verdict", {"name": "tests", "passed": "yes"}]},
        {"desk": ["/progress", {"text": "x", "percent": 101}]},
        {"say": "done"},
        checks=(Check("tests", ("false",)),),
    )
    found = [status for status, _ in await replies(working, task)]
    assert (found[0], found[6:]) == (200, [200, 200, 400, 400])
    assert 429 in found[1:6]
    heard = found[:6].count(200)  # more than once only where this took more than a second
    assert (task.state, "these checks fail: tests" in task.detail) == (S.FAILED, True)
    shown = (await working.plane.admin.get(f"/v1/tasks/{task.id}")).body
    assert shown["progress"]["text"] == ("half way" if heard == 1 else "at once again")
    (said,) = shown["result"]["verdicts"]
    assert (said["name"], said["passed"], said["detail"]) == ("tests", True, "12 passed")
    told = await working.events(task, "task.progress")
    assert (len(told), told[0].data) == (heard, {"text": "half way", "percent": 50.0})
    assert [each.data["passed"] for each in await working.events(task, "task.verdict")] == [
        False,
        True,
    ]


@pytest.mark.proves("K8", "K9", "T15")
async def test_a_token_is_for_one_run_of_one_task_and_for_nothing_else(working):
    keep = {"run": 'umask 77; printf %s "$PADDOCK_TASK_TOKEN" | tee token'}
    here = ["/progress", {"text": "me"}]
    first = await waiting(working, keep, ask(), {"desk": [*here, "@token"]}, {"say": "x"})
    token = await working.read(first, "token")
    for path in ("/v1/tasks", f"/v1/tasks/{first.id}", "/v1/sandboxes", "/v1/approvals"):
        assert (await working.plane.client(token).get(path)).status == 401
    other = await working.done(
        *[{"desk": [*here, each]} for each in (token, token[:-1] + "x", "tok_x.y", "")],
        {"desk": ["/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, token]},
        {"say": "x"},
    )
    found = await replies(working, other)
    assert [status for status, _ in found] == [403, 403, 401, 401, 403]
    assert "another task" in found[0][1]["error"]["message"]
    assert "there is no token" in found[3][1]["error"]["message"]
    assert other.progress is None
    assert (await working.get(first)).progress.text == "me"
    everything = str([each.data for each in await working.events(first)])
    assert token not in everything
    kept = await working.tasks.output(working.who, first.id, (0, -1), 100)
    raw = b"".join(each.data for each in kept)
    assert (token.encode() in raw, b"(PADDOCK_TASK_TOKEN)" in raw) == (False, True)
    assert token not in str(await working.tasks.get(working.who, first.id))
    await working.tasks.cancel(working.who, first.id)
    await working.ended(first)


@pytest.mark.proves("K8")
async def test_a_token_ends_with_its_run(working):
    keep = {"run": '[ -e token ] || printf %s "$PADDOCK_TASK_TOKEN" > token'}
    ends = {"die": "SIGKILL"}
    task = await working.done(keep, ends, {"desk": ["/progress", {"text": "x"}, "@token"]})
    assert task.conversation.run == 2
    ((status, told),) = await replies(working, task)
    assert (status, told["error"]["message"]) == (
        401,
        "this token was for run 1, which has ended",
    )


def call(number, method, **params):
    body = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    return {"desk": ["/mcp", body]}


@pytest.mark.proves("M10", "T15")
async def test_the_desk_is_an_mcp_server(working):
    question = {"name": "ask_person", "arguments": {"question": "Go?", "options": ["yes", "no"]}}
    task = await waiting(
        working,
        call(1, "initialize", protocolVersion="2025-03-26", capabilities={}),
        {"desk": ["/mcp", {"jsonrpc": "2.0", "method": "notifications/initialized"}]},
        call(2, "tools/list"),
        call(3, "ping"),
        call(4, "tools/call", **question),
        call(5, "tools/call", name="report_progress", arguments={"percent": 1}),
        call(6, "tools/call", name="rm", arguments={}),
        call(7, "resources/list"),
        {"say": "x"},
    )
    found = await replies(working, task)
    assert [status for status, _ in found] == [200, 202, *[200] * 6]
    (begun, _, tools, ping, asked, bad, unknown, lacking) = [body for _, body in found]
    assert begun["result"]["protocolVersion"] == "2025-03-26"
    names = [each["name"] for each in tools["result"]["tools"]]
    assert names == ["ask_person", "report_progress", "report_verdict"]
    assert ping == {"jsonrpc": "2.0", "id": 3, "result": {}}
    assert asked["result"]["isError"] is False
    assert "End your turn now" in asked["result"]["content"][0]["text"]
    assert "`text` must be a text" in bad["result"]["content"][0]["text"]
    assert (bad["result"]["isError"], unknown["result"]["isError"]) == (True, True)
    assert lacking["error"]["code"] == -32601
    await answer(working, task.waits_for, note="yes")
    assert (await working.ended(task)).state is S.COMPLETED
