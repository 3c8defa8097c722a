"""What a crash of the server leaves behind, at any moment, whatever is under way."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import date

import aiohttp
import pytest

from tests.wiring.in_flight import Follower, Uploads, insist, once
from tests.wiring_server import Server, provider_refs, server

EVERY_DATABASE = True
TODAY = date.today().toordinal()
"""Another moment for each crash every day. It is in the id of the test, to be repeated."""
FEW_OR_MANY = pytest.mark.parametrize(
    ("rounds", "seed"),
    [
        pytest.param(6, 7, marks=pytest.mark.slow),
        pytest.param(30, TODAY, marks=pytest.mark.soak),
    ],
)
Wish = Callable[[], Awaitable[object]]


@pytest.mark.proves("L11")
async def test_what_nobody_asks_for_again_is_finished_after_a_crash(empty_database):
    async with server(server__database=empty_database) as made:
        name = {"name": "begun"}
        asking = asyncio.create_task(made.admin.post("/v1/sandboxes", name))
        while not (await made.admin.get("/v1/sandboxes"))["items"]:
            await asyncio.sleep(0.01)
        await made.kill()
        with suppress(aiohttp.ClientError):
            await asking
        assert not (made.data / "paddock.db").exists() or not empty_database
        await made.start()
        async with asyncio.timeout(60):
            while (await made.admin.get("/v1/sandboxes/begun"))["state"] != "running":
                await asyncio.sleep(0.05)


def moments(rounds: int, longest: float, seed: int) -> list[float]:
    """Delays until each crash: one at random from each of as many equal spans, in any order."""
    chance = random.Random(seed)
    spread = [(number + chance.random()) * longest / rounds for number in range(rounds)]
    chance.shuffle(spread)
    return spread


@pytest.mark.proves("L2", "L7", "L11", "E6", "E12")
@FEW_OR_MANY
@pytest.mark.timeout(900)
async def test_a_crash_at_any_moment_loses_nothing_and_makes_nothing_twice(
    empty_database, rounds, seed
):
    async with server(server__database=empty_database) as made:
        source = await made.admin.post("/v1/sandboxes", {"name": "source"})
        path = f"/v1/sandboxes/{source['id']}"
        count = 4000
        script = f"i=0; while [ $i -lt {count} ]; do i=$((i+1)); echo line $i; sleep 0.02; done"
        command = await made.admin.post(f"{path}/commands", {"cmd": ["sh", "-c", script]})
        follower = Follower(made, f"{path}/commands/{command['id']}/output")
        following = asyncio.create_task(follower.follow())
        sleeper = await made.admin.post("/v1/sandboxes", {"name": "sleeper"})
        expected = {source["id"], sleeper["id"]}
        snapshots: set[str] = set()
        for number, delay in enumerate(moments(rounds, 0.25, seed)):
            ids = await one_round(made, path, sleeper["id"], number, delay)
            expected.add(ids[0])
            snapshots.add(ids[1])
            expected.add(ids[2])
        assert made.starts == rounds + 1
        listed = await made.admin.get("/v1/sandboxes?limit=500")
        assert {item["id"] for item in listed["items"]} == expected
        assert len(expected) == 2 + 2 * rounds
        taken = await made.admin.get("/v1/snapshots?limit=500")
        assert {item["id"] for item in taken["items"]} == snapshots
        # What was written meanwhile arrives whole; there is no need to wait for the last line.
        await made.admin.post(f"{path}/commands/{command['id']}/kill?grace_s=0")
        await asyncio.wait_for(following, 60)
        lines = follower.text.splitlines()
        assert lines == [f"line {n}" for n in range(1, len(lines) + 1)]
        assert len(lines) > 100
        await made.stop()
        assert len(await provider_refs(made.data)) == len(expected), "an orphan, or one too few"


async def one_round(
    made: Server, path: str, sleeper: str, number: int, delay: float
) -> tuple[str, str, str]:
    """Begin everything, end the server somewhere in between, and insist on the answers."""

    def keyed(method: str, where: str, body: dict, key: str) -> Wish:
        headers = {"Idempotency-Key": f"{key}-{number}"}
        return lambda: made.admin.call(method, where, body, headers=headers)

    wishes = [
        keyed("POST", f"{path}/fork", {"name": f"fork-{number}"}, "fork"),
        keyed("POST", f"{path}/snapshots", {"name": f"snap-{number}"}, "snap"),
        keyed("POST", "/v1/sandboxes", {"name": f"new-{number}"}, "new"),
        lambda: made.admin.post(f"/v1/sandboxes/{sleeper}/stop"),
        lambda: made.admin.post(f"/v1/sandboxes/{sleeper}/start"),
    ]
    asking = [asyncio.create_task(insist(wish)) for wish in wishes]
    await asyncio.sleep(delay)
    await made.kill()
    await made.start()
    answers = await asyncio.gather(*asking)
    for answer in answers[:3]:
        assert answer.status == 201, answer.body
    return tuple(answer["id"] for answer in answers[:3])


@pytest.mark.proves("S12", "L4")
@FEW_OR_MANY
@pytest.mark.timeout(900)
async def test_a_crash_leaves_uploads_whole_or_absent_and_wakes_can_be_done_again(rounds, seed):
    async with server() as made:
        taker = await made.admin.post("/v1/sandboxes", {"name": "taker"})
        uploads = Uploads(made, taker["id"])
        sleepers = {name: await a_sleeper(made, name) for name in ("stop", "pause", "archive")}
        for number, delay in enumerate(moments(rounds, 0.35, seed)):
            for name, path in sleepers.items():
                await put_to_sleep(made, name, path)
            waking = [asyncio.create_task(once(woken(made, p))) for p in sleepers.values()]
            sending = uploads.begin(number)
            await asyncio.sleep(delay)
            await made.kill()
            answers = await asyncio.gather(*sending)
            await asyncio.gather(*waking)
            await made.start()
            await uploads.settle(number, answers)
            for path in sleepers.values():
                await check_awake(made, path)
        assert uploads.broken > rounds, "too few were caught on their way"
        listed = await made.admin.get("/v1/sandboxes?limit=500")
        assert {item["state"] for item in listed["items"]} == {"running"}
        assert len(listed["items"]) == 1 + len(sleepers)
        await made.stop()
        assert len(await provider_refs(made.data)) == 1 + len(sleepers)


async def a_sleeper(made: Server, name: str) -> str:
    box = await made.admin.post("/v1/sandboxes", {"name": name})
    path = f"/v1/sandboxes/{box['id']}"
    await made.admin.call("PUT", f"{path}/files?path=note", data=name.encode())
    return path


async def put_to_sleep(made: Server, name: str, path: str) -> None:
    verbs = ("stop", "archive") if name == "archive" else (name,)
    for verb in verbs:
        answer = await made.admin.post(f"{path}/{verb}")
        assert answer.status < 300, answer.body


def woken(made: Server, path: str) -> Wish:
    """Resumed or started, as it needs; nothing where it runs."""

    async def wake() -> object:
        state = (await made.admin.get(path))["state"]
        if state == "running":
            return None
        return await made.admin.post(f"{path}/{'resume' if state == 'paused' else 'start'}")

    return wake


async def check_awake(made: Server, path: str) -> None:
    """Whatever was under way: asked again it wakes, with all it had."""
    await insist(woken(made, path))
    shown = await made.admin.get(path)
    assert shown["state"] == "running", shown.body
    note = await made.admin.get(f"{path}/files?path=note")
    assert note.body.decode() == shown["name"]
    ran = await made.admin.post(f"{path}/exec", {"cmd": ["cat", "note"]})
    assert (ran["exit_code"], ran["stdout"]) == (0, shown["name"])
