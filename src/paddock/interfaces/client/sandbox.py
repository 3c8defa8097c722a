"""A sandbox of a Paddock server."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Self

from paddock.domain.ids import new_id
from paddock.interfaces.client.commands import AsyncCommands
from paddock.interfaces.client.disk import AsyncDisk
from paddock.interfaces.client.files import AsyncFiles
from paddock.interfaces.client.life import AsyncLife
from paddock.interfaces.client.pty import AsyncPty
from paddock.interfaces.client.results import SandboxInfo, read
from paddock.interfaces.client.server import Server, segment
from paddock.interfaces.client.sight import AsyncSight
from paddock.interfaces.client.wishes import sandbox_wish


class AsyncSandbox(AsyncLife, AsyncDisk, AsyncSight):
    """A sandbox. As a context manager it is deleted at the end, if it was made here."""

    @classmethod
    async def create(
        cls,
        template: str = "",
        *,
        name: str = "",
        snapshot: str = "",
        provider: str = "",
        env: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        timeout: float | None = None,
        on_timeout: str | None = None,
        idle_timeout: float | None = None,
        keep_alive: float | None = None,
        always_on: bool | None = None,
        cpus: float | None = None,
        memory_mib: int | None = None,
        disk_mib: int | None = None,
        pids: int | None = None,
        network: str | None = None,
        ports: Sequence[int] = (),
        runtime: str = "",
        hardened: bool | None = None,
        owner: str = "",
        identity: str = "",
        another: bool | None = None,
        wait: float | None = None,
        app: str = "",
        volumes: Mapping[str, str] | None = None,
        server: Server | None = None,
    ) -> Self:
        """Make a sandbox; it runs when this returns. One is made, also when the connection breaks.

        Times are in seconds, `math.inf` is for ever. After `timeout` it is killed, or paused or
        stopped if `on_timeout` says so; after `idle_timeout` without work it is stopped. Its
        programs have what is configured for `app`. `volumes` says at which path which one is
        mounted, as in `{"/mnt/data": "datasets"}` or `"datasets:ro"`.

        With an `identity`, the sandbox that has it already is given back, in whatever state it is;
        while somebody else is making it, `wait` is how long that is waited for. `another` makes a
        further one of the group. One with an identity is not deleted at the end of a `with`.
        """
        given = {name: value for name, value in locals().items() if name not in ("cls", "server")}
        place = server or Server()
        answer = await place.call(
            "POST", "/v1/sandboxes", json=sandbox_wish(**given), key=new_id("key")
        )
        return cls(place, read(SandboxInfo, answer), owned=not identity)

    @classmethod
    async def connect(cls, sandbox: str, *, server: Server | None = None) -> Self:
        """A sandbox that is there, by id or name."""
        place = server or Server()
        answer = await place.call("GET", f"/v1/sandboxes/{segment(sandbox)}")
        return cls(place, read(SandboxInfo, answer))

    @classmethod
    async def list(
        cls,
        *,
        labels: Mapping[str, str] | None = None,
        states: Sequence[str] = (),
        name_prefix: str = "",
        identity: str = "",
        identity_prefix: str = "",
        server: Server | None = None,
    ) -> AsyncIterator[SandboxInfo]:
        """Your team's sandboxes, newest first; those with all of the labels, or of one identity."""
        query = {
            "label": [f"{name}={value}" for name, value in (labels or {}).items()],
            "state": list(states),
            "name_prefix": name_prefix,
            "identity": identity,
            "identity_prefix": identity_prefix,
        }
        async for item in (server or Server()).pages("/v1/sandboxes", query):
            yield read(SandboxInfo, item)

    @property
    def id(self) -> str:
        return self._info.id

    @property
    def name(self) -> str:
        return self._info.name

    @property
    def commands(self) -> AsyncCommands:
        return AsyncCommands(self._server, self.id)

    @property
    def files(self) -> AsyncFiles:
        return AsyncFiles(self._server, self.id)

    @property
    def pty(self) -> AsyncPty:
        return AsyncPty(self._server, self.id)

    async def close(self) -> None:
        """Close the connections to the server; the sandbox stays as it is."""
        await self._server.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._owned:
            await self.kill()
        await self.close()

    def __repr__(self) -> str:
        return f"<Sandbox {self.name} {self.id}>"
