"""What was set aside is for admins, by whichever way somebody comes; and stands still."""

import asyncio
import json

import pytest

from paddock.domain.errors import Unavailable
from paddock.services.provider_templates import Kept
from paddock.services.verbs import ref_of
from paddock.testing.simulated import SimulatedProvider
from tests.control_plane import disposable
from tests.harness.ports import free_port
from tests.interfaces.api.test_previews import SERVER, Site
from tests.interfaces.api.test_templates import Shelf
from tests.tasks.conftest import SETTINGS, operator

pytestmark = pytest.mark.timeout(120)
SILENT = """
import socket, sys, time
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("up", flush=True)
kept = server.accept()
time.sleep(600)
"""
WHY = "it sends away what it should not: SEC-42"


class Slow(SimulatedProvider):
    """Makes and pauses nothing while it is held up, or cannot pause at all."""

    def __init__(self, place):
        super().__init__(place)
        self.go_on, self.asked, self.is_broken = asyncio.Event(), asyncio.Event(), False
        self.go_on.set()

    async def create(self, key, spec):
        self.asked.set()
        await self.go_on.wait()
        return await super().create(key, spec)

    async def pause(self, ref):
        self.asked.set()
        if self.is_broken:
            raise Unavailable("it cannot be heard")
        await self.go_on.wait()
        return await super().pause(ref)

    def hold_up(self):
        self.go_on.clear()
        self.asked.clear()


@pytest.fixture(scope="module")
def slow():
    return []


@pytest.fixture(scope="module")
async def plane(slow):
    def provider(place):
        slow.append(Slow(place))
        return slow[0]

    async with disposable(provider=provider, settings=SETTINGS) as made:
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
    plane.services.providers.templates["simulated"] = Kept(shelf, shelf.prepare)
    return {"name": "known", "source": {"kind": "snapshot", "reference": snapshot}}


@pytest.fixture
async def box(plane, as_root):
    """With an open network, which the simulated provider gives as root only."""
    found = await made(plane, ports=[free_port()], egress={"mode": "open"})
    yield found
    await plane.admin.delete(f"/v1/sandboxes/{found['id']}?force=true")


@pytest.mark.proves("H8")
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


@pytest.mark.proves("H8")
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


@pytest.mark.proves("H8")
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


async def served(plane, box):
    """A server inside, which answers."""
    site = Site(plane, box, box["ports"][0])
    wish = {"cmd": ["python3", "-c", SERVER, str(site.port)]}
    await plane.admin.post(f"{site.path}/commands", wish)
    await site.until(200, **{"X-Paddock-Token": plane.admin.token})
    return site


@pytest.mark.proves("H8")
async def test_nobody_but_an_admin_sees_its_previews_and_strangers_read_nothing_of_why(
    plane, member, box
):
    site = await served(plane, box)
    link = await member.post(f"{site.path}/ports/{site.port}/links", {})
    cookie = f"paddock_preview={link['url'].partition('paddock_link=')[2]}"
    await plane.admin.call("PATCH", site.path, {"public_ports": [site.port]})
    assert (await site.get())[0] == 200
    await set_aside(plane, box)
    for woken in (False, True):
        if woken:
            assert (await plane.admin.post(f"{site.path}/resume")).status == 200
        for shown in ({}, {"Cookie": cookie}):
            status, said, _ = await site.get(**shown)
            assert (status, json.loads(said)["error"]["code"]) == (403, "forbidden")
            assert "closed for now" in said
            assert not any(word in said for word in ("SEC-42", "set aside", "tok_", "usr_"))
        status, said, _ = await site.get(**{"X-Paddock-Token": member.token})
        assert (status, "SEC-42" in said) == (403, True)
    assert (await site.get(**{"X-Paddock-Token": plane.admin.token}))[0] == 200
    changes = {
        "link": await member.post(f"{site.path}/ports/{site.port}/links", {}),
        "env": await member.call("PUT", f"{site.path}/env", {"env": {"LD_PRELOAD": "/x"}}),
        "public": await member.call("PATCH", site.path, {"public_ports": [1]}),
    }
    assert {way: answer.status for way, answer in changes.items()} == dict.fromkeys(changes, 403)
    assert "LD_PRELOAD" not in (await plane.admin.get(site.path))["env_names"]
    assert (await plane.admin.delete(f"/v1/quarantine/{box['id']}")).status == 200
    assert (await site.get(Cookie=cookie))[0] == 200


