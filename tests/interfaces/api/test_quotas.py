"""Quotas of teams: a clear error before anything is created, and no other team is affected.

Issue: quotas per team.
"""

import asyncio

import pytest

from paddock.domain.build import Build, BuildState
from paddock.domain.ids import new_id
from paddock.domain.quota import MIB, QuotaConfig
from paddock.domain.volume import DEFAULT_MIB
from paddock.ports.store import ANY_TEAM, Page, SandboxFilter
from paddock.services.build_records import without_oldest
from paddock.settings import Settings
from paddock.testing.simulated import SimulatedProvider
from tests.control_plane import disposable

EVERY_DATABASE = True
SMALL = {"template": "plain", "resources": {"cpus": 1, "memory_mib": 64, "disk_mib": 100}}


@pytest.fixture(scope="module")
async def plane(database):
    async with disposable(provider=SimulatedProvider, database=database) as made:
        yield made


@pytest.fixture
async def ours(plane):
    """A team that is no operator, and how its limits are set."""
    name = new_id("t").replace("_", "-")
    client = await plane.team(name)
    yield client, name
    for kind in ("sandboxes", "volumes", "snapshots"):
        for each in (await client.get(f"/v1/{kind}"))["items"]:
            await client.delete(f"/v1/{kind}/{each['id']}?force=true")


async def limit(plane, name, **limits):
    answer = await plane.admin.call("PATCH", f"/v1/teams/{name}/quota", limits)
    assert answer.status == 200, answer.body
    return {each["name"]: each for each in answer["limits"]}


async def used(client, name):
    answer = await client.get(f"/v1/teams/{name}/quota")
    assert answer.status == 200, answer.body
    return {each["name"]: each["used"] for each in answer["limits"]}


def refused(answer, quota, code="quota_exceeded"):
    assert (answer.status, answer.error["code"]) == (429, code), answer.body
    assert quota in answer.error["message"]
    assert "operator" in answer.error["remediation"]
    return answer.error["message"]


async def rows(plane):
    """Of all teams, whatever could have been created."""

    def count(tx):
        boxes = tx.sandboxes.list(ANY_TEAM, SandboxFilter(), Page(500))
        return len(boxes), len(tx.snapshots.list(ANY_TEAM, "", Page(500))), tx.tasks.counts("")

    return await plane.services.store.read(count)


async def test_members_see_their_own_and_operators_set_them(plane, ours):
    client, name = ours
    shown = await client.get(f"/v1/teams/{name}/quota")
    assert {each["name"] for each in shown["limits"]} == {
        *("sandboxes", "cpus", "memory_mib", "disk_mib", "tasks", "events_mib"),
        "sandbox_events_mib",
    }
    assert (await client.get("/v1/teams/default/quota")).status == 404
    mine = await client.call("PATCH", f"/v1/teams/{name}/quota", {"sandboxes": 5})
    assert mine.status == 403
    assert (await limit(plane, name, sandboxes=5))["sandboxes"]["limit"] == 5
    now = await limit(plane, name, cpus=2.5, events_mib="unlimited")
    assert (now["sandboxes"]["limit"], now["sandboxes"]["own"]) == (5, True)
    assert (now["events_mib"]["limit"], now["events_mib"]["own"]) == (None, True)
    now = await limit(plane, name, sandboxes=None, events_mib=None)
    assert (now["sandboxes"]["limit"], now["sandboxes"]["own"]) == (None, False)
    assert now["events_mib"]["limit"] == QuotaConfig().events_mib
    for wrong in ({"sandboxes": -1}, {"boxes": 1}, {"cpus": "many"}, {"sandboxes": 1.5}):
        answer = await plane.admin.call("PATCH", f"/v1/teams/{name}/quota", wrong)
        assert answer.status in (400, 422), wrong
    audit = await plane.services.store.read(lambda tx: tx.audit.after(0, 500))
    assert any(each.action == "quota.change" for each in audit)


