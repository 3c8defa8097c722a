"""Best of several: the same task for different agents, and one of them is taken.

Written by scripts/blocking.py; do not edit.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from paddock.interfaces.client.attempts import AsyncAttempts
from paddock.interfaces.client.portal import portal
from paddock.interfaces.client.server import Server
from paddock.interfaces.client.task_results import AttemptsInfo, TaskInfo


class Attempts:
    """Groups of tasks that try the same, each in a workspace of its own."""

    _inner: AsyncAttempts

    def __init__(self, inner: AsyncAttempts) -> None:
        self._inner = inner

    @classmethod
    def begin(
        cls,
        prompt: str,
        variants: Sequence[Mapping[str, str]],
        *,
        server: Server | None = None,
        **task: Any,
    ) -> AttemptsInfo:
        """One for each variant, such as `{"agent": "codex"}`; the rest as `Task.create` takes
        it."""
        return portal().run(AsyncAttempts.begin(prompt, variants, server=server, **task))

    @classmethod
    def get(cls, group: str, *, server: Server | None = None) -> AttemptsInfo:
        """How they stand, side by side."""
        return portal().run(AsyncAttempts.get(group, server=server))

    @classmethod
    def adopt(cls, task: str, *, server: Server | None = None) -> TaskInfo:
        """Take this one: what it made is in the sandbox that they began with."""
        return portal().run(AsyncAttempts.adopt(task, server=server))
