"""Commands that wait for somebody's approval, however they are started."""

import asyncio
import json
import time
from dataclasses import replace

import aiohttp
import pytest

from tests.control_plane import disposable
from tests.interfaces.api.test_people import sign_in

pytestmark = pytest.mark.timeout(60)
RULES = {"rules": [{"name": "echoes wait", "verdict": "ask", "command": "echo **"}]}


class Asking:
    """Somebody who starts commands, and somebody else who answers."""

    def __init__(self, plane, agent, box) -> None:
        self.plane, self.admin, self.agent = plane, plane.admin, agent
        self.path = f"/v1/sandboxes/{box['id']}"
        self.box = box

    async def pending(self, count: int = 1) -> list[dict]:
        path = f"/v1/approvals?state=pending&kind=command&sandbox={self.box['id']}"
        async with asyncio.timeout(10):
            while len(found := (await self.admin.get(path))["items"]) < count:
                await asyncio.sleep(0.05)
        return found

    async def answer(self, approval: dict, answer: str, who=None, **more):
        path = f"/v1/approvals/{approval['id']}/answer"
        return await (who or self.admin).post(path, {"answer": answer, **more})

    def start(self, *argv: str, way: str = "exec", **more) -> asyncio.Task:
        body = {"cmd": list(argv), **more}
        return asyncio.create_task(self.agent.post(f"{self.path}/{way}", body))


@pytest.fixture(scope="module")
async def plane(database):
    async with disposable(database=database) as made:
        yield made


@pytest.fixture
async def asking(plane):
    agent = await plane.member(role="member")
    box = await plane.admin.post("/v1/sandboxes", {"template": "plain"})
    put = await plane.admin.call("PUT", f"/v1/sandboxes/{box['id']}/policy", RULES)
    assert put.status == 200, put.body
    yield Asking(plane, agent, box)
    await plane.admin.delete(f"/v1/sandboxes/{box['id']}?force=true")


@pytest.mark.proves("E8")
@pytest.mark.parametrize("way", ["exec", "exec/stream?format=ndjson", "commands"])
async def test_it_waits_and_runs_once_it_is_approved(asking: Asking, way: str):
    started = asking.start("echo", "hunter2", way=way, cwd="/")
    (found,) = await asking.pending()
    assert found["title"] == "echo"
    assert found["detail"]["argv"] == ["echo", "hunter2"]
    assert (found["detail"]["cwd"], found["detail"]["rule"]) == ("/", "echoes wait")
    await asyncio.sleep(0.3)
    assert not started.done()
    answer = await asking.answer(found, "allowed_once")
    assert (answer.status, answer["detail"]) == (200, {}), "arguments are not kept"
    ended = await started
    assert ended.status in (200, 201), ended.body
    if way == "exec":
        assert ended["stdout"] == "hunter2\n"
    if way.startswith("exec/"):
        told = [json.loads(line) for line in ended.body.splitlines() if line]
        assert [each["type"] for each in told] == ["started", "output", "exit"]
    second = asking.start("echo", "hunter2", way=way, cwd="/")
    (again,) = await asking.pending()
    assert again["id"] != found["id"], "once is once"
    await asking.answer(again, "denied")
    refused = await second
    assert (refused.status, refused.error["code"]) == (403, "approval_required")
    assert "somebody has denied it" in refused.error["message"]


@pytest.mark.proves("K9")
async def test_who_answers_does_not_see_what_is_secret(plane):
    value = "swordfish/of-the-deep"
    put = await plane.admin.call(
        "PUT", "/v1/secrets/FISH?app=aquarium", {"value": value, "policy": "runtime_access"}
    )
    assert put.status == 200, put.body
    box = await plane.admin.post("/v1/sandboxes", {"template": "plain", "app": "aquarium"})
    await plane.admin.call("PUT", f"/v1/sandboxes/{box['id']}/policy", RULES)
    asking = Asking(plane, await plane.member(role="member"), box)
    started = asking.start("echo", f"it is {value}", "and swordfish%2Fof-the-deep")
    (found,) = await asking.pending()
    assert found["detail"]["argv"] == ["echo", "it is (FISH)", "and (FISH)"]
    refused = await asking.answer(found, "allowed_always", level="sandbox")
    assert (refused.status, "holds a secret's value" in str(refused.body)) == (400, True)
    assert (await asking.answer(found, "allowed_once")).status == 200
    assert value in (await started)["stdout"]
    await plane.admin.delete(f"/v1/sandboxes/{box['id']}?force=true")


