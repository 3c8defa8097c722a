"""A host that was allowed for a task, in a real sandbox: its connections outlive the server, and
end with the task."""

import asyncio
import json

import pytest

from paddock.testing.agent import prompt_of
from tests.tasks.conftest import OWN
from tests.tasks.test_chaos import insist, over
from tests.tasks.test_rounds_after_a_crash import shell
from tests.upstreams import upstream
from tests.wiring.test_approvals import Asking
from tests.wiring_server import server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(500)]
RUN = "touch ~/begun; until [ -e ~/go ]; do sleep 0.05; done"
ASKING = {"preset": "", "rules": ["known.example"], "on_block": "ask"}


@pytest.mark.proves("P16")
async def test_what_was_allowed_for_a_task_outlives_the_server_and_ends_with_the_task():
    async with upstream("new.example") as there:
        hosts = json.dumps({"new.example": there.address})
        async with server(agents__own=OWN, egress__hosts=hosts) as made:
            wish = {
                "prompt": prompt_of({"run": RUN}, {"end": "done"}),
                "agent": "scripted",
                "egress": ASKING,
            }
            task = await insist(made, "POST", "/v1/tasks", wish, headers={"Idempotency-Key": "one"})
            async with asyncio.timeout(120):
                while not (found := await insist(made, "GET", f"/v1/tasks/{task['id']}"))[
                    "sandbox_id"
                ]:
                    await asyncio.sleep(0.05)
                while "begun" not in await shell(made, task, "ls ~"):
                    await asyncio.sleep(0.05)
            inside = Asking(made, found["sandbox_id"], found["sandbox_id"])
            stream = await inside.curl("-m", "120", "http://new.example/slow?600")
            asked = await inside.asked("new.example:80")
            assert asked["task_id"] == task["id"]
            assert (await inside.answer(asked, "allowed_task"))["rule"] == "new.example:80"
            assert (await inside.ended(await inside.curl("http://new.example/x")))[0] == 0

            await made.kill()
            await made.start()
            assert (await inside.ended(await inside.curl("http://new.example/y")))[0] == 0
            assert await inside.goes_on(stream)

            await shell(made, task, "touch ~/go")
            assert (await over(made, task["id"]))["state"] == "completed"
            code, _ = await inside.ended(stream, within_s=20)
            assert code not in (0, 28), "it was cut off"
            standing = await insist(made, "GET", f"/v1/sandboxes/{inside.id}/egress")
            assert [each["rule"] for each in standing["rules"]] == ["known.example"]
            await inside.curl("http://new.example/z")
            again = await inside.asked("new.example:80")
            assert (again["id"] != asked["id"], again["task_id"]) == (True, None)
            await inside.answer(again, "denied")
