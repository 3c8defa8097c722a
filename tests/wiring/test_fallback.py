"""`paddock up` with a fallback, while the engine it is to use is away."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest

from paddock.adapters.providers.local.storage import unmount_pool
from tests.adapters.providers.docker.test_engine_restart import own_engine  # noqa: F401
from tests.wiring_server import Server, server

pytestmark = pytest.mark.timeout(180)
NOBODY = "unix:///run/paddock-test-nobody-listens.sock"
AWAY = {"provider": "docker", "docker__host": NOBODY}


def refused(tmp_path, **settings):
    """What it says when it does not start."""
    command = [sys.executable, "-m", "paddock", "up", "--port=0", f"--data-dir={tmp_path}"]
    given = {f"PADDOCK_{name.upper()}": value for name, value in settings.items()}
    environment = {**os.environ, **given}
    try:
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=60, env=environment
        )
    finally:
        unmount_pool(tmp_path)
    assert done.returncode != 0
    return done.stderr


@pytest.fixture(scope="module")
async def made() -> AsyncIterator[Server]:
    """Its engine is away, and it has a fallback."""
    async with server(**AWAY, server__fallback_provider="local") as running:
        yield running


@pytest.mark.proves("P15", "P5", "H9")
async def test_a_server_whose_engine_is_away_works_on_this_host_and_says_so(made: Server):
    keyed = {"headers": {"idempotency-key": "one"}}
    box = await made.admin.post("/v1/sandboxes", {}, **keyed)
    assert (box.status, box["provider"]) == (201, "local"), box.body
    assert box["detail"].startswith("made on local, since docker is away: ")
    same = await made.admin.post("/v1/sandboxes", {}, **keyed)
    assert same["id"] == box["id"]
    ran = await made.admin.post(f"/v1/sandboxes/{box['id']}/exec", {"cmd": ["id", "-un"]})
    assert (ran.status, ran["exit_code"]) == (200, 0), ran.body
    named = await made.admin.post("/v1/sandboxes", {"provider": "docker"})
    assert (named.status, named.error["code"]) == (503, "provider_unavailable")
    assert "provider docker is away: " in named.error["message"]
    assert named.error["message"].endswith("because provider docker was named")
    assert (await made.admin.get("/readyz")).status == 200
    assert (await made.admin.get("/v1/agents")).status == 200
    told = await _command(made, "status")
    assert "provider  docker  NOT USABLE" in told
    assert "fallback  sandboxes are made on local: docker is away since" in told


@pytest.mark.proves("P15", "P5")
async def test_a_task_is_done_on_this_host_while_the_engine_is_away(made: Server):
    wish = {
        "agent": "command",
        "prompt": "count",
        "options": {"command": ["sh", "-c", "cat; echo done > made"]},
    }
    task = await made.admin.post("/v1/tasks", wish)
    assert task.status in (201, 202), task.body
    async with asyncio.timeout(120):
        while (now := await made.admin.get(f"/v1/tasks/{task['id']}"))["state"] not in (
            "completed",
            "failed",
        ):
            await asyncio.sleep(0.05)
    assert (now["state"], now["provider"]) == ("completed", "local"), now.body


@pytest.mark.slow
@pytest.mark.proves("P15", "P5", "H9")
async def test_an_engine_that_dies_is_gone_around_until_it_is_back(own_engine):  # noqa: F811
    settings = {
        "provider": "docker",
        "docker__host": own_engine.address,
        "docker__installation": f"fallback-{os.getpid()}",
        "server__fallback_provider": "local",
        "server__outage_s": "2",
    }
    async with server(**settings) as made:
        boxes = [await made.admin.post("/v1/sandboxes", {}, within_s=150)]
        own_engine.kill()
        boxes += [await made.admin.post("/v1/sandboxes", {}) for _ in range(2)]
        assert (await made.admin.get("/v1/system/status"))["diversion"]["provider"] == "docker"
        own_engine.start()
        await asyncio.sleep(3)
        boxes.append(await made.admin.post("/v1/sandboxes", {}))
        assert [each.status for each in boxes] == [201] * 4, [each.body for each in boxes]
        places = [each["provider"] for each in boxes]
        assert places == ["docker", "local", "local", "docker"]
        assert (await made.admin.get("/v1/system/status"))["diversion"] is None
        for box in boxes:  # with the last of an engine's, its gateway ends
            await made.admin.delete(f"/v1/sandboxes/{box['id']}?force=true")


def test_without_a_fallback_a_server_whose_engine_is_away_does_not_start(tmp_path):
    assert "provider docker does not open" in refused(tmp_path, **AWAY)


@pytest.mark.proves("P15")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("moon", "server.fallback_provider is 'moon', and there is no such provider"),
        ("docker", "server.fallback_provider is docker, and that is the provider in use"),
    ],
)
def test_a_fallback_that_can_be_none_is_said_and_nothing_starts(tmp_path, name, said):
    told = refused(tmp_path, **AWAY, server__fallback_provider=name)
    assert said in told
    assert "fix:" in told
    assert not (tmp_path / "paddock.db").exists()


async def _command(made, *words):
    place = {"PADDOCK_URL": made.url, "PADDOCK_TOKEN": made.admin.token}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "paddock",
        *words,
        stdout=subprocess.PIPE,
        env={**os.environ, **place},
    )
    said, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0
    return said.decode()
