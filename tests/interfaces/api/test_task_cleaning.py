"""Tasks that are over are forgotten: one by one, by what they have in common, and in time."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from paddock.domain.message import MESSAGE_PREFIX, Message, Mode
from paddock.domain.task import TaskState
from paddock.ports.egress import ModelUse
from paddock.services.spending import note_use
from paddock.testing.simulated import SimulatedProvider
from tests.control_plane import disposable
from tests.interfaces.api.test_tasks import WRITES, ended, give, told
from tests.tasks.conftest import SETTINGS, at_work

pytestmark = pytest.mark.timeout(90)


@pytest.fixture(scope="module")
async def plane():
    async with disposable(provider=SimulatedProvider, settings=SETTINGS) as made, at_work(made):
        yield made


async def done(plane, *steps, **more):
    return await ended(plane, await give(plane, *(steps or ({"say": "x"},)), **more))


def path_of(task):
    return f"/v1/tasks/{task['id']}"


async def audited(plane, task):
    entries = await plane.services.store.read(lambda tx: tx.audit.after(0, 100_000))
    return [each for each in entries if each.subject == task["id"]]


async def use(plane, task, cost=0.5, at=1.0):
    """As a gateway tells of it."""
    store, team = plane.services.store, (await audited(plane, task))[0].team_id
    account = f"{team}/task {task['id']}"
    said = ModelUse(
        ref="",
        sandbox=task["sandbox_id"],
        account=account,
        route="anthropic",
        model="opus",
        requests=2,
        input=100,
        output=20,
        cache_read=30,
        cache_write=7,
        cost=cost,
        guessed=False,
        first_at=1.0,
        last_at=at,
    )

    def write(tx):
        note_use(tx, tx.sandboxes.get(team, task["sandbox_id"]), said)

    await store.write(write)
    return account


@pytest.mark.proves("T20")
async def test_one_that_is_over_goes_with_all_of_it_and_stays_in_the_audit_log(plane):
    task = await done(plane)
    account = await use(plane, task)
    assert await plane.services.broker.spending.used(account)
    gone = await plane.admin.delete(path_of(task))
    assert (gone.status, gone["tasks"], gone["sandboxes"]) == (200, [task["id"]], [])
    for path in ("", "/events", "/output", "/messages"):
        assert (await plane.admin.get(path_of(task) + path)).status == 404
    assert (await plane.admin.delete(path_of(task))).status == 404
    store = plane.services.store
    assert await store.read(lambda tx: tx.steps.of(task["id"])) == []
    assert await store.read(lambda tx: tx.outputs.size(task["id"])) == 0
    assert await plane.services.broker.spending.used(account) == []
    (entry,) = [each for each in await audited(plane, task) if each.action == "task.delete"]
    assert entry.detail["before"]["state"] == "completed"
    events = (await plane.admin.get(f"/v1/events?subject={task['id']}&limit=500"))["items"]
    assert {"task.completed", "task.deleted"} <= {each["kind"] for each in events}
    box = await plane.admin.get(f"/v1/sandboxes/{task['sandbox_id']}")
    assert box["state"] == "running"


@pytest.mark.proves("R5")
async def test_what_models_took_is_counted_by_kind_and_priced_for_each_task(plane):
    task, other = await done(plane), await done(plane)
    account = await use(plane, task)
    await use(plane, task, cost=0.25)
    spent = (await plane.admin.get(path_of(task)))["spent"]
    assert (spent["input_tokens"], spent["cached_tokens"], spent["output_tokens"]) == (274, 60, 40)
    assert spent["cost_usd"] == 0.75
    (used,) = await plane.services.broker.spending.used(account)
    kinds = (used.tokens.input, used.tokens.output, used.tokens.cache_read, used.tokens.cache_write)
    assert (used.model, used.requests, kinds) == ("opus", 4, (200, 40, 60, 14))
    assert (await plane.admin.get(path_of(other)))["spent"]["cost_usd"] == 0.0


@pytest.mark.proves("T20")
async def test_one_that_is_not_over_stays(plane):
    task = await give(plane, {"await": 1})
    refused = await plane.admin.delete(f"{path_of(task)}?force=true")
    assert (refused.status, refused.error["code"]) == (409, "conflict")
    assert "cancel" in refused.error["remediation"]
    await plane.admin.post(f"{path_of(task)}/cancel")
    await ended(plane, task)
    assert (await plane.admin.delete(path_of(task))).status == 200


@pytest.mark.proves("L6", "T20")
async def test_what_is_nowhere_else_is_not_lost_unless_somebody_says_so(plane):
    held, forced = await done(plane, *WRITES), await done(plane, *WRITES)
    refused = await plane.admin.delete(path_of(held))
    assert refused.status == 409
    assert "1 files that it changed" in refused.error["message"]
    assert "paddock task diff" in refused.error["remediation"]
    with_box = await plane.admin.delete(f"{path_of(held)}?with_sandbox=true")
    assert with_box.status == 409
    assert (await plane.admin.get(f"/v1/sandboxes/{held['sandbox_id']}"))["state"] == "running"
    assert (await plane.admin.get(f"{path_of(held)}/diff")).status == 200
    gone = await plane.admin.delete(f"{path_of(held)}?with_sandbox=true")
    assert (gone.status, gone["sandboxes"]) == (200, [held["sandbox_id"]]), gone.body
    box = await plane.admin.get(f"/v1/sandboxes/{held['sandbox_id']}")
    assert box.status == 404 or box["state"] == "deleted"
    assert (await plane.admin.delete(f"{path_of(forced)}?force=true")).status == 200


async def test_a_sandbox_that_somebody_works_in_or_brought_is_not_taken_along(plane):
    first = await done(plane)
    there = {"template": "", "sandbox": first["sandbox_id"]}
    second = await done(plane, **there)
    third = await give(plane, {"await": 1}, **there)
    refused = await plane.admin.delete(f"{path_of(first)}?with_sandbox=true&force=true")
    assert refused.status == 409
    assert third["id"] in refused.error["message"]
    gone = await plane.admin.delete(f"{path_of(second)}?with_sandbox=true")
    assert (gone.status, gone["sandboxes"]) == (200, [])
    await plane.admin.post(f"{path_of(third)}/cancel")
    await ended(plane, third)


async def test_one_that_others_wait_for_stays_until_they_have_heard(plane):
    failed = await done(plane, {"fail": "no"})
    store = plane.services.store

    def add(tx):  # one that no worker is to see
        known = tx.tasks.get("", failed["id"])
        lease = replace(known.lease, owner="prc_other", until=1e12)
        wish = replace(known.wish, after=(known.id,))
        changes = {"state": TaskState.PENDING, "ended_at": None, "version": 0, "result": None}
        tx.tasks.add(replace(known, id=f"{known.id}x", wish=wish, lease=lease, **changes))

    await store.write(add)
    refused = await plane.admin.delete(path_of(failed))
    assert refused.status == 409
    assert "comes after" in refused.error["message"]
    await store.write(lambda tx: tx.tasks.remove([f"{failed['id']}x"]))
    assert (await plane.admin.delete(path_of(failed))).status == 200


@pytest.mark.proves("T20")
async def test_many_go_by_what_they_have_in_common(plane):
    labels = {"of": "cleaning"}
    bad = [await done(plane, {"fail": "no"}, labels=labels) for _ in range(3)]
    good, held = await done(plane, labels=labels), await done(plane, *WRITES, labels=labels)
    await done(plane, {"fail": "no"}, labels={"of": "others"})
    mine = "/v1/tasks?label=of=cleaning"
    listed = (await plane.admin.get(f"{mine}&state=failed"))["items"]
    assert {each["id"] for each in listed} == {each["id"] for each in bad}
    assert (await plane.admin.get(f"{mine}&label=of=nothing")).body["items"] == []
    would = await plane.admin.delete(f"{mine}&state=failed&dry_run=true")
    assert sorted(would["tasks"]) == sorted(each["id"] for each in bad)
    early = (datetime.now(UTC) - timedelta(days=7)).isoformat().replace("+00:00", "Z")
    assert (await plane.admin.delete(f"{mine}&before={early}"))["tasks"] == []
    first = await plane.admin.delete(f"{mine}&state=failed&limit=2")
    assert (len(first["tasks"]), bool(first["next_cursor"])) == (2, True)
    rest = await plane.admin.delete(f"{mine}&state=failed&limit=2&cursor={first['next_cursor']}")
    assert (len(rest["tasks"]), rest["next_cursor"]) == (1, None)
    last = await plane.admin.delete(f"{mine}&with_sandbox=true")
    assert (last["tasks"], last["sandboxes"]) == ([good["id"]], [good["sandbox_id"]])
    assert [each["id"] for each in last["kept"]] == [held["id"]]
    assert "1 files" in last["kept"][0]["why"]


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("", "every task of the team"),
        ("state=running", "not over"),
        ("before=2026-01-01T00:00:00", "time zone"),
        ("label=nothing", "NAME=VALUE"),
    ],
)
async def test_a_wish_that_may_be_a_slip_is_refused(plane, query, says):
    refused = await plane.admin.delete(f"/v1/tasks?{query}")
    assert refused.status == 400
    assert says in refused.error["message"] + refused.error["remediation"]


@pytest.mark.proves("T20")
async def test_only_who_may_write_tasks_forgets_them(plane):
    task = await done(plane)
    viewer = await plane.member(role="viewer")
    assert (await viewer.delete(path_of(task))).status == 403
    assert (await viewer.delete("/v1/tasks?state=failed")).status == 403
    assert (await viewer.post(f"{path_of(task)}/diagnosis")).status == 403
    assert (await plane.admin.post("/v1/tasks/tsk_nobody/diagnosis")).status == 404


@pytest.mark.proves("T20")
async def test_retention_forgets_what_is_old_and_keeps_what_is_nowhere_else(plane):
    light, heavy = await done(plane), await done(plane, *WRITES)
    account = await use(plane, light)
    await plane.rounds.housekeeping.look()
    assert (await plane.admin.get(path_of(light))).status == 200
    cleaning = plane.services.care.cleaning
    assert await cleaning.forget_old(1e12) >= 1
    assert (await plane.admin.get(path_of(light))).status == 404
    assert await plane.services.broker.spending.used(account) == []
    assert (await plane.admin.get(path_of(heavy))).status == 200


async def test_accounts_that_nobody_remembers_are_forgotten(plane):
    task = await done(plane)
    account = await use(plane, task)
    spending, store = plane.services.broker.spending, plane.services.store
    await spending.forget_gone()
    assert await spending.used(account)
    await store.write(lambda tx: tx.tasks.remove([task["id"]]))
    await spending.forget_gone()
    assert await spending.used(account) == []


async def test_more_messages_than_a_page_are_read_to_the_last(plane):
    task = await done(plane)
    team = (await audited(plane, task))[0].team_id
    ids = [f"{MESSAGE_PREFIX}_{task['id'][4:]}.guardian-{n:04}" for n in range(1200)]

    def add(tx):
        for each in ids:
            tx.messages.add(Message(each, team, task["id"], "x", Mode.NOW, "me", 1.0))

    await plane.services.store.write(add)
    read, cursor = [], ""
    while cursor is not None:
        page = await plane.admin.get(f"{path_of(task)}/messages?limit=500&cursor={cursor}")
        assert page.status == 200, page.body
        read += [each["id"] for each in page["items"]]
        cursor = page["next_cursor"]
    assert read == ids
    assert (await plane.admin.get(f"{path_of(task)}/messages/{ids[-1]}"))["id"] == ids[-1]
    assert await told(plane.admin, task)


async def test_what_its_sandbox_keeps_of_it_goes_too_unless_that_sleeps(plane):
    first = await done(plane)
    place = {"sandbox": first["sandbox_id"], "directory": first["directory"]}
    second, third = await done(plane, template="", **place), await done(plane, template="", **place)

    async def kept(*tasks):
        script = "for r in ~/.paddock/trees/*.git; do git --git-dir=$r for-each-ref; done"
        look = {"cmd": ["sh", "-c", script]}
        ran = await plane.admin.post(f"/v1/sandboxes/{first['sandbox_id']}/exec", look)
        assert ran.status == 200, ran.body
        return [each["id"] in ran["stdout"] for each in tasks]

    assert await kept(first, second, third) == [True, True, True]
    assert (await plane.admin.delete(path_of(first) + "?force=true")).status == 200
    assert await kept(first, second, third) == [False, True, True]
    assert (await plane.admin.post(path_of(third) + "/revert")).status == 200
    box = f"/v1/sandboxes/{first['sandbox_id']}"
    assert (await plane.admin.post(f"{box}/stop")).status == 200
    assert (await plane.admin.delete(path_of(second) + "?force=true")).status == 200
    assert (await plane.admin.get(box))["state"] == "stopped"
    assert (await plane.admin.post(f"{box}/start")).status == 200
    assert await kept(second, third) == [True, True]
    assert (await plane.admin.delete(path_of(third) + "?force=true")).status == 200
    assert await kept(third) == [False]
