"""Values that an agent has are not kept by a server that never knew them."""

import asyncio

import pytest

from paddock.testing.agent import prompt_of
from tests.tasks.conftest import OWN
from tests.tasks.test_chaos import insist, over
from tests.tasks.test_rounds_after_a_crash import shell
from tests.wiring_server import Server, server

pytestmark = pytest.mark.timeout(500)
DELETED = "was-deleted-since-0123456789"
CHANGED = "was-changed-since-0123456789"
RUN = "touch ~/begun; until [ -e ~/go ]; do sleep 0.05; done; echo has $DELETED_KEY $CHANGED_KEY"


async def lend(made: Server, name: str, value: str) -> None:
    await insist(made, "PUT", f"/v1/secrets/{name}", {"value": value, "policy": "agent_access"})
    wish = {"hosts": ["api.example"], "expose": True}
    await insist(made, "PUT", f"/v1/secrets/{name}/bindings/header", wish)


@pytest.mark.proves("K9")
async def test_what_was_deleted_or_changed_before_a_take_over_is_masked_after_it():
    async with server(agents__own=OWN) as made:
        await lend(made, "DELETED_KEY", DELETED)
        await lend(made, "CHANGED_KEY", CHANGED)
        wish = {"prompt": prompt_of({"run": RUN}, {"end": "done"}), "agent": "scripted"}
        task = await insist(made, "POST", "/v1/tasks", wish, headers={"Idempotency-Key": "one"})
        async with asyncio.timeout(120):
            while not (await insist(made, "GET", f"/v1/tasks/{task['id']}"))["sandbox_id"]:
                await asyncio.sleep(0.05)
            while "begun" not in await shell(made, task, "ls ~"):
                await asyncio.sleep(0.05)
        assert DELETED in await shell(made, task, "echo $DELETED_KEY"), "it is inside"
        assert (await made.admin.delete("/v1/secrets/DELETED_KEY")).status == 204
        await insist(made, "PUT", "/v1/secrets/CHANGED_KEY", {"value": "another-value-9876543210"})
        assert (await made.admin.call("POST", "/v1/secrets/rotate")).status == 200
        await made.kill()
        await made.start()
        await shell(made, task, "touch ~/go")
        ended = await over(made, task["id"])
        assert ended["state"] == "completed", ended["detail"]
        path = f"/v1/tasks/{task['id']}/events?format=ndjson&follow=false"
        told = str([each async for each in made.admin.lines("GET", path)])
        assert "has pdk-DELETED_KEY-" in told
        assert DELETED not in told
        assert CHANGED not in told
