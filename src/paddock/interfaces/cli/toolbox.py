"""What the commands need of the world: wiring makes it, so the command line knows no adapter."""

from collections.abc import Awaitable, Callable, Coroutine, Sequence, Set
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from paddock.domain.template import Removed, Template
from paddock.ports.provider import Finding, Provider, Status

Progress = Callable[[str, float | None], None]
"""What is being done, and how much of it: 0 to 1, or None where nobody knows."""


class Templates(Protocol):
    """The templates of a provider that keeps its own."""

    @property
    def recipe(self) -> Callable[[str], Template]: ...
    @property
    def recipes(self) -> Callable[[], list[Template]]: ...
    @property
    def add(self) -> Callable[[Template], None]: ...

    async def discard(self, name: str) -> Sequence[Removed]:
        """A recipe and its build, or a build by its digest; Conflict while it is in use."""
        ...

    async def prune(self, *, everything: bool) -> Sequence[Removed]:
        """The builds that nobody needs; unless everything may go, those of recipes stay."""
        ...

    async def image_bytes(self, reference: str) -> int | None:
        """The size of an image that a sandbox named; None if it was not fetched."""
        ...

    async def prune_images(self, needed: Set[str], before: float) -> Sequence[Removed]:
        """Remove images that sandboxes named and nothing uses."""
        ...


class Recipes(Protocol):
    """The templates of a provider as they are written down; nothing is built of them here."""

    @property
    def directory(self) -> Path: ...

    def get(self, name: str) -> Template: ...

    def add(self, template: Template) -> None:
        """In the place of one of the same name."""
        ...


@dataclass(frozen=True, slots=True)
class Opened:
    """A provider that is ready, and what only some providers have beside the port."""

    provider: Provider
    prepare: Callable[[str], Awaitable[None]]
    """Build or fetch a template, so that create() need not; often there is nothing to do."""
    templates: Templates | None = None


@dataclass(frozen=True, slots=True)
class Section:
    """What was found of one provider."""

    provider: str
    findings: tuple[Finding, ...]
    needed: bool
    """Whether sandboxes are made there; otherwise what is missing is only said."""

    @property
    def usable(self) -> bool:
        return all(finding.status is not Status.MISSING for finding in self.findings)


@dataclass(frozen=True, slots=True)
class Report:
    """What doctor found."""

    sections: tuple[Section, ...]
    advice: str = ""
    """What to do, when nothing is usable."""

    @property
    def usable(self) -> bool:
        needed = [section for section in self.sections if section.needed]
        return bool(needed) and all(section.usable for section in needed)


@dataclass(frozen=True, slots=True)
class Verdict:
    """How one check of the conformance suite ended; an empty fault means that it holds."""

    name: str
    says: str
    seconds: float
    total: int
    """How many checks there are."""
    refused: bool = False
    """The capability is not claimed: what was tried is that it is refused properly."""
    fault: str = ""


class Conform(Protocol):
    """Runs the conformance suite against a provider; `hear` is told of each check as it ends."""

    async def __call__(
        self, provider: str, terms: "Terms", *, hear: Callable[[Verdict], None], progress: Progress
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class Terms:
    """What the conformance suite makes its sandboxes of."""

    template: str
    image: str
    """An OCI image, for providers that take any."""


@dataclass(frozen=True, slots=True)
class ServerWish:
    """How the control plane shall run; None leaves it to the settings."""

    host: str | None = None
    port: int | None = None
    data_dir: Path | None = None
    auth: bool = True


class Serve(Protocol):
    """Runs the control plane until cancelled; `ready` is told its address when all answers."""

    def __call__(
        self, wish: ServerWish, progress: Progress, ready: Callable[[str], None]
    ) -> Coroutine[None, None, None]: ...


@dataclass(frozen=True, slots=True)
class Toolbox:
    """Everything the commands are given. Nothing is opened before it is asked for."""

    open: Callable[[str, Progress], AbstractAsyncContextManager[Opened]]
    """The provider of that name; for "" the one that the settings and the host lead to."""
    inspect: Callable[[str], Coroutine[None, None, Report]]
    conform: Conform
    serve: Serve
    recipes: Callable[[str], Coroutine[None, None, Recipes]]
    """Of the provider of that name, without opening it."""
    scripted_model: Callable[[Path, int], AbstractAsyncContextManager[str]]
    """The scripts of a file, served on this port; the URL of the model."""
    update_check_url: str = ""
    """Where releases are looked up by themselves; empty nowhere."""
