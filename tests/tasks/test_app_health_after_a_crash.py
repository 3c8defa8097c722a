"""A server that is killed while it looks at an app goes on looking, and repeats nothing else."""

import asyncio
from contextlib import suppress

import pytest

from paddock.testing.agent import prompt_of
from tests.tasks.conftest import OWN
from tests.tasks.test_chaos import insist, over
from tests.tasks.test_rounds_after_a_crash import shell
from tests.wiring_server import Server, server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]


async def looking(made: Server, task: dict) -> None:
    """Until its app is looked at."""
    async with asyncio.timeout(120):
        while True:
            now = await insist(made, "GET", f"/v1/tasks/{task['id']}")
            assert now["ended_at"] is None, now
            if now["phase"] == "health_check":
                return
            await asyncio.sleep(0.05)


async def listening(made: Server, sandbox: str) -> None:
    """Until somebody ends it."""
    body = {"cmd": ["python3", "-m", "http.server", "8123"], "timeout_s": 120}
    with suppress(OSError):
        await made.admin.call("POST", f"/v1/sandboxes/{sandbox}/exec", body, within_s=120)


@pytest.mark.proves("T11", "T18")
async def test_an_app_is_looked_at_by_the_next_server_and_its_checks_are_not_run_again():
    async with server(agents__own=OWN) as made:
        wish = {
            "prompt": prompt_of({"say": "done"}),
            "agent": "scripted",
            "checks": [{"name": "once", "cmd": ["sh", "-c", "echo ran >> ~/checked"]}],
            "health": {"web": {"port": 8123}, "build": "once", "within_s": 90},
        }
        task = await insist(made, "POST", "/v1/tasks", wish, headers={"Idempotency-Key": "one"})
        await looking(made, task)
        await made.kill()
        await made.start()
        await looking(made, task)
        now = await insist(made, "GET", f"/v1/tasks/{task['id']}")
        app = asyncio.create_task(listening(made, now["sandbox_id"]))
        try:
            ended = await over(made, task["id"])
        finally:
            app.cancel()
            await asyncio.gather(app, return_exceptions=True)
        assert ended["state"] == "completed", ended["detail"]
        found = ended["result"]["health"]
        assert (found["healthy"], found["preview_ok"], found["build"]) == (True, True, "passed")
        assert (await shell(made, task, "cat ~/checked")).split() == ["ran"]
        path = f"/v1/tasks/{task['id']}/events?format=ndjson&follow=false"
        kinds = [each["kind"] async for each in made.admin.lines("GET", path)]
        assert (kinds.count("task.health"), kinds.count("task.round")) == (1, 1)