@pytest.mark.proves("H8")
async def test_who_is_at_a_preview_when_it_is_set_aside_is_sent_away(plane, member, box):
    site = Site(plane, box, box["ports"][0])
    started = await plane.admin.post(
        f"{site.path}/commands", {"cmd": ["python3", "-c", SILENT, str(site.port)]}
    )
    path = f"{site.path}/commands/{started['id']}/output?format=ndjson"
    async for line in plane.admin.lines("GET", path):
        if "up" in line.get("data", ""):
            break
    visiting = asyncio.create_task(site.get(**{"X-Paddock-Token": member.token}))
    async with asyncio.timeout(30):
        while not plane.services.inside._activity.doing(box["id"]).get("preview"):
            await asyncio.sleep(0.01)
    await set_aside(plane, box)
    async with asyncio.timeout(30):
        status, said, _ = await visiting
    assert (status, "set aside" in said) == (403, True)


async def test_a_stranger_reads_nothing_of_why_a_sandbox_failed(plane, box):
    path = f"/v1/sandboxes/{box['id']}"
    site = Site(plane, box, free_port())
    await plane.admin.call("PATCH", path, {"public_ports": [site.port]})
    record = await plane.services.store.read(lambda tx: tx.sandboxes.get("", box["id"]))
    provider = plane.services.providers.get("")
    await provider.destroy(ref_of(record))
    await plane.rounds.reconciler.look()
    found = await plane.admin.get(path)
    assert found["state"] == "failed"
    status, said, _ = await site.get()
    assert (status, "the sandbox failed" in said) == (502, True)
    assert found["detail"] not in said
    assert provider.name not in said


async def finished(plane, box):
    async with asyncio.timeout(30):
        while not (case := await plane.admin.get(f"/v1/quarantine/{box['id']}"))["snapshot"]:
            await asyncio.sleep(0.05)
        while (await state(plane, box))[0] != "paused":
            await asyncio.sleep(0.05)
    return case


@pytest.mark.parametrize("by", ["again", "reconciler"])
async def test_what_ends_between_the_mark_and_the_freeze_is_gone_on_with(plane, slow, box, by):
    slow[0].hold_up()
    setting = asyncio.create_task(
        plane.services.care.quarantines.set(await operator(plane), box["id"], WHY)
    )
    try:
        async with asyncio.timeout(30):
            await slow[0].asked.wait()
        setting.cancel()
        await asyncio.gather(setting, return_exceptions=True)
        assert await state(plane, box) == ("running", WHY)
    finally:
        slow[0].go_on.set()
    if by == "again":
        assert (await set_aside(plane, box))["snapshot"]
    else:
        await plane.rounds.reconciler.look()
    case = await finished(plane, box)
    assert case["missing"] == []
    assert {type(each["at"]) for each in case["events"]} == {str}
    evidence = (await plane.admin.get(f"/v1/snapshots?sandbox={box['id']}"))["items"]
    assert len(evidence) == 1
    assert (await plane.admin.post(f"/v1/sandboxes/{box['id']}/resume")).status == 200
    await plane.rounds.reconciler.look()
    await set_aside(plane, box)
    assert await state(plane, box) == ("running", WHY), "an admin is looking into it"


@pytest.mark.proves("H8")
async def test_one_that_could_not_be_frozen_is_tried_again(plane, slow, box):
    slow[0].is_broken = True
    try:
        case = await plane.admin.call("PUT", f"/v1/quarantine/{box['id']}", {"why": WHY})
        assert (case.status, "that it stands still" in case["missing"][0]) == (200, True)
        assert await state(plane, box) == ("running", WHY)
    finally:
        slow[0].is_broken = False
    await plane.rounds.reconciler.look()
    # It is written down a little after it stands still.
    async with asyncio.timeout(30):
        while (await plane.admin.get(f"/v1/quarantine/{box['id']}"))["missing"]:
            await asyncio.sleep(0.05)
    assert await state(plane, box) == ("paused", WHY)


@pytest.mark.proves("H8")
async def test_one_that_is_being_made_stands_still_once_it_is_there(plane, slow):
    slow[0].hold_up()
    making = asyncio.create_task(
        plane.admin.post("/v1/sandboxes", {"template": "plain", "name": "half"})
    )
    try:
        async with asyncio.timeout(30):
            await slow[0].asked.wait()
        setting = asyncio.create_task(plane.admin.call("PUT", "/v1/quarantine/half", {"why": WHY}))
        async with asyncio.timeout(30):
            while not (await plane.admin.get("/v1/sandboxes/half"))["quarantine"]:
                await asyncio.sleep(0.05)
    finally:
        slow[0].go_on.set()
    box = (await making).body
    assert (await setting)["missing"] == []
    assert await state(plane, box) == ("paused", WHY)
    await plane.admin.delete(f"/v1/sandboxes/{box['id']}?force=true")
