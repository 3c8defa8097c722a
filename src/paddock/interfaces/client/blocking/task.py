"""A task: what an agent is to do, on a Paddock server.

Written by scripts/blocking.py; do not edit.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Self

from paddock.interfaces.client.blocking.task_course import TaskCourse
from paddock.interfaces.client.portal import portal
from paddock.interfaces.client.server import Server
from paddock.interfaces.client.task import AsyncTask
from paddock.interfaces.client.task_results import (
    BatchInfo,
    DiagnosisInfo,
    Rehearsal,
    SweptInfo,
    TaskSummary,
)
from paddock.interfaces.client.task_wishes import Checks, Content


class Task(TaskCourse):
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

    _inner: AsyncTask

    def __init__(self, inner: AsyncTask) -> None:
        super().__init__(inner)
        self._inner = inner

    @classmethod
    def create(
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
        return cls(
            portal().run(AsyncTask.create(**{n: v for n, v in locals().items() if n != "cls"}))
        )

    @classmethod
    def connect(cls, task: str, *, server: Server | None = None) -> Self:
        """One that is there, by its id."""
        return cls(portal().run(AsyncTask.connect(task, server=server)))

    @classmethod
    def list(
        cls,
        *,
        states: Sequence[str] = (),
        agent: str = "",
        sandbox: str = "",
        batch: str = "",
        attempt_of: str = "",
        labels: Mapping[str, str] | None = None,
        server: Server | None = None,
    ) -> Iterator[TaskSummary]:
        """Your team's, newest first; those in one of the states, in the sandbox of an id, with all
        of the labels."""
        return portal().each(
            AsyncTask.list(
                states=states,
                agent=agent,
                sandbox=sandbox,
                batch=batch,
                attempt_of=attempt_of,
                labels=labels,
                server=server,
            )
        )

    @classmethod
    def batch(
        cls, tasks: Sequence[Mapping[str, Any]], *, server: Server | None = None
    ) -> BatchInfo:
        """Several at once, all of them or none; each as `POST /v1/tasks` takes it."""
        return portal().run(AsyncTask.batch(tasks, server=server))

    @classmethod
    def check(cls, prompt: str, *, server: Server | None = None, **wish: Any) -> Rehearsal:
        """What `create` would do with the same arguments, or its refusal; nothing is made."""
        return portal().run(AsyncTask.check(prompt, server=server, **wish))

    @classmethod
    def delete_all(
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
        return portal().run(
            AsyncTask.delete_all(
                states=states,
                before=before,
                agent=agent,
                sandbox=sandbox,
                batch=batch,
                labels=labels,
                force=force,
                sandboxes=sandboxes,
                dry_run=dry_run,
                server=server,
            )
        )

    def delete(self, *, force: bool = False, sandbox: bool = False) -> SweptInfo:
        """Forget it, when it is over. Conflict while what it made would be lost, unless forced;
        `sandbox` takes along the one that was made for it."""
        return portal().run(self._inner.delete(force=force, sandbox=sandbox))

    def diagnose(self) -> DiagnosisInfo:
        """What runs in its sandbox, what it waits for and was refused. It disturbs nothing."""
        return portal().run(self._inner.diagnose())

    def follow_up(self, prompt: str, **more: Any) -> Self:
        """A task that goes on with the session of this one, where it worked unless said."""
        return type(self)(portal().run(self._inner.follow_up(prompt, **more)))

    def retry(self) -> Self:
        """The same once more, as a task of its own. Conflict while this one is not over."""
        return type(self)(portal().run(self._inner.retry()))

    def close(self) -> None:
        """Close the connections to the server; the task goes on."""
        portal().run(self._inner.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        portal().run(self._inner.__aexit__(None, None, None))

    def __repr__(self) -> str:
        return repr(self._inner)