@pytest.mark.proves("E8")
async def test_a_terminal_waits_too(asking: Asking):
    where = asking.plane.url.replace("http", "ws") + f"{asking.path}/terminal?cmd=echo&cmd=here"
    headers = {"authorization": f"Bearer {asking.agent.token}"}
    opening = asyncio.create_task(
        asking.plane.session.ws_connect(where, headers=headers).__aenter__()
    )
    (found,) = await asking.pending()
    await asking.answer(found, "allowed_once")
    terminal = await opening
    said = b""
    async for message in terminal:
        if message.type is aiohttp.WSMsgType.BINARY:
            said += message.data
    await terminal.close()
    assert b"here" in said


@pytest.mark.proves("E8")
async def test_denied_is_refused_as_before_and_remembered(asking: Asking):
    first = asking.start("echo", "a")
    (found,) = await asking.pending()
    await asking.answer(found, "denied", note="not now")
    refused = await first
    assert (refused.status, refused.error["code"]) == (403, "approval_required")
    assert "'echoes wait' of the sandbox's policy" in refused.error["message"]
    began = time.monotonic()
    again = await asking.start("echo", "a")
    assert (again.status, time.monotonic() - began < 10) == (403, True)
    other = asking.start("echo", "b")
    assert len(await asking.pending()) == 1, "another command is another question"
    other.cancel()
    entries = (await asking.admin.get("/v1/audit?limit=500"))["items"]
    mine = [e for e in entries if e["subject"] == asking.box["id"]]
    actions = [e["action"] for e in mine if e["action"].startswith(("approval", "command.d"))]
    assert actions == [
        "approval.requested",
        "approval.answered",
        "command.denied",
        "command.denied",
        "approval.requested",
    ]
    assert "'a'" not in json.dumps(mine)


async def test_allowed_for_the_task_is_not_asked_again_there(asking: Asking):
    started = asking.start("echo", "often")
    (found,) = await asking.pending()
    await asking.answer(found, "allowed_task")
    assert (await started).status == 200
    assert (await asking.start("echo", "often")).status == 200
    assert (await asking.start("echo", "often", way="commands")).status == 201
    elsewhere = asking.start("echo", "often", cwd="/tmp")
    (found,) = await asking.pending()
    await asking.answer(found, "denied")
    assert (await elsewhere).status == 403


async def rules_of(asking: Asking, path: str = "") -> list[dict]:
    return (await asking.admin.get(f"{path or asking.path}/policy"))["rules"]


@pytest.mark.proves("E8")
async def test_allowed_always_is_a_rule_for_exactly_this_command(asking: Asking):
    started = asking.start("echo", "a *", "it's")
    (found,) = await asking.pending()
    for level in ("app", "preset", "template", "team"):
        refused = await asking.answer(found, "allowed_always", level=level)
        assert (refused.status, refused.error["code"]) == (400, "invalid_request")
        assert "the sandbox's policy that asks" in refused.error["message"]
    member = await asking.plane.member(role="member")
    refused = await asking.answer(found, "allowed_always", member, level="sandbox")
    assert (refused.status, refused.error["code"]) == (403, "forbidden")
    assert "policies:write" in refused.error["message"]
    answer = await asking.answer(found, "allowed_always", level="sandbox")
    assert (answer.status, answer["rule"]) == (200, f"approved {found['id']}"), answer.body
    assert (await started)["stdout"] == "a * it's\n"
    made, before = await rules_of(asking)
    assert (made["name"], made["verdict"]) == (f"approved {found['id']}", "allow")
    assert before["name"] == "echoes wait"
    for way in ("exec", "commands"):
        assert (await asking.start("echo", "a *", "it's", way=way)).status in (200, 201)
    other = asking.start("echo", "a b", "it's")
    (asked,) = await asking.pending()
    await asking.answer(asked, "denied")
    assert (await other).status == 403
    entries = (await asking.admin.get("/v1/audit?limit=500"))["items"]
    mine = [e for e in entries if e["subject"] == asking.box["id"]]
    assert "policy.changed" in {e["action"] for e in mine}
    assert "it's" not in json.dumps(mine)

    # Taken away it is asked about again.
    put = await asking.admin.call("PUT", f"{asking.path}/policy", RULES)
    assert put.status == 200
    again = asking.start("echo", "a *", "it's")
    await asking.answer((await asking.pending())[0], "denied")
    assert (await again).status == 403


