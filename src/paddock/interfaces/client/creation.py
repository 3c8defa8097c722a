"""A sandbox that is being created: asked for, and followed until it runs."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from paddock.domain.errors import Forbidden
from paddock.domain.ids import new_id
from paddock.interfaces.client import failures
from paddock.interfaces.client.events import follow_events
from paddock.interfaces.client.results import SandboxInfo, read
from paddock.interfaces.client.sandbox import AsyncSandbox
from paddock.interfaces.client.server import Server
from paddock.interfaces.client.wishes import sandbox_wish

_ANSWER_AFTER_S = 1.0
_KINDS = ("sandbox.progress", "sandbox.running", "sandbox.failed", "sandbox.deleted")
OnProgress = Callable[[str, float | None], None]


class Creation:
    """A sandbox that the server creates. Takes the options of `AsyncSandbox.create`."""

    def __init__(self, server: Server, options: Mapping[str, Any]) -> None:
        self._server = server
        self._wish = sandbox_wish(**options)
        self._owned = not options.get("identity")
        self._key = new_id("key")
        self.info: SandboxInfo | None = None
        """As the server knows it; None before it has answered."""

    async def begin(self) -> None:
        """Ask for it; the server answers after about a second, whether it runs by then or not."""
        self.info = await self._ask(answer_after_s=_ANSWER_AFTER_S)

    async def finish(self, on_progress: OnProgress) -> AsyncSandbox:
        """The sandbox once it runs. Raises what kept it from running."""
        assert self.info is not None
        if self.info.state == "creating":
            with suppress(Forbidden):  # this token may not read events
                await self._follow(self.info.id, on_progress)
            self.info = await self._ask()  # the same key is the same sandbox
        return AsyncSandbox(self._server, self.info, owned=self._owned)

    async def _follow(self, sandbox: str, on_progress: OnProgress) -> None:
        async for event in follow_events(self._server, sandbox, _KINDS, after=0):
            if event.kind == "sandbox.progress":
                on_progress(event.data["text"], event.data["fraction"])
            elif event.kind == "sandbox.failed" and "error" in event.data:
                raise failures.from_detail(event.data["error"])
            else:
                return

    async def _ask(self, **more: float) -> SandboxInfo:
        wish = {**self._wish, **more}
        answer = await self._server.call("POST", "/v1/sandboxes", json=wish, key=self._key)
        return read(SandboxInfo, answer)
