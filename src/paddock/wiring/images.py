"""The templates of the local store, as the images that an engine's provider asks for."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NoReturn

from paddock.adapters.providers.docker.images import ImageSource, TemplateImage
from paddock.adapters.providers.docker.templates import image_source
from paddock.adapters.providers.local.config import LocalConfig
from paddock.adapters.providers.local.provider import LocalProvider
from paddock.adapters.providers.local.storage import open_storage
from paddock.adapters.providers.local.templates import BuiltTemplate, TemplateStore
from paddock.domain.errors import Broken, NotFound
from paddock.domain.template import Template
from paddock.interfaces.cli.toolbox import Progress


async def for_unprivileged(template: str) -> TemplateImage:
    raise NotFound(
        f"the template {template!r} cannot be had: templates are built and kept by root",
        remediation="name an image of the engine that has Python, such as "
        "`--template docker:python:3-slim`, or run as root",
    )


@asynccontextmanager
async def from_store(config: LocalConfig, progress: Progress) -> AsyncIterator[ImageSource]:
    """Built on first use. Only set-up commands need the whole local provider for it."""
    data = config.data_dir.absolute()
    storage = await asyncio.to_thread(
        open_storage, data, driver=config.storage, pool_size_mib=config.pool_size_mib
    )
    store = TemplateStore(storage, data, cache=config.template_cache)

    async def build(template: Template) -> BuiltTemplate:
        if template.setup:
            local = await LocalProvider.open(config, progress=progress)
            try:
                await local.prepare(template.name)
            finally:
                await local.aclose()
        return await store.ensure(template, progress=progress, setup_runner=_built_already)

    try:
        yield image_source(store.recipe, build)
    finally:
        await asyncio.to_thread(storage.close)


async def _built_already(_lower: Path, _seed: Path | None, commands: Sequence[str]) -> NoReturn:
    raise Broken(f"set-up commands were to be run twice: {'; '.join(commands)}")
