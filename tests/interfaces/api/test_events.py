"""Events over HTTP."""

import asyncio
import json

import pytest

EVERY_DATABASE = True


@pytest.mark.proves("U6")
async def test_a_sandboxes_life_is_told_in_order(plane):
    made = await plane.admin.post("/v1/sandboxes", {"template": "plain"})
    await plane.admin.post(f"/v1/sandboxes/{made['id']}/stop")
    await plane.admin.delete(f"/v1/sandboxes/{made['id']}")
    page = await plane.admin.get(f"/v1/events?subject={made['id']}")
    kinds = [item["kind"].partition(".")[2] for item in page["items"]]
    assert kinds == ["creating", "running", "stopped", "deleting", "deleted"]
    numbers = [item["seq"] for item in page["items"]]
    assert numbers == sorted(numbers)
    assert page["items"][2]["data"]["reason"] == "user"
    assert all(item["actor"].startswith("tok_") for item in page["items"])


@pytest.mark.proves("U10")
async def test_a_follower_hears_what_was_and_what_comes_and_resumes_without_a_gap(plane):
    start = (await plane.admin.get("/v1/events?limit=500"))["items"]
    after = start[-1]["seq"] if start else 0
    heard: list[dict] = []
    enough = asyncio.Event()

    async def listen(place: int, count: int) -> None:
        async for line in plane.admin.lines(
            "GET", f"/v1/events/stream?format=ndjson&after={place}"
        ):
            heard.append(line)
            if len(heard) >= count:
                enough.set()
                return

    made = await plane.admin.post("/v1/sandboxes", {"template": "plain"})
    first = asyncio.create_task(listen(after, 3))
    await plane.admin.post(f"/v1/sandboxes/{made['id']}/stop")
    await asyncio.wait_for(first, 10)
    await plane.admin.post(f"/v1/sandboxes/{made['id']}/start")
    await plane.admin.delete(f"/v1/sandboxes/{made['id']}")
    await asyncio.wait_for(listen(heard[-1]["seq"], 6), 10)
    kinds = [line["kind"].partition(".")[2] for line in heard]
    assert kinds == ["creating", "running", "stopped", "running", "deleting", "deleted"]
    assert len({line["seq"] for line in heard}) == 6


@pytest.mark.proves("U10")
async def test_an_apps_events_are_those_of_its_sandboxes_and_secrets(plane):
    box, other = [
        (await plane.admin.post("/v1/sandboxes", {"template": "plain", "app": app})).body
        for app in ("told", "untold")
    ]
    for each in (box, other):
        path = f"/v1/sandboxes/{each['id']}"
        await plane.admin.post(f"{path}/exec", {"cmd": ["true"]})
        forged = {"app": "told"}
        step = {"source": "a", "seq": 1, "kind": "custom.step", "data": forged}
        assert (await plane.admin.post(f"{path}/events", [step])).status == 200
        await plane.admin.call("PUT", f"/v1/secrets/KEY?app={each['app']}", {"value": "x"})
        await plane.admin.call("PATCH", path, {"labels": {"a": "b"}})
        await plane.admin.delete(path)
    found, cursor = [], ""
    while cursor is not None:
        page = await plane.admin.get(f"/v1/events?app=told&limit=3&cursor={cursor}")
        found, cursor = found + page["items"], page["next_cursor"]
    kinds = [each["kind"] for each in found]
    assert sorted(set(kinds)) == sorted(
        {"sandbox.creating", "sandbox.running", "sandbox.changed", "custom.step", "secret.set"}
        | {"sandbox.deleting", "sandbox.deleted", "command.started", "command.ended"}
    )
    assert all(each["data"]["app"] == "told" for each in found)
    everything = (await plane.admin.get("/v1/events?limit=500"))["items"]
    assert [e["seq"] for e in found] == [
        e["seq"] for e in everything if e["data"].get("app") == "told"
    ]
    assert {e["seq"] for e in everything if e["subject"] == box["id"]} <= {e["seq"] for e in found}
    heard = []
    async with asyncio.timeout(10):
        path = f"/v1/events/stream?format=ndjson&app=told&after={found[2]['seq']}"
        async for line in plane.admin.lines("GET", path):
            heard.append(line["seq"])
            if line["seq"] == found[-1]["seq"]:
                break
    assert heard == [each["seq"] for each in found[3:]]
    stranger = await plane.team("listeners")
    assert (await stranger.get("/v1/events?app=told"))["items"] == []


async def test_server_sent_events_carry_their_number_as_id(plane, box):
    headers = {"authorization": f"Bearer {plane.admin.token}", "Last-Event-ID": "0"}
    async with plane.session.get(f"{plane.url}/v1/events/stream", headers=headers) as answer:
        assert answer.content_type == "text/event-stream"
        assert answer.headers["x-paddock-place"] == "0"
        lines = [await answer.content.readline() for _ in range(5)]
    # Who breaks off here comes again with the place, whoever has sent it.
    assert lines[:2] == [b"id: 0\n", b"\n"]
    del lines[:2]
    assert lines[0].startswith(b"event: sandbox.")
    number = int(lines[1].removeprefix(b"id: "))
    told = json.loads(lines[2].removeprefix(b"data: "))
    assert told["seq"] == number
    listed = await plane.admin.get(f"/v1/events?cursor={number - 1}&limit=1")
    assert listed["items"] == [told], "both ways it is the same"


async def test_a_place_that_is_none_is_refused(plane):
    for path in ("/v1/events?cursor=abc", "/v1/audit?cursor=-1", "/v1/events/stream?after=-1"):
        assert (await plane.admin.get(path)).status == 400


@pytest.mark.proves("U10")
@pytest.mark.parametrize("way", ["header", "after", "list"])
async def test_a_place_beyond_the_end_of_the_log_is_refused_and_not_waited_at(plane, way):
    last = await plane.services.events.last_seq()
    for place, status in ((last, 200), (last + 1, 400), (10**17, 400)):
        path = "/v1/events/stream"
        headers = {"authorization": f"Bearer {plane.admin.token}"}
        if way == "header":
            headers["last-event-id"] = str(place)
        else:
            path = f"{path}?after={place}" if way == "after" else f"/v1/events?cursor={place}"
        async with (
            asyncio.timeout(10),
            plane.session.get(plane.url + path, headers=headers) as answer,
        ):
            assert answer.status == status
            if status == 400:
                error = (await answer.json())["error"]
                assert error["code"] == "invalid_request"
                # Without where the end is: how much all teams do is nobody's business.
                assert error["message"] == f"event {place} is beyond the end of the log"
                assert error["remediation"]
