"""The course of a sandbox: what happened in it, step by step, with its commands and their ends."""

import asyncio

import pytest

pytestmark = pytest.mark.proves("U9")


def report(seq, kind, **data):
    return {"source": "agent", "seq": seq, "kind": kind, "data": data}


async def read(plane, box, query=""):
    answer = await plane.admin.get(f"/v1/sandboxes/{box['id']}/history?{query}")
    assert answer.status == 200, answer.body
    return answer.body


async def settle(plane):
    """Ends of commands are written without anybody waiting for it."""
    await plane.services.commands.log.aclose()


async def test_a_life_with_commands_and_heartbeats_reads_as_a_few_steps(plane, box):
    place = f"/v1/sandboxes/{box['id']}"
    await plane.admin.post(f"{place}/exec", {"cmd": ["sh", "-c", "exit 3"]})
    await settle(plane)
    beats = [report(n, "custom.agent.heartbeat", load=n) for n in range(1, 301)]
    await plane.admin.post(f"{place}/events", beats)
    await plane.admin.post(f"{place}/events", [report(301, "custom.step", name="plan")])
    steps = (await read(plane, box))["items"]
    assert [(s["kind"], s["count"]) for s in steps] == [
        ("sandbox.creating", 1),
        ("sandbox.running", 1),
        ("command.started", 1),
        ("custom.agent.heartbeat", 300),
        ("custom.step", 1),
    ]
    command = steps[2]["data"]
    assert (command["program"], command["exit_code"], command["reason"]) == ("sh", 3, "exited")
    assert command["seconds"] >= 0
    assert all(step["after_s"] >= 0 for step in steps)
    shown = (await read(plane, box, "quiet=false"))["items"]
    assert [s["kind"] for s in shown] == [s["kind"] for s in steps if not s["quiet"]]
    alone = (await read(plane, box, f"command={command['command']}"))["items"]
    assert [(s["kind"], s["data"]["exit_code"]) for s in alone] == [("command.started", 3)]


async def test_pages_go_both_ways_and_tell_everything_once(plane, box):
    place = f"/v1/sandboxes/{box['id']}"
    kinds = ["custom.a", "custom.ping", "custom.ping", "custom.b", "custom.b", "custom.c"] * 4
    await plane.admin.post(f"{place}/events", [report(n, k) for n, k in enumerate(kinds, start=1)])
    whole = await read(plane, box)
    assert (whole["older"], whole["newer"]) == (None, None)
    expected = [(s["kind"], s["count"]) for s in whole["items"]]
    forwards, after = [], 0
    while after is not None:
        page = await read(plane, box, f"limit=3&after={after}")
        forwards += page["items"]
        after = page["newer"]
    backwards, before = [], 1 << 60
    while before is not None:
        page = await read(plane, box, f"limit=3&before={before}")
        backwards = page["items"] + backwards
        before = page["older"]
    for steps in (forwards, backwards):
        assert [(s["kind"], s["count"]) for s in steps] == expected


async def test_the_end_of_a_command_in_the_background_is_told_once_whoever_sees_it(plane, box):
    place = f"/v1/sandboxes/{box['id']}"
    started = await plane.admin.post(f"{place}/commands", {"cmd": ["sh", "-c", "echo hi; exit 4"]})
    for _ in range(2):
        lines = plane.admin.lines("GET", f"{place}/commands/{started['id']}/output?format=ndjson")
        assert [line async for line in lines][-1]["exit_code"] == 4
    plane.services.commands.log._told.clear()  # as after a restart
    await plane.admin.get(f"{place}/commands/{started['id']}")
    await settle(plane)
    told = await plane.admin.get(f"/v1/events?subject={box['id']}&kind=command.ended")
    assert [(e["data"]["command"], e["data"]["exit_code"]) for e in told["items"]] == [
        (started["id"], 4)
    ]


async def test_a_command_that_nobody_follows_has_its_end_too(plane, box):
    path = f"/v1/sandboxes/{box['id']}"
    began = await plane.admin.post(f"{path}/commands", {"cmd": ["sh", "-c", "exit 3"]})
    async with asyncio.timeout(20):
        while not (told := await _ends(plane, box, began["id"])):
            await asyncio.sleep(0.2)
    assert [event["data"]["exit_code"] for event in told] == [3]
    await plane.admin.get(f"{path}/commands/{began['id']}")
    await asyncio.sleep(0.5)
    assert len(await _ends(plane, box, began["id"])) == 1


async def _ends(plane, box, command):
    told = await plane.admin.get(f"/v1/events?subject={box['id']}&kind=command.ended")
    return [event for event in told["items"] if event["data"]["command"] == command]


async def test_who_may_not_read_events_reads_no_history(plane, box):
    narrow = await plane.member(scopes=["sandboxes:read"])
    assert (await narrow.get(f"/v1/sandboxes/{box['id']}/history")).status == 403
    assert (await plane.admin.get("/v1/sandboxes/nope/history")).status == 404
