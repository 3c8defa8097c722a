"""The inbox over HTTP: who may read and answer, how answers become rules, and what is refused."""

import asyncio
import json
from dataclasses import replace

import pytest

from paddock.domain.approval import MOST_AN_HOUR, MOST_PENDING
from paddock.ports.egress import Verdict, Wanted
from paddock.services.egress_asks import EgressAsks
from tests.control_plane import disposable
from tests.interfaces.api.test_egress import Lists, make, texts

pytestmark = pytest.mark.timeout(60)
ASKS = {"preset": "", "rules": [], "on_block": "ask"}


class Door:
    """A gateway at which connections wait until they are told something."""

    def __init__(self) -> None:
        self.waiting: list[Wanted] = []
        self.settled: list[tuple[str, Verdict]] = []

    def knock(self, sandbox: str, host: str = "a.example", port: int = 443) -> None:
        self.waiting.append(Wanted("ref", sandbox, host, port, 1, 1))

    async def wanted(self) -> list[Wanted]:
        told = list(self.waiting)
        self.waiting = [replace(each, attempts=0) for each in told]
        return told

    async def settle(self, wanted: Wanted, verdict: Verdict) -> None:
        self.settled.append((wanted.host, verdict))
        same = (wanted.sandbox, wanted.host, wanted.port)
        self.waiting = [w for w in self.waiting if (w.sandbox, w.host, w.port) != same]


class Asked:
    """A control plane with one sandbox that asks at a door."""

    def __init__(self, plane, door: Door) -> None:
        self.plane, self.admin, self.door = plane, plane.admin, door
        given = plane.services
        self.asks = EgressAsks(
            given.store,
            plane.rounds.egress_log.clock,
            approvals=given.approvals,
            egress=given.egress,
            granted=plane.rounds.egress_asks._granted,
            changes=plane.rounds.egress_asks._changes,
            doors={"door": door},
            inside=plane.services.broker.inside,
            timeout_s=300.0,
        )

    async def ask(self, host: str = "a.example", port: int = 443) -> dict:
        self.door.knock(self.id, host, port)
        await self.asks.look()
        return next(e for e in await self.pending() if e["title"] == f"{host}:{port}")

    async def pending(self) -> list[dict]:
        return (await self.admin.get("/v1/approvals?state=pending&limit=100"))["items"]

    async def answer(self, approval: dict, answer: str, who=None, **body):
        headers = {"idempotency-key": body.pop("key")} if "key" in body else {}
        path = f"/v1/approvals/{approval['id']}/answer"
        return await (who or self.admin).post(path, {"answer": answer, **body}, headers=headers)


@pytest.fixture
async def asked():
    async with disposable(provider=Lists) as plane:
        made = Asked(plane, Door())
        box = await make(plane, app="shop", egress=ASKS)
        made.id = box["id"]
        yield made


async def test_once_is_told_to_the_gateway_and_makes_no_rule(asked):
    found = await asked.ask()
    assert asked.door.settled == []
    answer = await asked.answer(found, "allowed_once", note="ok")
    assert (answer.status, answer["rule"], answer["note"]) == (200, None, "ok")
    assert answer["detail"] == {}
    await asked.asks.look()
    ((host, verdict),) = asked.door.settled
    assert (host, verdict.allowed) == ("a.example", True)
    assert 55 < verdict.for_s <= 60
    assert found["id"] in verdict.why
    assert texts(asked.plane) == []


@pytest.mark.proves("K9")
async def test_a_name_with_a_secrets_value_is_refused_and_nobody_is_asked(asked):
    """An approval would keep the value, and a rule about what stands for it would mean nothing."""
    env = {"DEPLOY_TOKEN": "Hunter2-Hunter2-Hunter2"}
    box = await make(asked.plane, name="lent", egress=ASKS, env=env)
    asked.door.knock(box["id"], "hunter2-hunter2-hunter2.evil.example")
    asked.door.knock(box["id"], "48756e746572322d48756e746572322d.example")
    asked.door.knock(asked.id, "hunter2-hunter2-hunter2.evil.example")
    await asked.asks.look()
    (host, verdict), *others = asked.door.settled
    assert (host, verdict.allowed) == ("hunter2-hunter2-hunter2.evil.example", False)
    assert "secret's value" in verdict.why
    assert others == []
    assert {(each["sandbox"], each["title"]) for each in await asked.pending()} == {
        ("box", "hunter2-hunter2-hunter2.evil.example:443"),
        ("lent", "48756e746572322d48756e746572322d.example:443"),
    }, "what is not its own, or only a part of it, is asked about"


