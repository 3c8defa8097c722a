"""Real providers for tests, with the template `base` built once for the whole machine."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from paddock.adapters.providers.local.config import LocalConfig
from paddock.adapters.providers.local.provider import LocalProvider

REPOSITORY = Path(__file__).parents[1]
CACHE = Path(os.environ.get("PADDOCK_TEST_CACHE", REPOSITORY / "build" / "templates"))
DATA = Path(os.environ.get("PADDOCK_TEST_DATA", REPOSITORY / "build" / "test-data"))
AGENTS = Path(os.environ.get("PADDOCK_TEST_AGENTS", REPOSITORY / "build" / "agents"))
"""What is installed there is not downloaded again."""


def local_config(**changes: Any) -> LocalConfig:
    """Of the installation that tests share; each worker is one of several control processes."""
    return LocalConfig(data_dir=DATA, template_cache=CACHE, **changes)


@asynccontextmanager
async def open_local(**changes: Any) -> AsyncIterator[LocalProvider]:
    provider = await LocalProvider.open(local_config(**changes))
    try:
        yield provider
    finally:
        await provider.aclose()


async def base_root() -> Path:
    """The root file system of the template `base`, built unless it is."""
    async with open_local() as provider:
        await provider.prepare("base")
        build = await provider.templates.ensure(
            provider.templates.recipe("base"), setup_runner=_no_setup
        )
        return build.lower


async def _no_setup(*_: object) -> Path:
    raise AssertionError("base has no set-up commands")