@pytest.mark.parametrize(
    ("quota", "most"),
    [("sandboxes", 1), ("cpus", 1.5), ("memory_mib", 100), ("disk_mib", 150)],
)
async def test_at_its_limit_a_team_makes_no_sandbox_in_any_way(plane, ours, quota, most):
    client, name = ours
    await limit(plane, name, **{quota: most})
    made = await client.post("/v1/sandboxes", SMALL)
    assert made.status == 201, made.body
    before = await rows(plane)
    message = refused(await client.post("/v1/sandboxes", SMALL), quota)
    assert name in message
    refused(await client.post(f"/v1/sandboxes/{made['id']}/fork", {}), quota)
    assert await rows(plane) == before
    assert (await plane.admin.post("/v1/sandboxes", SMALL)).status == 201, "others are unaffected"
    key = {"Idempotency-Key": "same"}
    assert (await client.delete(f"/v1/sandboxes/{made['id']}")).status in (200, 202)
    again = await client.post("/v1/sandboxes", SMALL, headers=key)
    assert again.status == 201, "there is room when one is gone"
    repeated = await client.post("/v1/sandboxes", SMALL, headers=key)
    assert repeated["id"] == again["id"], "what was made before is given at the limit, too"


async def test_what_can_never_fit_is_not_worth_waiting_for(plane, ours):
    client, name = ours
    await limit(plane, name, memory_mib=63)
    answer = await client.post("/v1/sandboxes", SMALL)
    refused(answer, "memory_mib", "limit_exceeded")
    assert answer.error["retryable"] is False


async def test_of_many_at_once_exactly_as_many_succeed_as_there_is_room_for(plane, ours):
    client, name = ours
    await limit(plane, name, sandboxes=2)
    answers = await asyncio.gather(*(client.post("/v1/sandboxes", SMALL) for _ in range(6)))
    assert sorted(each.status for each in answers) == [201, 201, 429, 429, 429, 429]
    assert (await used(client, name))["sandboxes"] == 2


async def test_disk_is_shared_by_sandboxes_snapshots_and_volumes(plane, ours):
    client, name = ours
    made = await client.post("/v1/sandboxes", SMALL)
    taken = await client.post(f"/v1/sandboxes/{made['id']}/snapshots", {"name": "one"})
    assert taken.status == 201, taken.body
    has = (await used(client, name))["disk_mib"]
    assert has >= 101
    await limit(plane, name, disk_mib=has + DEFAULT_MIB)
    names = ("one", "two", "three")
    making = (client.post("/v1/volumes", {"name": each}) for each in names)
    answers = await asyncio.gather(*making)
    assert sorted(each.status for each in answers) == [201, 429, 429]
    before = await rows(plane)
    refused(await client.post(f"/v1/sandboxes/{made['id']}/snapshots", {"name": "two"}), "disk_mib")
    restored = {"snapshot": taken["id"], "resources": {"disk_mib": 16}}
    refused(await client.post("/v1/sandboxes", restored), "disk_mib")
    assert await rows(plane) == before
    (volume,) = [each for each in answers if each.status == 201]
    assert (await client.delete(f"/v1/volumes/{volume['id']}")).status in (200, 204)
    assert (await client.post("/v1/sandboxes", restored)).status == 201


async def test_a_snapshot_that_does_not_fit_is_refused_before_it_is_taken(plane, ours):
    client, name = ours
    made = await client.post("/v1/sandboxes", SMALL)
    path = f"/v1/sandboxes/{made['id']}"
    filled = "head -c 20000000 /dev/urandom > large"
    done = await client.post(f"{path}/exec", {"cmd": ["sh", "-c", filled]})
    assert done.status == 200, done.body
    await limit(plane, name, disk_mib=115)
    before = await rows(plane)
    message = refused(await client.post(f"{path}/snapshots", {"name": "large"}), "disk_mib")
    assert "it has 100, and" in message
    assert await rows(plane) == before
    fork = {"resources": {"disk_mib": 16}}
    refused(await client.post(f"{path}/fork", fork), "disk_mib")
    assert await rows(plane) == before
    await limit(plane, name, disk_mib=130)
    taking = (client.post(f"{path}/snapshots", {"name": each}) for each in ("one", "two"))
    answers = await asyncio.gather(*taking)
    assert sorted(each.status for each in answers) == [201, 429], "the estimate counts at once"
    assert (await used(client, name))["disk_mib"] > 118


