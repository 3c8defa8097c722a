"""Best of several: the same task for different agents, and one of them is taken."""

from collections.abc import Mapping, Sequence
from typing import Any

from paddock.domain.ids import new_id
from paddock.interfaces.client.results import read
from paddock.interfaces.client.server import Server, segment
from paddock.interfaces.client.task_results import AttemptsInfo, TaskInfo
from paddock.interfaces.client.task_wishes import task_wish


class AsyncAttempts:
    """Groups of tasks that try the same, each in a workspace of its own."""

    @classmethod
    async def begin(
        cls,
        prompt: str,
        variants: Sequence[Mapping[str, str]],
        *,
        server: Server | None = None,
        **task: Any,
    ) -> AttemptsInfo:
        """One for each variant, such as `{"agent": "codex"}`; the rest as `Task.create` takes
        it."""
        body = {
            "task": task_wish(prompt=prompt, **task),
            "variants": [dict(each) for each in variants],
        }
        place = server or Server()
        answer = await place.call("POST", "/v1/attempts", json=body, key=new_id("key"))
        return read(AttemptsInfo, answer)

    @classmethod
    async def get(cls, group: str, *, server: Server | None = None) -> AttemptsInfo:
        """How they stand, side by side."""
        answer = await (server or Server()).call("GET", f"/v1/attempts/{segment(group)}")
        return read(AttemptsInfo, answer)

    @classmethod
    async def adopt(cls, task: str, *, server: Server | None = None) -> TaskInfo:
        """Take this one: what it made is in the sandbox that they began with."""
        path = f"/v1/tasks/{segment(task)}/adopt"
        answer = await (server or Server()).call("POST", path, repeatable=True)
        return read(TaskInfo, answer)
