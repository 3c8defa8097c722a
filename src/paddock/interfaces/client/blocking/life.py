"""What becomes of a sandbox: paused, stopped, changed, forked, deleted.

Written by scripts/blocking.py; do not edit.
"""

from collections.abc import Mapping
from typing import Self

from paddock.interfaces.client.life import AsyncLife
from paddock.interfaces.client.portal import portal


class Life:
    """The life of one sandbox. Every verb may be repeated."""

    _inner: AsyncLife

    def __init__(self, inner: AsyncLife) -> None:
        self._inner = inner

    def pause(self) -> None:
        """Hold everything in it still and keep its memory."""
        portal().run(self._inner.pause())

    def resume(self) -> None:
        """Let a paused one go on where it was."""
        portal().run(self._inner.resume())

    def stop(self) -> None:
        """End its processes and keep its disk."""
        portal().run(self._inner.stop())

    def start(self) -> None:
        """Boot a stopped one: the same disk and environment."""
        portal().run(self._inner.start())

    def kill(self, *, force: bool = False) -> None:
        """Delete it with everything in it; one that is gone already is no error.

        Refused with Conflict while it holds work that is nowhere else, unless forced.
        """
        portal().run(self._inner.kill(force=force))

    def set_timeout(self, seconds: float) -> None:
        """Its time is up so many seconds from now."""
        portal().run(self._inner.set_timeout(seconds))

    def keep_alive(self, seconds: float) -> None:
        """It does not count as idle for so long from now; 0 ends that."""
        portal().run(self._inner.keep_alive(seconds))

    def rename(self, name: str) -> None:
        portal().run(self._inner.rename(name))

    def set_env(self, env: Mapping[str, str]) -> None:
        """For every command from now on, also after a restart of the sandbox."""
        portal().run(self._inner.set_env(env))

    def set_labels(self, labels: Mapping[str, str]) -> None:
        """Instead of those it has."""
        portal().run(self._inner.set_labels(labels))

    def fork(
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
        return type(self)(
            portal().run(
                self._inner.fork(
                    name,
                    env=env,
                    labels=labels,
                    timeout=timeout,
                    network=network,
                    identity=identity,
                )
            )
        )
