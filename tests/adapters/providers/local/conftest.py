"""Installations of the local provider for tests, each with a pool of its own."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from paddock.adapters.providers.local import runtime
from paddock.adapters.providers.local.config import LocalConfig
from paddock.adapters.providers.local.layout import Layout
from paddock.adapters.providers.local.provider import LocalProvider
from paddock.domain.template import SourceKind, Template, TemplateSource
from tests.adapters.providers.local import tiny, traces
from tests.conftest import Need
from tests.harness import disk


@dataclass
class Installation:
    """A data directory with the template `tiny`."""

    data_dir: Path
    pool_size_mib: int | None = None
    """Of a pool image, where the directory is not on btrfs."""

    @property
    def layout(self) -> Layout:
        return Layout.of(self.data_dir)

    def config(self, **changes: Any) -> LocalConfig:
        return LocalConfig(data_dir=self.data_dir, pool_size_mib=self.pool_size_mib, **changes)

    @asynccontextmanager
    async def opened(self, **changes: Any) -> AsyncIterator[LocalProvider]:
        provider = await LocalProvider.open(self.config(**changes))
        try:
            yield provider
        finally:
            await provider.aclose()

    async def empty(self, provider: LocalProvider) -> None:
        async for observation in provider.find({}):
            await provider.destroy(observation.ref)
        async for snapshot in provider.snapshots():
            await provider.delete_snapshot(snapshot.ref)

    def assert_no_traces(self) -> None:
        left = traces.look(self.data_dir)
        assert not left.sandboxes
        assert not left.volumes
        assert not left.snapshots
        assert not left.memories
        assert not left.archives
        assert not left.cgroups
        assert not left.processes
        assert left.mounts <= {str(self.data_dir / "pool")}
        assert not left.bundles
        assert not left.sockets
        assert not left.runtime_state
        assert not left.keys
        assert not left.links
        assert not left.locks


@pytest.fixture(scope="session")
def tiny_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.build(tmp_path_factory.mktemp("tiny") / "root")


@pytest.fixture
async def installation(tiny_root: Path) -> AsyncIterator[Installation]:
    home = disk.new_directory()
    made = Installation(home / "data")
    try:
        async with made.opened() as provider:
            provider.templates.add(
                Template("tiny", TemplateSource(SourceKind.DIRECTORY, str(tiny_root)))
            )
        yield made
        async with made.opened() as provider:
            await made.empty(provider)
    finally:
        disk.remove(home)


@pytest.fixture
def runsc(need: Need) -> str:
    """For what only gVisor has."""
    found = runtime.installed().get("runsc")
    if found is None:
        need("runsc", "not installed")
    if why := runtime.outdated(found):
        need("runsc", why)
    return found.name


@pytest.fixture
def recalling_runsc(runsc: str, need: Need) -> str:
    """For what only a gVisor has that brings memory back in another sandbox."""
    if not recalls(runtime.installed()[runsc]):
        need("runsc", "a build whose `restore` does not compare the arguments of the sandboxes")
    return runsc


def recalls(found: runtime.Runtime) -> bool:
    return "-restore-spec-validation" not in runtime._runsc_flags(found.program)