async def test_a_team_at_its_limit_of_tasks_is_given_no_more(plane, ours):
    client, name = ours
    await limit(plane, name, tasks=2)
    options = {"command": ["true"]}
    wish = {"agent": "command", "prompt": "x", "template": "plain", "options": options}
    first = await client.post("/v1/tasks", wish)
    assert first.status in (201, 202), first.body
    both = {"tasks": [wish, wish]}
    before = await rows(plane)
    refused(await client.post("/v1/tasks/batch", both), "tasks")
    assert await rows(plane) == before, "all of them or none"
    answers = await asyncio.gather(*(client.post("/v1/tasks", wish) for _ in range(3)))
    assert sorted(each.status for each in answers)[1:] == [429, 429]
    assert (await client.post(f"/v1/tasks/{first['id']}/cancel")).status == 202
    assert (await client.post("/v1/tasks", wish)).status in (201, 202)


async def test_the_settings_hold_for_every_team_that_has_no_limit_of_its_own():
    settings = Settings(quotas=QuotaConfig(sandboxes=1))
    async with disposable(settings=settings) as plane:
        one, two = await plane.team("one"), await plane.team("two")
        await limit(plane, "two", sandboxes="unlimited")
        for client in (one, two):
            assert (await client.post("/v1/sandboxes", SMALL)).status == 201
        refused(await one.post("/v1/sandboxes", SMALL), "sandboxes")
        assert (await two.post("/v1/sandboxes", SMALL)).status == 201


async def test_events_that_the_inside_tells_of_are_stored_up_to_the_quota(plane, ours):
    """Issue: a sandbox fills the control plane's database."""
    client, name = ours
    made = await client.post("/v1/sandboxes", SMALL)
    free = await client.post("/v1/sandboxes", SMALL)
    await limit(plane, name, sandbox_events_mib=1)

    async def tell(box, seq):
        data = {"text": "x" * 60_000}
        events = [{"source": "a", "seq": seq, "kind": "custom.x", "data": data}]
        return await client.post(f"/v1/sandboxes/{box['id']}/events", events)

    answers = [await tell(made, seq) for seq in range(1, 25)]
    stored = [each.status for each in answers].count(200)
    assert 10 < stored < 19, [each.status for each in answers]
    refused(answers[-1], "sandbox_events_mib")
    team = (await client.get(f"/v1/teams/{name}/quota"))["team_id"]
    size = await plane.services.store.read(lambda tx: tx.quotas.stored(team, made["id"]))
    assert size < MIB + 64_000
    events = await plane.services.store.read(lambda tx: tx.events.after(0, 500, subject=made["id"]))
    assert [each.kind for each in events].count("quota.reached") == 1
    assert (await tell(free, 1)).status == 200, "another sandbox has its own"
    assert (await client.delete(f"/v1/sandboxes/{made['id']}")).status in (200, 202)
    await limit(plane, name, sandbox_events_mib=None, events_mib=1)
    refused(await tell(free, 2), "events_mib")


async def test_sources_of_events_have_an_end(plane, ours):
    client, _ = ours
    made = await client.post("/v1/sandboxes", SMALL)
    events = [{"source": f"s{n}", "seq": 1, "kind": "custom.x", "data": {}} for n in range(1000)]
    path = f"/v1/sandboxes/{made['id']}/events"
    assert (await client.post(path, events)).status == 200
    one = [{"source": "one-more", "seq": 1, "kind": "custom.x", "data": {}}]
    answer = await client.post(path, one)
    assert (answer.status, answer.error["code"]) == (429, "limit_exceeded")
    again = [{"source": "s5", "seq": 2, "kind": "custom.x", "data": {}}]
    assert (await client.post(path, again)).status == 200


async def test_template_builds_that_nobody_starts_have_an_end(plane, ours):
    client, _ = ours

    async def begin(name, by=client):
        return await by.post("/v3/templates", {"name": name})

    answers = [await begin(f"name-{number % 3}") for number in range(25)]
    assert [each.status for each in answers] == [202] * 20 + [429] * 5
    assert "start them" in answers[-1].body["message"]
    assert (await begin("name-0", by=plane.admin)).status == 202, "other teams are unaffected"
    assert (await client.delete("/templates/name-0")).status in (200, 204)
    assert (await begin("name-1")).status == 202, "there is room when one is gone"


def test_of_builds_that_are_not_ready_the_newest_are_kept():
    states = [BuildState.READY, *[BuildState.FAILED] * 30]
    made = [Build(str(at), "x", at, (), state) for at, state in enumerate(states)]
    kept = without_oldest({each.id: each for each in made})
    assert list(kept) == ["0", *map(str, range(11, 31))]
