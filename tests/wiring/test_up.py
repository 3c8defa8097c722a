"""`paddock up` as people run it, and what a crash at any moment leaves behind."""

import asyncio
import random
import stat
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress

import aiohttp
import pytest

from tests.wiring_server import Server, provider_refs, server

EVERY_DATABASE = True
ROUNDS = 30


@pytest.mark.proves("U3")
async def test_it_says_when_it_is_ready_and_stops_cleanly_while_sandboxes_go_on(empty_database):
    async with server(server__database=empty_database) as made:
        token = made.data / "admin-token"
        assert stat.S_IMODE(token.stat().st_mode) == 0o600
        first = token.read_text()
        box = await made.admin.post("/v1/sandboxes", {})
        assert box.status == 201, box.body
        script = "while :; do date +%s%N > /tmp/beat; sleep 0.05; done"
        await made.admin.post(f"/v1/sandboxes/{box['id']}/commands", {"cmd": ["sh", "-c", script]})
        assert await made.stop() == 0
        await asyncio.sleep(0.5)
        await made.start()
        assert token.read_text() == first, "written at the first start only"
        command = {"cmd": ["cat", "/tmp/beat"]}
        beat = await made.admin.post(f"/v1/sandboxes/{box['id']}/exec", command)
        assert beat.status == 200, beat.body
        listed = await made.admin.get("/v1/sandboxes")
        assert [item["state"] for item in listed["items"]] == ["running"]


@pytest.mark.proves("U3")
def test_no_auth_is_refused_where_others_could_come_in(tmp_path):
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "paddock",
            "up",
            "--no-auth",
            "--host=0.0.0.0",
            f"--data-dir={tmp_path}",
        ],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0
    assert "--no-auth" in done.stderr
    assert "fix:" in done.stderr
    assert not (tmp_path / "paddock.db").exists()


async def test_a_port_that_is_taken_is_said_plainly():
    async with server() as made:
        done = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "paddock",
            "up",
            f"--port={made.port}",
            f"--data-dir={made.data}",
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        _, said = await asyncio.wait_for(done.communicate(), 60)
        assert done.returncode != 0
        assert b"Traceback" not in said, said.decode()
        assert b"fix:" in said


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


class Follower:
    """Somebody who reads a command's output and comes back at the cursor when it breaks off."""

    def __init__(self, made: Server, path: str) -> None:
        self.made, self.path = made, path
        self.text, self.code = "", None

    async def follow(self) -> None:
        while self.code is None:
            with suppress(aiohttp.ClientError, ConnectionError, AssertionError, TimeoutError):
                await self._read_on()
            await asyncio.sleep(0.05)

    async def _read_on(self) -> None:
        path = f"{self.path}?format=ndjson&cursor=stdout:{len(self.text)}"
        async for line in self.made.admin.lines("GET", path):
            if line["type"] == "output":
                assert line["offset"] == len(self.text), "a byte was lost or came twice"
                self.text += line["data"]
            elif line["type"] == "exit":
                self.code = line["exit_code"]
                return
            elif line["type"] == "error":
                return


async def insist(act: Callable[[], Awaitable[object]]) -> object:
    """Until it is answered, as a client that holds a key may."""
    async with asyncio.timeout(60):
        while True:
            with suppress(aiohttp.ClientError, ConnectionError, TimeoutError):
                return await act()
            await asyncio.sleep(0.05)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.proves("L2", "L7", "L11", "L12", "E6", "E12")
async def test_a_crash_at_any_moment_loses_nothing_and_makes_nothing_twice(empty_database):
    chance = random.Random(7)
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
        for number in range(ROUNDS):
            ids = await one_round(made, path, sleeper["id"], number, chance)
            expected.add(ids[0])
            snapshots.add(ids[1])
            expected.add(ids[2])
        assert made.starts == ROUNDS + 1
        listed = await made.admin.get("/v1/sandboxes?limit=500")
        assert {item["id"] for item in listed["items"]} == expected
        assert len(expected) == 2 + 2 * ROUNDS
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
    made: Server, path: str, sleeper: str, number: int, chance: random.Random
) -> tuple[str, str, str]:
    """Begin everything, end the server somewhere in between, and insist on the answers."""

    def keyed(method: str, where: str, body: dict, key: str) -> Callable[[], Awaitable[object]]:
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
    await asyncio.sleep(chance.uniform(0.0, 0.25))
    await made.kill()
    await made.start()
    answers = await asyncio.gather(*asking)
    for answer in answers[:3]:
        assert answer.status == 201, answer.body
    return tuple(answer["id"] for answer in answers[:3])
