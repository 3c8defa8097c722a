"""`paddock up` as people run it."""

import asyncio
import stat
import subprocess
import sys
import time

import pytest

from tests.wiring_server import server

EVERY_DATABASE = True
_FILL = """
import os
for directory in range(300):
    os.makedirs(f"/home/user/cache/{directory}")
    for number in range(1000):
        os.mknod(f"/home/user/cache/{directory}/{number}")
"""


async def test_it_says_when_it_is_ready_and_stops_cleanly_while_sandboxes_go_on(empty_database):
    async with server(server__database=empty_database) as made:
        token = made.data / "admin-token"
        assert stat.S_IMODE(token.stat().st_mode) == 0o600
        first = token.read_text()
        box = await made.admin.post("/v1/sandboxes", {})
        assert box.status == 201, box.body
        script = "while :; do date +%s%N > /tmp/next; mv /tmp/next /tmp/beat; sleep 0.05; done"
        await made.admin.post(f"/v1/sandboxes/{box['id']}/commands", {"cmd": ["sh", "-c", script]})
        assert await made.stop() == 0
        stopped = time.time_ns()
        await made.start()
        assert token.read_text() == first, "written at the first start only"
        beats = {"cmd": ["sh", "-c", f"until [ $(cat /tmp/beat) -gt {stopped} ]; do :; done"]}
        ran = await made.admin.post(f"/v1/sandboxes/{box['id']}/exec", beats)
        assert (ran.status, ran["exit_code"]) == (200, 0), ran.body
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


@pytest.mark.slow
@pytest.mark.timeout(500)
async def test_it_stops_in_time_however_much_a_snapshot_has_to_leave_out():
    async with server() as made:
        rules = {"snapshot_ignore": ["/home/user/cache"]}
        changed = await made.admin.call("PATCH", "/v1/templates/base", rules)
        assert changed.status == 200, changed.body
        box = await made.admin.post("/v1/sandboxes", {"resources": {"disk_mib": 3000}})
        assert box.status == 201, box.body
        path = f"/v1/sandboxes/{box['id']}"
        begun = await made.admin.post(f"{path}/commands", {"cmd": ["python3", "-c", _FILL]})
        filled = {"exit_code": None}
        async with asyncio.timeout(300):
            while filled["exit_code"] is None:
                await asyncio.sleep(1)
                filled = await made.admin.get(f"{path}/commands/{begun['id']}")
        assert filled["exit_code"] == 0
        taking = asyncio.create_task(made.admin.post(f"{path}/snapshots", {"name": "large"}))
        await asyncio.sleep(0.5)
        assert not taking.done(), "or this shows nothing: let there be more files"
        before = time.monotonic()
        assert await made.stop() == 0
        took = time.monotonic() - before
        await asyncio.gather(taking, return_exceptions=True)
        assert took < 10, f"it took {took:.1f} s"
        assert "Traceback" not in made.log(), made.log()[-3000:]
        await made.start()
        listed = await made.admin.get("/v1/snapshots")
        assert listed["items"] == [], "what was half taken is not there"
        assert list((made.data / "pool" / "snapshots").iterdir()) == []
