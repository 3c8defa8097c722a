"""Real providers for tests, with the template `base` built once for the whole machine."""

import fcntl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from paddock.adapters.providers.local.config import LocalConfig
from paddock.adapters.providers.local.provider import LocalProvider
from tests.harness import disk
from tests.harness.disk import AGENTS as AGENTS
from tests.harness.disk import REPOSITORY as REPOSITORY

DATA = disk.session_directory() / "data"
"""The installation that the workers of a session share. `local_config()` makes it."""


def local_config(**changes: Any) -> LocalConfig:
    """Of the shared installation; each worker is one of several control processes."""
    furnish(DATA, "base")
    return LocalConfig(data_dir=DATA, template_cache=disk.TEMPLATES, **changes)


def furnish(data_dir: Path, *templates: str) -> None:
    """Put built-in templates into a data directory on the shared disk. One process at a time."""
    for name in templates:
        disk.ensure_built(name)  # before the lock: a build takes minutes, and others need `base`
    data_dir.parent.mkdir(parents=True, exist_ok=True)
    with (data_dir.parent / "furnish.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        disk.furnish(data_dir, *templates)


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
