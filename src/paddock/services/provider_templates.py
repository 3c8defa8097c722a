"""Templates of a provider: recipes, builds and the warm pool."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Protocol

from paddock.domain.template import Removed, Template
from paddock.services.following import Step

Progress = Callable[[str, float | None], None]
"""Report a step and its progress from 0 to 1; None if the progress is unknown."""


class Recipes(Protocol):
    """Optional ability: a provider that keeps templates."""

    @property
    def recipe(self) -> Callable[[str], Template]:
        """By name; NotFound when there is none."""
        ...

    @property
    def recipes(self) -> Callable[[], list[Template]]: ...
    @property
    def add(self) -> Callable[[Template], None]: ...

    async def discard(self, name: str) -> Sequence[Removed]:
        """A recipe and its build, or a build by its digest; Conflict while it is in use."""
        ...

    async def prune(self, *, everything: bool) -> Sequence[Removed]:
        """Remove unused builds; those of recipes only with `everything`."""
        ...

    async def image_bytes(self, reference: str) -> int | None:
        """The size of an image that a sandbox named; None if it was not fetched."""
        ...

    async def prune_images(self, needed: Set[str], before: float) -> Sequence[Removed]:
        """Remove images that sandboxes named, fetched before this time, and that nothing uses.
        `needed` are the references of those that stay."""
        ...


_listener: ContextVar[Callable[[Step], None] | None] = ContextVar("listener", default=None)
"""Hears the progress of what is built in this context, and of nothing else."""


class Told:
    """Progress for the server's own output, and for the listener of the build that it is of.

    It may be called from any thread that has the context of the build.
    """

    def __init__(self, also: Progress) -> None:
        self._also = also
        self._loop = asyncio.get_running_loop()

    def __call__(self, text: str, fraction: float | None) -> None:
        self._also(text, fraction)
        if (listener := _listener.get()) is not None:
            self._loop.call_soon_threadsafe(listener, Step(text, fraction))


def listen(listener: Callable[[Step], None]) -> None:
    """For the rest of the current task."""
    _listener.set(listener)


@dataclass(frozen=True, slots=True)
class Pool:
    """Sandboxes of one provider that were made before anybody asked."""

    keep: Callable[[str, int], Awaitable[None]]
    """So many of a template; returns once they are being made, or destroyed."""
    ready: Callable[[str], int]
    configured: Mapping[str, int] = field(default_factory=dict)


async def _nothing_to_build(_name: str) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Kept:
    """The templates of one provider."""

    recipes: Recipes
    prepare: Callable[[str, int | None], Awaitable[None]]
    """Build a template unless it is built. An image has at most this many MiB."""
    is_built: Callable[[str], Awaitable[bool]] = _nothing_to_build
    """NotFound for a name that the provider does not know as a template."""
    pool: Pool | None = None
    """Where sandboxes can wait ready."""