async def test_answers_that_last_are_rules_where_they_were_put(asked):
    found = await asked.ask("task.example")
    assert (await asked.answer(found, "allowed_task"))["rule"] == "task.example:443"
    assert texts(asked.plane) == ["task.example:443"]
    for level, path in (
        ("app", "/v1/apps/shop/egress"),
        ("template", "/v1/templates/plain/egress"),
    ):
        found = await asked.ask(f"{level}.example")
        answer = await asked.answer(found, "allowed_always", level=level)
        assert (answer.status, answer["level"]) == (200, level), answer.body
        kept = await asked.admin.get(path)
        assert kept["rules"] == [f"{level}.example:443"]
    standing = await asked.admin.get("/v1/sandboxes/box/egress")
    assert [(rule["rule"], rule["source"]) for rule in standing["rules"]] == [
        ("task.example:443", "sandbox"),
        ("app.example:443", "app shop"),
        ("template.example:443", "template plain"),
    ]
    found = await asked.ask("preset.example")
    refused = await asked.answer(found, "allowed_always", level="preset")
    assert (refused.status, refused.error["code"]) == (400, "invalid_request"), refused.body
    assert "has no preset" in refused.error["message"]
    assert (await asked.pending())[0]["id"] == found["id"], "nothing was answered"


async def test_a_preset_that_comes_with_paddock_keeps_its_rules(asked):
    await asked.admin.call("PUT", "/v1/sandboxes/box/egress", {"on_block": "ask"})
    before = await asked.admin.get("/v1/egress/presets/development")
    found = await asked.ask("more.example")
    answer = await asked.answer(found, "allowed_always", level="preset")
    assert answer.status == 200, answer.body
    after = await asked.admin.get("/v1/egress/presets/development")
    assert after["rules"] == ["more.example:443", *before["rules"]]


@pytest.mark.proves("U5")
async def test_every_change_of_a_policy_is_audited_with_what_was_before(asked):
    await asked.admin.call("PUT", "/v1/apps/shop/egress", {"rules": ["one.example"]})
    await asked.admin.call("PUT", "/v1/apps/shop/egress", {"rules": ["two.example"]})
    await asked.admin.delete("/v1/apps/shop/egress")
    await asked.admin.call("PUT", "/v1/egress/presets/own", {"rules": ["p.example"]})
    await asked.admin.call("PUT", "/v1/templates/plain/egress", {"mode": "none"})
    await asked.admin.post("/v1/sandboxes/box/egress/allow", {"rules": ["x.example"]})
    entries = (await asked.admin.get("/v1/audit?limit=500"))["items"]
    told = [each["detail"] for each in entries if each["action"] == "egress.changed"]
    assert [
        (each["of"], each.get("rules"), each["before"] and each["before"]["rules"]) for each in told
    ] == [
        ("app", ["one.example"], None),
        ("app", ["two.example"], ["one.example"]),
        ("app", None, ["two.example"]),
        ("preset", ["p.example"], None),
        ("template", [], None),
        ("sandbox", ["x.example"], []),
    ]
    assert told[4]["mode"] == "none"
    assert told[5]["before"]["on_block"] == "ask"
    made = next(each for each in entries if each["action"] == "sandbox.create")
    assert made["detail"]["egress"]["on_block"] == "ask", made


@pytest.mark.parametrize(("url", "is_asked"), [("a.example:22", True), ("10.1.2.3", False)])
async def test_a_trial_says_what_would_be_asked(asked, url, is_asked):
    tried = await asked.admin.post("/v1/sandboxes/box/egress/test", {"url": url})
    assert (tried["allowed"], tried["asked"]) == (False, is_asked)


async def test_who_may_answer(asked):
    found = await asked.ask()
    other = await asked.plane.team("others")
    viewer = await asked.plane.member(role="viewer")
    narrow = await asked.plane.member(role="member", scopes=["sandboxes:write", "events:write"])
    member = await asked.plane.member(role="member")
    assert (await asked.answer(found, "denied", other)).status == 404
    assert (await asked.answer(found, "denied", viewer)).status == 403
    assert (await asked.answer(found, "denied", narrow)).status == 403
    refused = await asked.answer(found, "allowed_always", member, level="app")
    assert (refused.status, refused.error["code"]) == (403, "forbidden")
    assert (await asked.answer(found, "allowed_always", level="nobody")).status == 400
    assert (await asked.answer(found, "expired")).status == 400
    assert (await asked.answer(found, "allowed_once", level="app")).status == 400
    assert (await viewer.get(f"/v1/approvals/{found['id']}")).status == 200
    assert (await narrow.get("/v1/approvals")).status == 403
    assert (await asked.answer(found, "allowed_task", member)).status == 200


