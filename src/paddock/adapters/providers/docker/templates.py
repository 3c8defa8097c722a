"""Templates that are built on this host as images of an engine: the same names and files."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

from paddock.adapters.providers.docker.images import ImageSource, TemplateImage
from paddock.adapters.providers.docker.records import Defaults
from paddock.adapters.providers.host import syscalls
from paddock.domain.template import SourceKind, Template


class Built(Protocol):
    """What is asked of a template that was built, by whoever keeps templates."""

    @property
    def digest(self) -> str: ...

    @property
    def lower(self) -> Path:
        """The root file system."""
        ...

    @property
    def seed(self) -> Path | None:
        """A volume with what was changed on top of it, if anything was."""
        ...

    @property
    def env(self) -> tuple[tuple[str, str], ...]: ...

    @property
    def user(self) -> str: ...

    @property
    def workdir(self) -> str: ...


Recipe = Callable[[str], Template]
"""By name; NotFound when there is none."""
Build = Callable[[Template], Awaitable[Built]]


def image_source(recipe: Recipe, build: Build) -> ImageSource:
    """For the provider: what the store has or builds, and the engine's own images as they are."""

    async def find(name: str) -> TemplateImage:
        template = recipe(name)
        defaults = Defaults(name, dict(template.env), template.user, template.workdir)
        reference = template.source.reference
        engines = template.source.kind is SourceKind.IMAGE and reference.startswith("docker:")
        if engines and not template.setup:
            return TemplateImage(defaults, reference=reference.removeprefix("docker:"))
        built = await build(template)
        return TemplateImage(
            Defaults(
                template=name,
                env={**dict(built.env), **dict(template.env)},
                user=template.user or built.user,
                workdir=template.workdir or built.workdir,
            ),
            built.digest,
            partial(_files, built),
        )

    return find


@asynccontextmanager
async def _files(built: Built) -> AsyncIterator[Path]:
    """The root file system, with what set-up commands have changed on top of it."""
    if built.seed is None:
        yield built.lower
        return
    with tempfile.TemporaryDirectory(prefix="paddock-template-") as directory:
        layers = f"lowerdir={_escaped(built.seed / 'upper')}:{_escaped(built.lower)}"
        flags = syscalls.MS_RDONLY
        await asyncio.to_thread(syscalls.mount, "overlay", directory, "overlay", flags, layers)
        try:
            yield Path(directory)
        finally:
            await asyncio.to_thread(syscalls.umount, directory)


def _escaped(path: Path) -> str:
    return str(path).replace("\\", "\\\\").replace(",", "\\,").replace(":", "\\:")
