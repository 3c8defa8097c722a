"""The course of a sandbox: what happened in it, step by step, with its commands and their ends."""

import asyncio

import pytest

from paddock.domain.ids import new_id
from paddock.ports.store import ANY_TEAM
from paddock.services.system import system


def report(seq, kind, **data):
    return {"source": "agent", "seq": seq, "kind": kind, "data": data}


async def read(plane, box, query=""):
    answer = await plane.admin.get(f"/v1/sandboxes/{box['id']}/history?{query}")
    assert answer.status == 200, answer.body
    return answer.body


async def settle(plane):
    """Ends of commands are written without anybody waiting for it."""
    await plane.services.commands.log.aclose()


@pytest.mark.proves("U9")
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


@pytest.mark.proves("U9")
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


@pytest.mark.proves("U9")
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


async def test_no_key_of_a_request_stands_for_the_end_of_a_command(plane, box):
    """As long as they did, who had claimed it kept ends from being told, also other teams'."""
    command = new_id("cmd")
    path = f"/v1/sandboxes/{box['id']}"
    taken = {"Idempotency-Key": f"end of {command}"}
    assert (await plane.admin.post("/v1/tokens", {"name": "t"}, headers=taken)).status == 201
    wish = {"cmd": ["true"]}
    await plane.admin.post(f"{path}/commands", wish, headers={"Idempotency-Key": command})
    async with asyncio.timeout(20):
        while not await _ends(plane, box, command):
            await plane.admin.get(f"{path}/commands/{command}")
            await asyncio.sleep(0.1)


async def test_an_end_that_cannot_be_told_keeps_no_other_from_being_told(plane, box):
    log, store = plane.services.commands.log, plane.services.store
    sandbox = await store.read(lambda tx: tx.sandboxes.get(ANY_TEAM, box["id"]))
    who, bad, good = system(sandbox.team_id, "test"), new_id("cmd"), new_id("cmd")
    for command, seconds in ((bad, float("inf")), (good, 1.0)):  # what a guest says of itself
        log.ended(who, sandbox, command, {"seconds": seconds}, seen_by_all=True)
    await settle(plane)
    assert [len(await _ends(plane, box, command)) for command in (bad, good)] == [0, 1]


async def test_an_end_is_told_once_however_long_ago_and_whoever_was_started_since(plane, box):
    path = f"/v1/sandboxes/{box['id']}"
    began = await plane.admin.post(f"{path}/commands", {"cmd": ["true"]})
    async with asyncio.timeout(20):
        while not await _ends(plane, box, began["id"]):
            await asyncio.sleep(0.1)
    await plane.services.store.write(lambda tx: tx.keys.prune(10.0**12, 1000))
    plane.services.commands.log._told.clear()  # as after a restart
    await plane.admin.get(f"{path}/commands/{began['id']}")
    await settle(plane)
    assert len(await _ends(plane, box, began["id"])) == 1


async def test_the_same_id_in_another_team_is_another_command(plane, box):
    log, store = plane.services.commands.log, plane.services.store
    other = await plane.team(new_id("team").lower().replace("_", "-"))
    made = await other.post("/v1/sandboxes", {"template": "plain"})
    command = new_id("cmd")
    for each in (box, made.body):
        sandbox = await store.read(lambda tx, each=each: tx.sandboxes.get(ANY_TEAM, each["id"]))
        who = system(sandbox.team_id, "test")
        log.ended(who, sandbox, command, {"seconds": 1.0}, seen_by_all=True)
    await settle(plane)
    assert len(await _ends(plane, box, command)) == 1
    told = await other.get(f"/v1/events?subject={made['id']}&kind=command.ended")
    assert len(told["items"]) == 1


@pytest.mark.timeout(120)
async def test_nobody_looks_after_commands_of_a_sandbox_that_is_gone(plane):
    log = plane.services.commands.log
    made = await plane.admin.post("/v1/sandboxes", {"template": "plain"})
    path = f"/v1/sandboxes/{made['id']}"
    started = [await plane.admin.post(f"{path}/commands", {"cmd": ["sleep", "900"]}) for _ in "12"]
    names = {f"attend {each['id']}" for each in started}
    assert names <= {task.get_name() for task in log._attending}
    assert (await plane.admin.delete(path)).status == 200
    async with asyncio.timeout(60):
        while names & {task.get_name() for task in log._attending}:
            await asyncio.sleep(0.1)
