"""Installations of the Docker provider for tests, on one engine for all parallel workers."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from paddock.adapters.egress.config import EgressConfig
from paddock.adapters.providers.docker.address import EngineAddress
from paddock.adapters.providers.docker.config import DockerConfig
from paddock.adapters.providers.docker.engine import Engine
from paddock.adapters.providers.docker.images import Images, TemplateImage
from paddock.adapters.providers.docker.names import Names
from paddock.adapters.providers.docker.provider import DockerProvider
from paddock.adapters.providers.docker.records import Defaults
from paddock.domain.errors import NotFound
from paddock.domain.ids import new_ulid
from paddock.wiring import images
from tests.adapters.providers.docker import leftovers
from tests.adapters.providers.local import tiny
from tests.daemons import CannotStart, stop_watched
from tests.docker_engine import start_docker, start_podman
from tests.engines import local_config

BASE, TINY = "base", "tiny"
BASE_ROOT, TINY_ROOT = "PADDOCK_TEST_ROOTFS", "PADDOCK_TEST_TINY"
"""Variables that name the directories of their files."""


async def source(template: str) -> TemplateImage:
    """What the store of templates is to the provider, under the names of this test run."""
    files = {BASE: _base_files, TINY: _tiny_files}.get(template)
    if files is None:
        raise NotFound(f"there is no template {template!r} in the tests")
    return TemplateImage(Defaults(template, {"TEMPLATE": template}), f"test-{template}", files)


@asynccontextmanager
async def _tiny_files() -> AsyncIterator[Path]:
    yield Path(os.environ[TINY_ROOT])


@asynccontextmanager
async def _base_files() -> AsyncIterator[Path]:
    """A directory of the operator's, or what the local provider's own tests are made of."""
    if root := os.environ.get(BASE_ROOT):
        yield Path(root)
        return
    async with images.from_store(
        DockerConfig(), local_config(), lambda _text, _fraction: None
    ) as store:
        found = await store.find(BASE)
        assert found.files is not None
        async with found.files() as files:
            yield files


@dataclass
class Installation:
    """One of many on the same engine, with a name and a directory of its own."""

    host: str
    run_root: Path
    name: str = field(default_factory=lambda: f"test-{new_ulid()}")

    def config(self, **changes: Any) -> DockerConfig:
        given = {"host": self.host, "run_root": self.run_root, "installation": self.name}
        return DockerConfig(**(given | changes))

    @asynccontextmanager
    async def opened(
        self,
        *,
        on_step: Callable[[str], None] = lambda _: None,
        egress: EgressConfig | None = None,
        closed_ports: frozenset[int] = frozenset(),
        agents: Path | None = None,
        **changes: Any,
    ) -> AsyncIterator[DockerProvider]:
        provider = await DockerProvider.open(
            self.config(**changes),
            source,
            egress=egress,
            closed_ports=closed_ports,
            on_step=on_step,
            agents=agents,
        )
        try:
            yield provider
        finally:
            await provider.aclose()

    async def empty(self) -> None:
        async with self.opened() as provider:
            async for seen in provider.find({}):
                await provider.destroy(seen.ref)
            async for snapshot in provider.snapshots():
                await provider.delete_snapshot(snapshot.ref)

    async def left(self) -> dict[str, list[str]]:
        return await leftovers.look(self.host, self.name, self.run_root)


@pytest.fixture(scope="session")
def engine_host(share: Any, need: Any) -> Iterator[str]:
    """Where a real Docker listens."""
    try:
        with share("docker-engine", start_docker, stop_watched) as value:
            yield value["address"]
    except CannotStart as error:
        need("docker", str(error))


@pytest.fixture(scope="session")
def podman_host(share: Any, need: Any) -> Iterator[str]:
    """Where a real Podman listens."""
    try:
        with share("podman-engine", start_podman, stop_watched) as value:
            yield value["address"]
    except CannotStart as error:
        need("podman", str(error))


@pytest.fixture(scope="session")
def tiny_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root file system of one program, without Python; programs started by tests find it too."""
    root = tiny.build(tmp_path_factory.mktemp("tiny") / "root")
    os.environ[TINY_ROOT] = str(root)
    return root


@pytest.fixture(scope="session")
def base_image(engine_host: str, share: Any) -> Iterator[str]:
    """The template `base` on the engine, with Python; imported once for all workers."""
    with share("docker-base", lambda: _import(engine_host), lambda _: None) as name:
        yield name


@pytest.fixture(scope="session")
def podman_base_image(podman_host: str, share: Any) -> Iterator[str]:
    with share("podman-base", lambda: _import(podman_host), lambda _: None) as name:
        yield name


def _import(host: str) -> str:
    async def work() -> str:
        async with Engine(EngineAddress.parse(host)) as engine:
            return (await Images(engine, Names("tests"), source).template(BASE)).image

    with ThreadPoolExecutor(1) as pool:  # the session's own loop may be running
        return pool.submit(asyncio.run, work()).result()


@pytest.fixture(scope="session")
def short_directory() -> Iterator[Path]:
    """For sockets, whose paths may have no more than 107 characters."""
    directory = Path(tempfile.mkdtemp(prefix="pdk-", dir="/tmp"))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
async def installation(
    engine_host: str, tiny_root: Path, short_directory: Path
) -> AsyncIterator[Installation]:
    """With the template `tiny`; nothing of it may be left when it is emptied."""
    made = Installation(engine_host, short_directory)
    yield made
    await made.empty()
    assert await made.left() == {}
