"""What was set aside is for admins, by whichever way somebody comes; and stands still."""

import pytest

from paddock.services.templates import Kept
from paddock.testing.simulated import SimulatedProvider
from tests.control_plane import disposable
from tests.interfaces.api.test_templates import Shelf
from tests.tasks.conftest import SETTINGS

pytestmark = [pytest.mark.timeout(120), pytest.mark.proves("H8")]
WHY = "it sends away what it should not: SEC-42"


@pytest.fixture(scope="module")
async def plane():
    async with disposable(provider=SimulatedProvider, settings=SETTINGS) as made:
        yield made


@pytest.fixture(scope="module")
async def member(plane):
    return await plane.member(role="member")


async def made(plane, **wish):
    answer = await plane.admin.post("/v1/sandboxes", {"template": "plain", **wish})
    assert answer.status == 201, answer.body
    return answer.body


async def set_aside(plane, box):
    answer = await plane.admin.call("PUT", f"/v1/quarantine/{box['id']}", {"why": WHY})
    assert answer.status == 200, answer.body
    assert answer["missing"] == []
    return answer.body


async def state(plane, box):
    found = await plane.admin.get(f"/v1/sandboxes/{box['id']}")
    return found["state"], found["quarantine"]


def of_snapshot(plane, snapshot):
    shelf = Shelf()
    plane.services.providers.templates["simulated"] = Kept(shelf, shelf.prepare, shelf.told)
    return {"name": "known", "source": {"kind": "snapshot", "reference": snapshot}}


@pytest.fixture
async def box(plane):
    found = await made(plane)
    yield found
    await plane.admin.delete(f"/v1/sandboxes/{found['id']}?force=true")


async def test_nobody_but_an_admin_restores_what_was_set_aside(plane, member, box):
    path = f"/v1/sandboxes/{box['id']}"
    before = await member.post(f"{path}/snapshots", {"name": "before-it"})
    assert before.status == 201, before.body
    await set_aside(plane, box)
    refused = await member.post(f"{path}/restore", {"snapshot": "before-it"})
    assert (refused.status, refused.error["code"]) == (403, "forbidden")
    assert await state(plane, box) == ("paused", WHY)
    restored = await plane.admin.post(f"{path}/restore", {"snapshot": "before-it"})
    assert (restored.status, restored["quarantine"]) == (200, WHY)
    kept = (await plane.admin.get(f"/v1/snapshots?sandbox={box['id']}"))["items"]
    (automatic,) = [each for each in kept if each["automatic"]]
    assert (await member.delete(f"/v1/snapshots/{automatic['id']}")).status == 403
    assert (await plane.admin.delete("/v1/snapshots/before-it")).status == 204


async def test_evidence_is_for_admins_also_after_it_was_cleared(plane, member, box):
    evidence = (await set_aside(plane, box))["snapshot"]
    other = await made(plane)
    path = f"/v1/sandboxes/{other['id']}"
    assert (await plane.admin.delete(f"/v1/quarantine/{box['id']}")).status == 200
    name = (await member.get(f"/v1/snapshots/{evidence}"))["name"]
    attempts = {
        "create": await member.post("/v1/sandboxes", {"snapshot": evidence}),
        "restore": await member.post(f"{path}/restore", {"snapshot": evidence}),
        "delete": await member.delete(f"/v1/snapshots/{evidence}"),
        "task": await member.post(
            "/v1/tasks/check", {"prompt": "x", "agent": "scripted", "snapshot": evidence}
        ),
    }
    said = {way: (answer.status, answer.error["code"]) for way, answer in attempts.items()}
    assert said == dict.fromkeys(attempts, (403, "forbidden"))
    taken = await member.post(
        f"/v1/sandboxes/{box['id']}/snapshots", {"name": name, "replace": True}
    )
    assert (taken.status, taken.error["code"]) == (409, "conflict")
    assert "evidence" in taken.error["message"]
    gone = await member.post("/v1/snapshots/prune", {"keep_last": 0, "kind": "all"})
    assert evidence not in {each["id"] for each in gone["items"]}, gone.body
    refused = await plane.admin.post("/v1/templates", of_snapshot(plane, evidence))
    assert (refused.status, "for everybody" in refused.error["message"]) == (409, True)
    refused = await plane.admin.post(f"{path}/restore", {"snapshot": evidence})
    assert refused.status == 409
    assert "create a new sandbox" in refused.error["remediation"]
    assert (await plane.admin.delete(f"/v1/snapshots/{evidence}")).status == 204
    await plane.admin.delete(path)


@pytest.mark.parametrize("way", ["fork", "snapshot"])
async def test_an_admins_copy_is_set_aside_as_well_and_can_be_cleared(plane, member, box, way):
    evidence = (await set_aside(plane, box))["snapshot"]
    if way == "fork":
        copied = await plane.admin.post(f"/v1/sandboxes/{box['id']}/fork", {})
    else:
        copied = await plane.admin.post("/v1/sandboxes", {"snapshot": evidence})
    assert (copied.status, copied["quarantine"]) == (201, WHY)
    path = f"/v1/sandboxes/{copied['id']}"
    assert (await member.post(f"{path}/exec", {"cmd": ["true"]})).status == 403
    assert (await plane.admin.post(f"{path}/exec", {"cmd": ["true"]})).status == 200
    listed = (await member.get("/v1/quarantine"))["items"]
    assert {box["id"], copied["id"]} <= {each["sandbox_id"] for each in listed}
    case = await plane.admin.get(f"/v1/quarantine/{copied['id']}")
    assert (case["why"], case["snapshot"]) == (WHY, evidence if way == "snapshot" else None)
    opened = await plane.admin.delete(f"/v1/quarantine/{copied['id']}")
    assert (opened.status, opened["quarantine"]) == (200, None)
    assert (await member.post(f"{path}/exec", {"cmd": ["true"]})).status == 200
    assert (await plane.admin.delete(path)).status == 200
    assert await state(plane, box) == ("paused", WHY)