async def test_the_second_answer_is_told_who_gave_the_first_and_a_repeated_one_is_the_same(asked):
    found = await asked.ask()
    first = await asked.answer(found, "denied", key="k1")
    assert first.status == 200
    again = await asked.answer(found, "denied", key="k1")
    assert (again.status, again.body) == (200, first.body)
    other = await asked.answer(found, "allowed_once", key="k1")
    assert other.status == 409
    late = await asked.answer(found, "allowed_once")
    assert (late.status, late.error["code"]) == (409, "conflict")
    assert f"{first['answered_by']}: denied" in late.error["message"]


async def test_a_program_cannot_bury_people_in_questions(asked):
    for number in range(MOST_PENDING + 5):
        asked.door.knock(asked.id, f"n{number}.example")
    await asked.asks.look()
    assert len(await asked.pending()) == MOST_PENDING
    refused = [verdict for _, verdict in asked.door.settled]
    assert len(refused) == 5
    assert all(not each.allowed and "nobody is asked" in each.why for each in refused)
    for number in range(MOST_PENDING, MOST_AN_HOUR):
        for each in await asked.pending():
            await asked.answer(each, "denied")
        await asked.ask(f"m{number}.example")
    await asked.asks.look()
    asked.door.settled.clear()
    asked.door.knock(asked.id, "more.example")
    await asked.asks.look()
    assert "within an hour" in asked.door.settled[-1][1].why


async def test_what_is_asked_again_after_a_denial_is_refused_without_asking(asked):
    found = await asked.ask()
    await asked.answer(found, "denied")
    await asked.asks.look()
    asked.door.knock(asked.id)
    await asked.asks.look()
    assert await asked.pending() == []
    assert [verdict.allowed for _, verdict in asked.door.settled] == [False, False]
    assert 800 < asked.door.settled[-1][1].for_s <= 900


async def test_a_sandbox_that_has_gone_asks_no_more(asked):
    found = await asked.ask()
    await asked.admin.delete("/v1/sandboxes/box")
    await asked.asks.look()
    gone = await asked.admin.get(f"/v1/approvals/{found['id']}")
    assert (gone["state"], gone["note"]) == ("expired", "the sandbox does not run any more")


async def test_a_policy_that_asks_no_more_is_put_in_force(asked):
    await asked.ask()
    await asked.admin.call("PUT", "/v1/sandboxes/box/egress", {"on_block": "deny"})
    asked.door.knock(asked.id, "b.example")
    await asked.asks.look()
    assert [each["title"] for each in await asked.pending()] == ["a.example:443"]


async def test_the_stream_tells_all_of_it_and_is_resumed(asked):
    opened = asyncio.Event()

    async def heard(after: str, count: int) -> list[dict]:
        admin = asked.admin
        url = f"{admin.url}/v1/approvals/stream?format=ndjson{after}"
        headers = {"authorization": f"Bearer {admin.token}"}
        async with asyncio.timeout(10), admin.session.get(url, headers=headers) as answer:
            assert answer.status == 200
            opened.set()
            lines = (json.loads(line) async for line in answer.content if line.strip())
            return [await anext(lines) for _ in range(count)]

    listening = asyncio.create_task(heard("", 2))
    await asyncio.wait_for(opened.wait(), 10)
    found = await asked.ask()
    await asked.answer(found, "denied")
    told = await listening
    assert [each["kind"] for each in told] == ["approval.requested", "approval.answered"]
    assert {each["data"]["approval"] for each in told} == {found["id"]}
    (again,) = await heard(f"&after={told[0]['seq']}", 1)
    assert again == told[1]


async def test_lists_are_paged_and_filtered(asked):
    made = [await asked.ask(f"n{number}.example") for number in range(5)]
    page = await asked.admin.get("/v1/approvals?limit=2")
    seen = [each["id"] for each in page["items"]]
    while page["next_cursor"]:
        page = await asked.admin.get(f"/v1/approvals?limit=2&cursor={page['next_cursor']}")
        seen += [each["id"] for each in page["items"]]
    assert seen == [each["id"] for each in reversed(made)]
    await asked.answer(made[0], "denied")
    denied = await asked.admin.get("/v1/approvals?state=denied&kind=egress")
    assert [each["id"] for each in denied["items"]] == [made[0]["id"]]
    assert (await asked.admin.get("/v1/approvals?sandbox=sbx_nobody"))["items"] == []
    assert (await asked.admin.get("/v1/approvals/apr_nobody")).status == 404