async def test_what_no_rule_can_say_is_not_allowed_always_and_says_why(asking: Asking):
    for argv, env in (
        (("sh", "-c", "echo 1; echo 2"), {}),
        (("env", "echo", "1"), {}),
        (("echo", "1"), {"PATH": "/tmp"}),
    ):
        started = asking.start(*argv, env=env)
        (found,) = await asking.pending()
        refused = await asking.answer(found, "allowed_always", level="sandbox")
        assert (refused.status, refused.error["code"]) == (400, "invalid_request")
        assert "'echo' would still be asked about" in refused.error["message"]
        assert "paddock policy set" in refused.error["remediation"]
        assert [each["name"] for each in await rules_of(asking)] == ["echoes wait"]
        await asking.answer(found, "denied")
        assert (await started).status == 403
    long = asking.start("echo", "x" * 600)
    (found,) = await asking.pending()
    refused = await asking.answer(found, "allowed_always", level="sandbox")
    assert (refused.status, "512" in refused.error["remediation"]) == (400, True), refused.body
    await asking.answer(found, "denied")
    await long


@pytest.mark.proves("E8")
async def test_the_teams_policy_takes_an_exception_too(asking: Asking):
    rules = [{"name": "dates wait", "verdict": "ask", "command": "date **"}]
    put = await asking.admin.call("PUT", "/v1/policy", {"rules": rules})
    assert put.status == 200, put.body
    started = asking.start("date", "-u")
    (found,) = await asking.pending()
    answer = await asking.answer(found, "allowed_always", level="team")
    assert answer.status == 200, answer.body
    assert (await started).status == 200
    assert (await asking.start("date", "-u")).status == 200
    names = [each["name"] for each in (await asking.admin.get("/v1/policy"))["rules"]]
    assert names == [f"approved {found['id']}", "dates wait"]
    await asking.admin.delete("/v1/policy")


@pytest.mark.proves("E8")
async def test_who_asks_cannot_answer_with_the_same_token(asking: Asking):
    started = asking.start("echo", "self")
    (found,) = await asking.pending()
    own = await asking.answer(found, "allowed_once", asking.agent)
    assert (own.status, own.error["code"]) == (403, "forbidden")
    assert "has asked for approval" in own.error["message"]
    assert (await asking.answer(found, "allowed_once")).status == 200
    assert (await started).status == 200


async def test_the_same_command_is_one_question_and_all_who_wait_go_on(asking: Asking):
    many = [asking.start("echo", "many") for _ in range(4)]
    async with asyncio.timeout(10):
        while (await asking.pending())[0]["count"] < 4:
            await asyncio.sleep(0.05)
    (found,) = await asking.pending()
    await asking.answer(found, "allowed_once")
    assert [(await each).status for each in many] == [200] * 4


@pytest.mark.proves("E8")
async def test_silence_is_a_no(asking: Asking):
    started = asking.start("echo", "silence")
    (found,) = await asking.pending()

    def soon(tx):
        current = tx.approvals.get("", found["id"])
        tx.approvals.replace(replace(current, expires_at=1.0))

    await asking.plane.services.store.write(soon)
    await asking.plane.rounds.egress_asks.look()
    refused = await started
    assert (refused.status, refused.error["code"]) == (403, "approval_required")
    assert "nobody answered in time" in refused.error["message"]


async def test_who_went_away_may_start_it_again_once_it_is_allowed(asking: Asking):
    started = asking.start("echo", "later")
    (found,) = await asking.pending()
    started.cancel()
    await asyncio.sleep(0.2)
    await asking.answer(found, "allowed_once")
    assert (await asking.start("echo", "later")).status == 200
    again = asking.start("echo", "later")
    assert (await asking.pending())[0]["id"] != found["id"]
    again.cancel()


async def test_what_a_token_has_made_for_itself_answers_no_more_than_it_does(plane, asking: Asking):
    person = await plane.admin.post("/v1/people", {"name": "Grace", "role": "member"})
    link = person["invitation"]["link"]
    browser, _, _ = await sign_in(plane, link=link)
    made = await browser.write("POST", "/v1/tokens", {"name": "cli", "role": "member"})
    asking.agent = own = plane.client(made["token"])
    started = asking.start("echo", "mine")
    (found,) = await asking.pending()
    path, yes = f"/v1/approvals/{found['id']}/answer", {"answer": "allowed_once"}
    signed_in, _, _ = await sign_in(plane, token=own.token)
    again = await own.post("/v1/people/me/links", {})
    by_link, _, _ = await sign_in(plane, link=again["link"])
    child = await own.post("/v1/tokens", {"name": "child", "role": "member"})
    refused = [
        await own.post(path, yes),
        await signed_in.write("POST", path, yes),
        await by_link.write("POST", path, yes),
        await plane.client(child["token"]).post(path, yes),
    ]
    assert [each.status for each in refused] == [403] * 4, [each.body for each in refused]
    assert "has made" in refused[1].error["message"]
    assert (await browser.write("POST", path, yes)).status == 200, "who has made it may"
    assert (await started)["stdout"] == "mine\n"
