"""An engine on btrfs: a sandbox's disk is limited by the file system itself."""

import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from paddock.adapters.providers.docker.images import TemplateImage
from paddock.adapters.providers.docker.provider import DockerProvider
from paddock.adapters.providers.docker.records import Defaults
from paddock.domain.sandbox import Resources
from paddock.guest_client import Guest
from paddock.ports.provider import SandboxSpec
from tests.adapters.providers.docker.conftest import Installation
from tests.daemons import CannotStart
from tests.docker_engine import OwnDocker, end_containers, new_directory

LIMIT = Resources(disk_mib=64)


@pytest.fixture
def btrfs_engine(as_root: None, need: Any) -> Iterator[OwnDocker]:
    if shutil.which("mkfs.btrfs") is None:
        need("btrfs", "mkfs.btrfs is not installed")
    directory = new_directory()
    data, image = directory / "data", directory / "image"
    data.mkdir()
    engine = OwnDocker(directory)
    try:
        with image.open("wb") as file:
            file.truncate(4 << 30)
        subprocess.run(["mkfs.btrfs", "--quiet", image], check=True, capture_output=True)
        subprocess.run(["mount", "-o", "loop", image, data], check=True)
        engine.start()
        yield engine
        end_containers(engine.socket)
    except CannotStart as error:
        need("docker", str(error))
    finally:
        engine.stop()
        subprocess.run(["umount", "--recursive", data], check=False)
        engine.remove()


@pytest.mark.slow
@pytest.mark.proves("P13")
async def test_no_more_can_be_written_than_the_limit_whatever_the_image_holds(
    btrfs_engine: OwnDocker, tiny_root: Path, tmp_path: Path, short_directory: Path
) -> None:
    root = tmp_path / "root"
    shutil.copytree(tiny_root, root, symlinks=True)
    (root / "large").write_bytes(os.urandom(100 << 20))

    async def source(template: str) -> TemplateImage:
        @asynccontextmanager
        async def files() -> AsyncIterator[Path]:
            yield root

        return TemplateImage(Defaults(template), "large", files)

    installation = Installation(btrfs_engine.address, short_directory)
    provider = await DockerProvider.open(installation.config(), source)
    try:
        assert provider.capabilities.disk_limit
        seen = await provider.create("full", SandboxSpec(template="large", resources=LIMIT))
        fork = await provider.fork(seen.ref, "fork", SandboxSpec(resources=LIMIT))
        for ref in (seen.ref, fork.ref):
            assert 40 <= await _written(provider, ref) <= LIMIT.disk_mib + 1
            await provider.destroy(ref)
    finally:
        await provider.aclose()


async def _written(provider: DockerProvider, ref: Any) -> int:
    """How many MiB of 200 fit onto the disk."""
    write = "dd if=/dev/urandom of=/tmp/big bs=1M count=200; sync; stat -c %s /tmp/big"
    async with Guest(await provider.guest(ref)) as guest:
        result = await guest.exec(["sh", "-c", write], timeout=60)
        assert result.exit_code == 0, result.stderr.decode()
        return int(result.text) >> 20
