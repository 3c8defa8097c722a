"""Events of agents and programs: authenticated, numbered, stored before they are acknowledged."""

import asyncio
import json

import pytest

from paddock.settings import ServerConfig, Settings
from tests.control_plane import disposable


def report(seq, source="agent", kind="custom.step", **more):
    return {"source": source, "seq": seq, "kind": kind, **more}


async def kept(client, box):
    found = await client.get(f"/v1/events?subject={box['id']}&kind=custom.step&limit=500")
    return [(e["data"]["source"], e["data"]["n"]) for e in found["items"]]


@pytest.mark.proves("U8")
async def test_what_is_acknowledged_is_in_the_log_under_the_name_of_who_told_it(plane, box):
    teller = await plane.member(scopes=["events:write"])
    sent = [report(1, data={"step": "plan"}, at="2026-01-02T03:04:05Z"), report(2)]
    answer = await teller.post(f"/v1/sandboxes/{box['id']}/events", sent)
    assert answer.status == 200
    (source,) = answer["sources"]
    assert (source["source"], source["last_seq"], source["missing"]) == ("agent", 2, [])
    numbers = [each["event"] for each in answer["events"]]
    found = await plane.admin.get(f"/v1/events?subject={box['id']}&kind=custom.step")
    assert [e["seq"] for e in found["items"]] == numbers
    first = found["items"][0]
    assert first["data"] == {
        "source": "agent",
        "n": 1,
        "data": {"step": "plan"},
        "at": 1767323045.0,
    }
    assert first["actor"].startswith("tok_")
    assert (await teller.get("/v1/events")).status == 403


@pytest.mark.proves("U8")
async def test_what_comes_again_is_kept_once_and_gaps_are_told_until_they_are_filled(plane, box):
    place = f"/v1/sandboxes/{box['id']}/events"
    await plane.admin.post(place, [report(1), report(2), report(2)])
    again = await plane.admin.post(place, [report(2), report(3), report(6), report(1, "other")])
    assert [e["event"] is None for e in again["events"]] == [True, False, False, False]
    assert [s["missing"] for s in again["sources"]] == [[[4, 5]], []]
    late = await plane.admin.post(place, [report(5), report(4), report(5)])
    assert [e["event"] is None for e in late["events"]] == [False, False, True]
    listed = (await plane.admin.get(f"{place}/sources"))["items"]
    assert [(s["source"], s["last_seq"], s["missing"]) for s in listed] == [
        ("agent", 6, []),
        ("other", 1, []),
    ]
    assert sorted(await kept(plane.admin, box)) == [
        *(("agent", n) for n in range(1, 7)),
        ("other", 1),
    ]


@pytest.mark.proves("U8")
async def test_senders_at_once_are_sorted_out(plane, box):
    place = f"/v1/sandboxes/{box['id']}/events"
    batches = [[report(n) for n in range(start, start + 10)] for start in range(1, 41, 5)]
    answers = await asyncio.gather(*(plane.admin.post(place, batch) for batch in batches * 2))
    assert {answer.status for answer in answers} == {200}
    assert sorted(await kept(plane.admin, box)) == [("agent", n) for n in range(1, 46)]
    (source,) = (await plane.admin.get(f"{place}/sources"))["items"]
    assert (source["last_seq"], source["missing"]) == (45, [])


@pytest.mark.proves("U8")
async def test_lines_are_taken_as_well_as_a_list(plane, box):
    lines = "\n".join(json.dumps(report(n)) for n in (1, 2, 3)) + "\n"
    answer = await plane.admin.call(
        "POST",
        f"/v1/sandboxes/{box['id']}/events",
        data=lines.encode(),
        headers={"content-type": "application/x-ndjson; charset=utf-8"},
    )
    assert answer.status == 200
    assert len(await kept(plane.admin, box)) == 3


@pytest.mark.proves("U8")
@pytest.mark.parametrize(
    "wrong",
    [
        [],
        {},
        [{}],
        [report(0)],
        [report("1")],
        [report(1 << 60)],
        [report(1, kind="sandbox.deleted")],
        [report(1, kind="custom.deleted "), report(2)],
        [report(1, "a b")],
        [report(1, data=[1])],
        [report(1, data={"x": "y" * (65 << 10)})],
        [report(1, extra=1)],
        [report(n) for n in range(1, 1002)],
    ],
    ids=lambda wrong: str(wrong)[:40],
)
async def test_a_batch_with_anything_wrong_is_refused_whole(plane, box, wrong):
    place = f"/v1/sandboxes/{box['id']}/events"
    answer = await plane.admin.post(place, wrong)
    assert (answer.status, answer.error["code"]) == (400, "invalid_request")
    assert answer.error["remediation"]
    assert await kept(plane.admin, box) == []
    assert (await plane.admin.get(f"{place}/sources"))["items"] == []


@pytest.mark.proves("U8")
async def test_only_who_may_tell_of_events_does_and_only_of_their_own(plane, box):
    place = f"/v1/sandboxes/{box['id']}/events"
    viewer = await plane.member(role="viewer")
    assert (await viewer.post(place, [report(1)])).status == 403
    stranger = await plane.team("tellers")
    assert (await stranger.post(place, [report(1)])).status == 404
    assert (await plane.client("").post(place, [report(1)])).status == 401
    body = {"data": b"<x/>", "headers": {"content-type": "text/xml"}}
    assert (await plane.admin.call("POST", place, **body)).status == 400


@pytest.mark.proves("U11", "U8")
async def test_a_flood_is_slowed_down_and_nothing_of_it_is_stored():
    limits = ServerConfig(events_per_second=100.0, events_burst=150.0)
    async with disposable(settings=Settings(server=limits)) as plane:
        box = (await plane.admin.post("/v1/sandboxes", {"template": "plain"})).body
        place = f"/v1/sandboxes/{box['id']}/events"
        first = await plane.admin.post(place, [report(n) for n in range(1, 101)])
        second = await plane.admin.post(place, [report(n) for n in range(101, 201)])
        assert (first.status, second.status) == (200, 429)
        assert int(second.headers["retry-after"]) >= 1
        assert len(await kept(plane.admin, box)) == 100
        metrics = (await plane.admin.get("/metrics")).body.decode()
        assert 'paddock_events_written_total{kind="custom"} 100.0' in metrics
