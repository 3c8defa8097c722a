"""Where the images come from that an engine's provider asks for by the names of templates."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from paddock.adapters.egress.config import EgressConfig
from paddock.adapters.providers.docker.building import Builder
from paddock.adapters.providers.docker.config import DockerConfig
from paddock.adapters.providers.docker.images import ImageSource
from paddock.adapters.providers.docker.templates import image_source
from paddock.adapters.providers.local.config import LocalConfig
from paddock.adapters.providers.local.provider import LocalProvider
from paddock.adapters.providers.local.storage import open_storage
from paddock.adapters.providers.local.templates import BuiltTemplate, TemplateStore
from paddock.adapters.providers.local.templates.images import Images
from paddock.domain.errors import Broken
from paddock.domain.template import Template
from paddock.interfaces.cli.toolbox import Progress, Templates
from paddock.wiring.engine_templates import EngineTemplates
from paddock.wiring.shelf import Shelf


@dataclass(frozen=True, slots=True)
class Stock:
    """What an engine's images are made of, and the recipes that say how."""

    find: ImageSource
    recipes: Templates
    is_built: Callable[[str], Awaitable[bool]]
    """NotFound where no recipe has this name."""


@asynccontextmanager
async def of_user(
    docker: DockerConfig, config: LocalConfig, progress: Progress
) -> AsyncIterator[Stock]:
    """For who is not root: the engine builds, and everything else is in the user's directory."""
    async with Builder.opened(docker) as builder:
        templates = EngineTemplates(builder, config, progress)
        yield Stock(templates.find, templates, templates.is_built)


@asynccontextmanager
async def from_store(
    docker: DockerConfig,
    config: LocalConfig,
    progress: Progress,
    *,
    egress: EgressConfig | None = None,
) -> AsyncIterator[Stock]:
    """For root. Built on first use. Only set-up commands need the whole local provider for it; its
    gateway is the one that is there, and stays set as it is."""
    data = config.data_dir.absolute()
    storage = await asyncio.to_thread(
        open_storage, data, driver=config.storage, pool_size_mib=config.pool_size_mib
    )
    fetched = Images.of(config, egress or EgressConfig())
    store = TemplateStore(storage, data, cache=config.template_cache, images=fetched)

    async def build(template: Template) -> BuiltTemplate:
        if template.setup:
            local = await LocalProvider.open(config, progress=progress, egress=egress)
            try:
                await local.prepare(template.name)
            finally:
                await local.aclose()
        return await store.ensure(template, progress=progress, setup_runner=_built_already)

    async def is_built(name: str) -> bool:
        return store.built(store.recipe(name)) is not None

    try:
        yield Stock(image_source(store.recipe, build), Shelf(store, config, docker), is_built)
    finally:
        await asyncio.to_thread(storage.close)


async def _built_already(_lower: Path, _seed: Path | None, commands: Sequence[str]) -> NoReturn:
    raise Broken(f"set-up commands were to be run twice: {'; '.join(commands)}")
