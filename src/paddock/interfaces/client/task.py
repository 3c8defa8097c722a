"""A task: what an agent is to do, on a Paddock server."""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Self

from paddock.domain.ids import new_id
from paddock.interfaces.client.results import read
from paddock.interfaces.client.server import Query, Server, segment
from paddock.interfaces.client.task_course import AsyncTaskCourse
from paddock.interfaces.client.task_results import (
    BatchInfo,
    DiagnosisInfo,
    Rehearsal,
    SweptInfo,
    TaskInfo,
    TaskSummary,
)
from paddock.interfaces.client.task_wishes import Checks, Content, task_wish

_PATH = "/v1/tasks"


class AsyncTask(AsyncTaskCourse):
    """A task of your team. It goes on by itself, whoever looks.

    It works in a `sandbox` that is there, in a `fork` of one, or in one that is made of a
    `snapshot` or a `template` with `resources` such as `memory_mib`. `files` are there before it
    begins: text, bytes, or a Path of this machine. `checks` are commands that say whether what it
    made is good; with `rounds`, the agent tries until they do, so often at most. By `review`, such
    as `{"agent": "codex", "plan": True}`, somebody looks at it in the end. `health`, such as
    `{"web": {"port": 5173, "preset": "vite"}, "restart": ["web"]}`, has its app looked at.
    With `variables`, their values stand for `{{name}}` in the prompt. `network` is a mode, or
    `egress` as in the API.
    """

    @classmethod
    async def create(
        cls,
        prompt: str,
        *,
        variables: Mapping[str, str] | None = None,
        agent: str = "",
        model: str = "",
        mode: str = "",
        name: str = "",
        sandbox: str | None = None,
        fork: str | None = None,
        snapshot: str | None = None,
        template: str = "",
        provider: str = "",
        app: str = "",
        resources: Mapping[str, float] | None = None,
        network: str | Mapping[str, Any] | None = None,
        directory: str = "",
        env: Mapping[str, str] | None = None,
        files: Mapping[str, Content] | None = None,
        checks: Checks | None = None,
        rounds: int | Mapping[str, Any] | None = None,
        review: Mapping[str, Any] | None = None,
        health: Mapping[str, Any] | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
        options: Mapping[str, Any] | None = None,
        budget_tokens: int | None = None,
        budget_usd: float | None = None,
        budget_turns: int | None = None,
        timeout: float | None = None,
        after: Sequence[str] = (),
        follows: str = "",
        scope: Sequence[str] = (),
        guardian: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        server: Server | None = None,
    ) -> Self:
        """Give an agent a task. It is kept when this returns; `events` tells how it goes."""
        given = {name: value for name, value in locals().items() if name not in ("cls", "server")}
        return await cls._made(server or Server(), task_wish(**given))

    @classmethod
    async def connect(cls, task: str, *, server: Server | None = None) -> Self:
        """One that is there, by its id."""
        place = server or Server()
        return cls(place, read(TaskInfo, await place.call("GET", f"{_PATH}/{segment(task)}")))

    @classmethod
    async def list(
        cls,
        *,
        states: Sequence[str] = (),
        agent: str = "",
        sandbox: str = "",
        batch: str = "",
        attempt_of: str = "",
        labels: Mapping[str, str] | None = None,
        server: Server | None = None,
    ) -> AsyncIterator[TaskSummary]:
        """Your team's, newest first; those in one of the states, in the sandbox of an id, with all
        of the labels."""
        query = {
            "state": list(states),
            "agent": agent,
            "sandbox": sandbox,
            "batch": batch,
            "attempt_of": attempt_of,
            "label": [f"{name}={value}" for name, value in (labels or {}).items()],
        }
        async for item in (server or Server()).pages(_PATH, query):
            yield read(TaskSummary, item)

    @classmethod
    async def batch(
        cls, tasks: Sequence[Mapping[str, Any]], *, server: Server | None = None
    ) -> BatchInfo:
        """Several at once, all of them or none; each as `POST /v1/tasks` takes it."""
        body = {"tasks": [dict(each) for each in tasks]}
        place = server or Server()
        answer = await place.call("POST", f"{_PATH}/batch", json=body, key=new_id("key"))
        return read(BatchInfo, answer)

    @classmethod
    async def check(cls, prompt: str, *, server: Server | None = None, **wish: Any) -> Rehearsal:
        """What `create` would do with the same arguments, or its refusal; nothing is made."""
        body = task_wish(prompt=prompt, **wish)
        answer = await (server or Server()).call("POST", f"{_PATH}/check", json=body)
        return read(Rehearsal, answer)

    @classmethod
    async def delete_all(
        cls,
        *,
        states: Sequence[str] = (),
        before: datetime | None = None,
        agent: str = "",
        sandbox: str = "",
        batch: str = "",
        labels: Mapping[str, str] | None = None,
        force: bool = False,
        sandboxes: bool = False,
        dry_run: bool = False,
        server: Server | None = None,
    ) -> SweptInfo:
        """Forget those that are over and are all of this: in one of the states, ended `before`, of
        an agent, a sandbox, a batch, with the labels. `sandboxes` takes along those that were made
        for them. What has to stay is named; `dry_run` only looks."""
        query: Query = {
            "state": list(states),
            "before": before.isoformat() if before else "",
            "agent": agent,
            "sandbox": sandbox,
            "batch": batch,
            "label": [f"{name}={value}" for name, value in (labels or {}).items()],
            "force": force,
            "with_sandbox": sandboxes,
            "dry_run": dry_run,
        }
        return await _swept(server or Server(), query)

    async def delete(self, *, force: bool = False, sandbox: bool = False) -> SweptInfo:
        """Forget it, when it is over. Conflict while what it made would be lost, unless forced;
        `sandbox` takes along the one that was made for it."""
        query = {"force": force, "with_sandbox": sandbox}
        answer = await self._server.call("DELETE", self._path, query=query)
        answer.pop("next_cursor")
        return read(SweptInfo, answer)

    async def diagnose(self) -> DiagnosisInfo:
        """What runs in its sandbox, what it waits for and was refused. It disturbs nothing."""
        answer = await self._server.call("POST", f"{self._path}/diagnosis", repeatable=True)
        return read(DiagnosisInfo, answer)

    async def follow_up(self, prompt: str, **more: Any) -> Self:
        """A task that goes on with the session of this one, where it worked unless said."""
        wish = task_wish(prompt=prompt, follows=self.id, **more)
        return await self._made(self._server, wish)

    async def retry(self) -> Self:
        """The same once more, as a task of its own. Conflict while this one is not over."""
        answer = await self._server.call("POST", f"{self._path}/retry", key=new_id("key"))
        return type(self)(self._server, read(TaskInfo, answer))

    async def close(self) -> None:
        """Close the connections to the server; the task goes on."""
        await self._server.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<Task {self.name} {self.id}>"

    @classmethod
    async def _made(cls, server: Server, wish: Mapping[str, Any]) -> Self:
        answer = await server.call("POST", _PATH, json=wish, key=new_id("key"))
        return cls(server, read(TaskInfo, answer))


async def _swept(server: Server, query: Query) -> SweptInfo:
    """Page by page, until there is none left."""
    swept, cursor = SweptInfo(), ""
    while True:
        answer = await server.call("DELETE", _PATH, query={**query, "cursor": cursor, "limit": 200})
        cursor = answer.pop("next_cursor") or ""
        swept = swept.plus(read(SweptInfo, answer))
        if not cursor:
            return swept
