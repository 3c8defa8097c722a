"""SSH into real sandboxes of this host: as their user, with that user's rights."""

import asyncio
import os

import aiohttp
import pytest

from paddock.adapters.providers.local.provider import LocalProvider
from paddock.interfaces.ssh.config import GatewayLimits
from paddock.wiring.providers import layered
from tests.control_plane import disposable
from tests.engines import local_config
from tests.harness.ports import free_port
from tests.interfaces.ssh.conftest import open_door, sha256

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
async def gate():
    provider = await LocalProvider.open(local_config())
    await provider.prepare("base")
    async with disposable(provider=lambda _: layered(provider)) as plane:
        async with open_door(plane, GatewayLimits(look_every_s=0.2)) as opened:
            made = await plane.admin.post("/v1/sandboxes", {})
            assert made.status == 201, made.body
            opened.box = made["id"]
            opened.token = (await opened.access())["token"]
            yield opened


@pytest.mark.proves("E7")
async def test_one_is_the_sandboxs_user_in_its_own_house(gate):
    done = await gate.ssh("id -un; pwd; hostname")
    assert done.text.split()[:2] == ["user", "/home/user"]
    assert done.text.split()[2] != os.uname().nodename
    done = await gate.ssh("stty size", options=("-tt",))
    assert done.text.split() == ["24", "80"]


async def test_one_may_come_as_root_by_asking_for_it(gate):
    made = await gate.access(reveal=True, user="root")
    assert (await gate.ssh("id -un; pwd", user=made["token"])).text == "root\n/root\n"
    made = await gate.access(reveal=True, user="nobody-of-that-name")
    done = await gate.ssh("true", user=made["token"])
    assert done.code == 255
    assert "name a user that the sandbox has" in done.said


async def test_files_are_the_users_and_roots_are_not(gate):
    data = os.urandom(5 << 20)
    (gate.folder / "out").write_bytes(data)
    done = await gate.sftp(f"put {gate.folder}/out file", f"get file {gate.folder}/back", "ls -l")
    assert done.code == 0, done.said
    assert sha256((gate.folder / "back").read_bytes()) == sha256(data)
    assert [" user " in line for line in done.text.splitlines() if "file" in line][-1]
    stat = await gate.ssh("stat -c '%U %a' file")
    assert stat.text.startswith("user ")
    for line in (
        f"put {gate.folder}/out /etc/file",
        f"get /etc/shadow {gate.folder}/shadow",
        "rm /etc/passwd",
        "chmod 777 /etc",
        "mkdir /usr/bin/new",
    ):
        refused = await gate.sftp(line)
        assert refused.code == 1, line
        assert "denied" in refused.said.lower() or "not permitted" in refused.said.lower(), line


async def test_a_port_inside_is_reached_through_the_fence(gate):
    local = free_port()
    script = "cd /etc && exec python3 -m http.server 8123 --bind 127.0.0.1"
    inside = await asyncio.create_subprocess_exec(
        "ssh", *gate.options(f"-L{local}:127.0.0.1:8123"), f"{gate.token}@127.0.0.1", script,
        stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        async with aiohttp.ClientSession() as session, asyncio.timeout(30):
            while True:
                try:
                    url = f"http://127.0.0.1:{local}/hostname"
                    async with session.get(url) as answer:
                        assert answer.status == 200
                        break
                except aiohttp.ClientError:
                    await asyncio.sleep(0.1)
    finally:
        inside.terminate()
        await inside.wait()


@pytest.mark.parametrize("verb", ["stop", "pause"])
async def test_one_that_sleeps_is_woken(gate, verb):
    await gate.ssh("echo kept > ~/kept")
    path = f"/v1/sandboxes/{gate.box}"
    answer = await gate.plane.admin.post(f"{path}/{verb}")
    assert answer["state"] in ("stopped", "paused")
    done = await gate.ssh("cat ~/kept")
    assert (done.code, done.stdout) == (0, b"kept\n")
    assert "it is being started" in done.said


async def test_a_sandbox_that_stops_ends_its_sessions_and_says_why(gate):
    process = await asyncio.create_subprocess_exec(
        "ssh", *gate.options(), f"{gate.token}@127.0.0.1", "echo in; sleep 60",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(30):
        assert await process.stdout.readline() == b"in\n"
        await gate.plane.admin.post(f"/v1/sandboxes/{gate.box}/stop")
        _, said = await process.communicate()
    assert process.returncode == 255
    assert "is stopped (user)" in said.decode()
