"""What becomes of a sandbox: paused, stopped, changed, forked, deleted."""

from collections.abc import Mapping
from typing import Self

from paddock.domain.errors import NotFound
from paddock.domain.ids import new_id
from paddock.interfaces.client.results import SandboxInfo, read
from paddock.interfaces.client.server import Server, segment
from paddock.interfaces.client.wishes import sandbox_wish


class AsyncLife:
    """The life of one sandbox. Every verb may be repeated."""

    def __init__(self, server: Server, info: SandboxInfo, *, owned: bool = False) -> None:
        self._server = server
        self._info = info
        self._owned = owned
        self._path = f"/v1/sandboxes/{segment(info.id)}"

    async def pause(self) -> None:
        """Hold everything in it still and keep its memory."""
        await self._move("pause")

    async def resume(self) -> None:
        """Let a paused one go on where it was."""
        await self._move("resume")

    async def stop(self) -> None:
        """End its processes and keep its disk."""
        await self._move("stop")

    async def start(self) -> None:
        """Boot a stopped one: the same disk and environment."""
        await self._move("start")

    async def kill(self, *, force: bool = False) -> None:
        """Delete it with everything in it; one that is gone already is no error.

        Refused with Conflict while it holds work that is nowhere else, unless forced.
        """
        try:
            answer = await self._server.call("DELETE", self._path, query={"force": force or None})
            self._info = read(SandboxInfo, answer)
        except NotFound:
            return

    async def set_timeout(self, seconds: float) -> None:
        """Its time is up so many seconds from now."""
        await self._change(timeout_s=seconds)

    async def keep_alive(self, seconds: float) -> None:
        """It does not count as idle for so long from now; 0 ends that."""
        await self._change(keep_alive_s=seconds)

    async def rename(self, name: str) -> None:
        await self._change(name=name)

    async def set_env(self, env: Mapping[str, str]) -> None:
        """For every command from now on, also after a restart of the sandbox."""
        answer = await self._server.call("PUT", f"{self._path}/env", json={"env": dict(env)})
        self._info = read(SandboxInfo, answer)

    async def set_labels(self, labels: Mapping[str, str]) -> None:
        """Instead of those it has."""
        await self._change(labels=dict(labels))

    async def fork(
        self,
        name: str = "",
        *,
        env: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        timeout: float | None = None,
        network: str | None = None,
        identity: str = "",
    ) -> Self:
        """A second sandbox with a copy of its disk. Variables are carried over by name only where
        they are given anew; an identity makes it one of that group."""
        wish = sandbox_wish(
            name=name, env=env, labels=labels, timeout=timeout, network=network, identity=identity
        )
        answer = await self._server.call("POST", f"{self._path}/fork", json=wish, key=new_id("key"))
        return type(self)(self._server, read(SandboxInfo, answer), owned=True)

    async def _move(self, verb: str) -> None:
        answer = await self._server.call("POST", f"{self._path}/{verb}", repeatable=True)
        self._info = read(SandboxInfo, answer)

    async def _change(self, **wanted: object) -> None:
        answer = await self._server.call("PATCH", self._path, json=wanted, repeatable=True)
        self._info = read(SandboxInfo, answer)
