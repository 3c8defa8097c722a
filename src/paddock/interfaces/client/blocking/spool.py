"""Events kept on disk until the server has them: each told once, however often either side dies.

Written by scripts/blocking.py; do not edit.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from paddock.interfaces.client.portal import portal
from paddock.interfaces.client.server import Server
from paddock.interfaces.client.spool import AsyncSpool


class Spool:
    """Events of one program about one sandbox. What is recorded is on disk, and goes to the server
    by itself as soon as that is there; the next one who opens the same file goes on with it."""

    _inner: AsyncSpool

    def __init__(self, inner: AsyncSpool) -> None:
        self._inner = inner

    @classmethod
    def open(
        cls, path: str | Path, sandbox: str, *, name: str = "program", server: Server | None = None
    ) -> Self:
        """The file is made unless it is there. The sandbox is named by its id."""
        return cls(portal().run(AsyncSpool.open(path, sandbox, name=name, server=server)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        portal().run(self._inner.__aexit__(None, None, None))

    @property
    def source(self) -> str:
        """What the events go by in the log, with their numbers."""
        return self._inner.source

    def record(self, kind: str, data: Mapping[str, Any] | None = None) -> int:
        """Its number. It is on disk when this returns; kinds are `custom.…`."""
        return portal().run(self._inner.record(kind, data))

    def waiting(self) -> int:
        """How many the server has not acknowledged yet."""
        return portal().run(self._inner.waiting())

    def flush(self) -> None:
        """Return when the server has all of them; raises what keeps it from taking them."""
        portal().run(self._inner.flush())

    def aclose(self) -> None:
        """Send what can be sent within seconds; the rest stays on disk."""
        portal().run(self._inner.aclose())
