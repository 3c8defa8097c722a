"""A sandbox of a Paddock server.

Written by scripts/blocking.py; do not edit.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Self

from paddock.interfaces.client.blocking.commands import Commands
from paddock.interfaces.client.blocking.disk import Disk
from paddock.interfaces.client.blocking.files import Files
from paddock.interfaces.client.blocking.life import Life
from paddock.interfaces.client.blocking.pty import Pty
from paddock.interfaces.client.blocking.sight import Sight
from paddock.interfaces.client.portal import portal
from paddock.interfaces.client.results import SandboxInfo
from paddock.interfaces.client.sandbox import AsyncSandbox
from paddock.interfaces.client.server import Server


class Sandbox(Life, Disk, Sight):
    """A sandbox. As a context manager it is deleted at the end, if it was made here."""

    _inner: AsyncSandbox

    def __init__(self, inner: AsyncSandbox) -> None:
        super().__init__(inner)
        self._inner = inner

    @classmethod
    def create(
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
        return cls(
            portal().run(AsyncSandbox.create(**{n: v for n, v in locals().items() if n != "cls"}))
        )

    @classmethod
    def connect(cls, sandbox: str, *, server: Server | None = None) -> Self:
        """A sandbox that is there, by id or name."""
        return cls(portal().run(AsyncSandbox.connect(sandbox, server=server)))

    @classmethod
    def list(
        cls,
        *,
        labels: Mapping[str, str] | None = None,
        states: Sequence[str] = (),
        name_prefix: str = "",
        identity: str = "",
        identity_prefix: str = "",
        server: Server | None = None,
    ) -> Iterator[SandboxInfo]:
        """Your team's sandboxes, newest first; those with all of the labels, or of one identity."""
        return portal().each(
            AsyncSandbox.list(
                labels=labels,
                states=states,
                name_prefix=name_prefix,
                identity=identity,
                identity_prefix=identity_prefix,
                server=server,
            )
        )

    @property
    def id(self) -> str:
        return self._inner.id

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def commands(self) -> Commands:
        return Commands(self._inner.commands)

    @property
    def files(self) -> Files:
        return Files(self._inner.files)

    @property
    def pty(self) -> Pty:
        return Pty(self._inner.pty)

    def close(self) -> None:
        """Close the connections to the server; the sandbox stays as it is."""
        portal().run(self._inner.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        portal().run(self._inner.__aexit__(None, None, None))

    def __repr__(self) -> str:
        return repr(self._inner)
